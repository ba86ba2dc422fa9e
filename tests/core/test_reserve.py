"""Reserves: which one applies, how large its floor is on each shard, and how a take that leaves it is written."""

from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import NOON, at, created, own, stored, view
from zae_limiter.core.acquire import MixedTake, Progress, Rebase, Take
from zae_limiter.core.limit import Limit
from zae_limiter.core.quota import take
from zae_limiter.core.reserve import Reserve, floor_milli_of, floor_of, priority_reserves
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.tracked import quota_view

FIRST = Progress(trust_ms=1000)


def fraction_of(reserve: Reserve | None) -> float | None:
    return None if reserve is None else reserve.fraction


def test_largest_reserve_of_those_that_apply_is_chosen() -> None:
    """A reserve applies to its priority and to all below it."""
    reserves = priority_reserves({-1: 0.25, -5: 0.5, 3: 0.1})
    assert reserves is not None

    assert [None, 0.1, 0.1, 0.25, 0.25, 0.5, 0.5] == [
        fraction_of(reserves.of(priority)) for priority in (4, 3, 0, -1, -4, -5, -9)
    ]
    assert priority_reserves(None) is priority_reserves({}) is None


def test_floor_is_exact_and_rounded_up_to_whole_tokens() -> None:
    """A tenth of 30 is 3, although 0.1 as a float is a little more than a tenth."""
    reserves = priority_reserves({-1: 0.1})
    assert reserves is not None
    reserve = reserves.of(-1)

    assert [3, 4, 1] == [floor_of(Limit.per_minute("rpm", capacity), reserve) for capacity in (30, 31, 1)]
    assert 0 == floor_of(Limit.per_minute("rpm", 30, enforce=False), reserve)


@given(
    st.integers(1, 10_000),
    st.integers(1, 99),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["rate", "slots"]),
)
def test_floors_of_all_shards_add_up_to_the_whole_floor(capacity: int, part: int, shards: int, kind: str) -> None:
    """They are divided like the capacity, so no shard keeps more than its share of it."""
    limit = Limit.per_minute("rpm", capacity) if kind == "rate" else Limit.concurrent("rpm", capacity, hold_seconds=60)
    reserve = Reserve(part, 100)

    floors = [floor_milli_of(limit, reserve, shard, shards) for shard in range(shards)]

    assert floor_of(limit, reserve) * 1000 == sum(floors)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(1, 30))
def test_quota_is_taken_from_as_its_row_says(amount: int, spent: int, taken: int) -> None:
    """The row has the reserve as an argument of its own. Both ways make the same write."""
    limit = Limit.quota("calls", amount, "day")
    terms, reserve = stored(limit), Reserve(1, 3)
    item = created(terms)
    item["b_calls_qk"] -= spent
    seen = view(item, terms=terms)

    step = next_step_above(seen, terms, [(0, taken * 1000)], at(NOON), FIRST, reserve)

    row = take(quota_view(seen, 0, NOON // 1000), taken, floor_of(limit, reserve))
    if row is None:
        assert not isinstance(step, Take)
        return
    assert isinstance(step, MixedTake)
    (one,) = step.tracked
    assert (taken * 1000, taken * 1000) == (one.part.spent, one.charged)
    assert (row.low, row.high) == (one.part.low, one.part.high)


def test_rebase_with_a_reserve_takes_only_what_was_asked() -> None:
    """Limits that stay and limits that are added are charged the request, not the reserve."""
    old, new = own(Limit.per_minute("rpm", 10)), own(Limit.per_minute("rpm", 8), Limit.per_minute("tpm", 100), stamp=2)
    seen = view(created(old), terms=old)

    step = next_step_above(seen, new, [(0, 2_000), (1, 7_000)], at(NOON), FIRST, Reserve(1, 2))

    assert isinstance(step, Rebase)
    assert step.takes
    assert [2_000] == [part.spent for part in step.rebasing.parts]
    assert [(7_000, 93_000)] == [(fresh.spent, fresh.balance) for fresh in step.rebasing.added]
