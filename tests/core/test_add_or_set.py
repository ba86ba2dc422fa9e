"""Full or not, with concurrent clients: choose the write that is most often correct, or read first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import NOON, after, apply, at, balance, created, level, step, stored, taking, view, with_balances
from zae_limiter.core.acquire import Look, Progress, Take
from zae_limiter.core.add_or_set import shortfall
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused

FAST = Limit("rps", 1_000, 1_000, 1)
"""A token a millisecond."""

SLOW = Limit("rps", 1_000, 10, 1)
SLACK = 1_000_000 // 64
LOOKED = Progress(trust_ms=1000).after_look()


def paced(item: dict[str, Any], milli_per_s: int, writes_per_s: int) -> Any:
    """Return the view of a client that has seen other clients use the bucket for a second at this pace."""
    totals = {name: total - milli_per_s for name, total in item.items() if name.endswith("_tc")}
    before = {**item, **totals, "b_wcu_tc": item["b_wcu_tc"] - writes_per_s}
    return view(item, NOON, view(before, NOON - 1_000))


def floor_of(write: Any, item: dict[str, Any]) -> int:
    """Return the lowest balance at which a write is applied; all higher ones are applied too."""
    low, high = -(10**9), 10**9
    while low < high:
        middle = (low + high) // 2
        if isinstance(apply(write, with_balances(item, rps=middle)), Applied):
            high = middle
        else:
            low = middle + 1
    return low


def test_take_from_a_full_bucket_that_was_just_seen_is_exact() -> None:
    """A view of age zero is certain, whatever other clients do."""
    terms = stored(FAST)
    item = created(terms)
    write = taking(paced(item, 1_000, 1), terms, {"rps": 1}, at(NOON))

    assert 999_000 == level(after(write, item), "rps", NOON)


def test_take_near_full_sets_the_balance_with_a_little_slack() -> None:
    """It is accepted slightly below full, and discards no more than that."""
    terms = stored(FAST)
    item = created(terms)
    write = taking(paced(item, 10_000, 10), terms, {"rps": 1}, at(NOON + 1))
    target = floor_of(write, item) + 1_000

    assert 1_000_000 - SLACK <= target < 1_000_000
    assert target - 1_000 == level(after(write, item), "rps", NOON + 1)


def test_uncertain_take_reads_first_and_then_uses_the_maximum_slack() -> None:
    """A read costs a tenth of a refused write."""
    terms = stored(FAST)
    item = created(terms)
    seen = paced(item, 100_000, 1)
    now = at(NOON + 100)

    assert isinstance(step(seen, terms, {"rps": 1}, now), Look)
    assert 1_000_000 - SLACK == floor_of(taking(seen, terms, {"rps": 1}, now, LOOKED), item) + 100_000


def test_take_from_a_bucket_that_is_certainly_not_full_subtracts() -> None:
    """Other clients have taken more than the overflow."""
    terms = stored(SLOW)
    item = created(terms)
    write = taking(paced(item, 100_000, 100), terms, {"rps": 1}, at(NOON + 1_000))

    assert 499_000 == balance(after(write, with_balances(item, rps=500_000)), "rps")
    assert isinstance(apply(write, item), Refused)


def test_take_from_a_bucket_that_is_certainly_empty_reads_first() -> None:
    """A take that would be refused is not sent, unless the bucket was just read."""
    terms = stored(SLOW)
    seen = paced(with_balances(created(terms), rps=500_000), 100_000, 100)

    assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 10_000)), Look)
    assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 10_000), LOOKED), Take)


def test_take_below_full_subtracts() -> None:
    """Other clients only raise a level by credits."""
    terms = stored(SLOW)
    item = with_balances(created(terms), rps=500_000)
    write = taking(paced(item, 10_000, 10), terms, {"rps": 1}, at(NOON + 100))

    assert 99_000 == balance(after(write, with_balances(item, rps=100_000)), "rps")


@pytest.mark.parametrize(("milli_per_s", "writes_per_s"), [(900_000, 900), (1_000_000, 1_000), (5_000_000, 5_000)])
def test_take_under_heavy_load_subtracts_until_it_is_refused(milli_per_s: int, writes_per_s: int) -> None:
    """Then it sets the balance lower by all the slack, so that other clients can subtract for a while."""
    terms = stored(FAST)
    item = created(terms)
    seen = paced(item, milli_per_s, writes_per_s)
    first = taking(seen, terms, {"rps": 1}, at(NOON + 1))
    then = taking(paced(item, 900_000, 900), terms, {"rps": 1}, at(NOON + 1), LOOKED)

    assert isinstance(apply(first, item), Refused)
    assert 1_000_000 - SLACK == floor_of(then, item) + 1_000


def test_few_large_takes_are_not_heavy_load_and_cause_a_read() -> None:
    """Hardly any of them arrives while the bucket refills by the slack."""
    terms = stored(FAST)

    assert isinstance(step(paced(created(terms), 500_000, 2), terms, {"rps": 1}, at(NOON + 1)), Look)


def test_many_writes_without_takes_of_a_limit_are_not_heavy_load() -> None:
    """They are caused by other limits; this one stays full and is set."""
    terms = stored(FAST)
    item = created(terms)
    write = taking(paced(item, 10_000, 5_000), terms, {"rps": 1}, at(NOON + 1))

    assert isinstance(apply(write, item), Applied)


def test_target_of_a_take_is_further_below_full_under_higher_load() -> None:
    """The distance grows without bound as other clients take nearly all of the refill."""
    terms = stored(FAST)
    item = created(terms)
    size, earned = 100, 10_000
    distances = []
    for load in (0.1, 0.5, 0.9):
        seen = paced(item, int(load * 1_000_000), int(load * 1_000_000) // size)
        write = taking(seen, terms, {"rps": 100}, at(NOON + 10))
        distances.append(1_000_000 - earned - floor_of(write, item))

    little, half, most = distances
    assert 3 * size <= little < 5 * size < half < 20 * size < most <= SLACK


def test_target_of_a_take_is_at_least_the_requested_amount() -> None:
    """T is between n and the capacity."""
    terms = stored(FAST)
    item = created(terms)
    write = taking(paced(item, 10_000, 10), terms, {"rps": 1_000}, at(NOON + 1))

    assert 1_000_000 == floor_of(write, item) + 1_000


@given(
    tokens=st.integers(0, 1_000),
    pace=st.tuples(st.integers(0, 10_000_000), st.integers(0, 5_000)),
    seen_tk=st.integers(0, 1_000_000),
    age_ms=st.integers(-10, 10_000),
    looked=st.booleans(),
)
def test_take_discards_at_most_a_64th_of_the_capacity_and_never_raises_a_level(
    tokens: int, pace: tuple[int, int], seen_tk: int, age_ms: int, looked: bool
) -> None:
    """A client that cannot guarantee this reads first."""
    terms, now = stored(FAST), at(NOON + age_ms)
    item = with_balances(created(terms), rps=seen_tk)
    chosen = step(paced(item, *pace), terms, {"rps": tokens}, now, LOOKED if looked else None)
    if not isinstance(chosen, Take):
        assert not (looked and isinstance(chosen, Look))
        return

    write = taking(paced(item, *pace), terms, {"rps": tokens}, now, LOOKED if looked else None)
    answer = apply(write, item)

    if isinstance(answer, Applied):
        given_away = level(item, "rps", now[0]) - tokens * 1000 - level(answer.new, "rps", now[0])
        assert 0 <= given_away <= SLACK


def test_take_at_a_too_uncertain_time_sets_the_balance() -> None:
    """If no balance is certainly enough and certainly not too much, the range for adding is empty."""
    terms = stored(FAST)
    item = created(terms, {"rps": 1_000})
    unsure = (NOON + 1_000, NOON + 1_400)
    write = taking(paced(item, 1_500_000, 1_500), terms, {"rps": 900}, unsure, LOOKED)

    assert isinstance(apply(write, with_balances(item, rps=0)), Applied)
    assert isinstance(apply(write, with_balances(item, rps=-100_001)), Refused)


def test_shortfall_of_a_client_that_is_alone_is_what_its_view_lacks() -> None:
    """Nothing is added for others. A view that is too old to reject still shows that the tokens are missing."""
    terms = stored(FAST)
    seen = view(created(terms, {"rps": 400}), NOON)
    level = seen.layout.baseline(0).level(seen.numbers[0], NOON)

    assert 0 < level
    assert (0.0, 1.0) == (shortfall(seen, 0, level, at(NOON)), shortfall(seen, 0, level + 1, at(NOON)))


def test_shortfall_grows_with_the_age_of_the_view() -> None:
    """Others take 100 tokens a second in 10 writes, so 500 tokens may be gone by half a second later."""
    terms = stored(SLOW)
    seen = paced(created(terms, {"rps": 600}), 100_000, 10)

    assert 0.0 == shortfall(seen, 0, 1_000, at(NOON))
    assert 0.0 < shortfall(seen, 0, 400_000, at(NOON)) < shortfall(seen, 0, 400_000, at(NOON + 500))
