"""A bucket that is rebased to other limits, and what happens to its levels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import (
    NOON,
    Client,
    after,
    apply,
    at,
    balance,
    created,
    level,
    own,
    settling,
    step,
    stored,
    taking,
    view,
    with_balances,
)
from zae_limiter.core.acquire import Rebase
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Refused
from zae_limiter.core.rebase import MOST_REMEMBERED

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
OLD = stored(RPS)
LATER = NOON + 400

small_limits = st.builds(Limit, st.just("rps"), st.integers(1, 50), st.integers(1, 50), st.integers(1, 90))


def test_rebase_to_a_lower_capacity_cuts_the_level() -> None:
    """C is the smaller of the two capacities."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 3, 10, 1), stamp=2), {}, at(LATER))

    item = after(write, item)

    assert 3_000 == level(item, "rps", LATER) == balance(item, "rps")
    assert (LATER, 3_000, 2) == (item["rf"], item["b_rps_cp"], item["cv"])


def test_rebase_to_a_higher_capacity_adds_no_tokens() -> None:
    """Only refill adds tokens."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 50, 10, 1), stamp=2), {}, at(LATER))

    item = after(write, item)

    assert 10_000 == level(item, "rps", LATER)
    assert 11_000 == level(item, "rps", LATER + 100)


def test_rebase_keeps_the_refill_until_then() -> None:
    """ADD tk E if tk <= C - E."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 10, 1, 1), stamp=2), {}, at(LATER))

    for tk in (-9_000, 0, 6_000):
        assert tk + 4_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    assert isinstance(apply(write, with_balances(item, rps=6_001)), Refused)


def test_rebase_cuts_an_overflow() -> None:
    """SET tk = C if tk > C - E."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 10, 1, 1), stamp=2), {}, at(LATER))

    for tk in (6_001, 90_000):
        assert 10_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    assert isinstance(apply(write, with_balances(item, rps=6_000)), Refused)


def test_rebase_with_a_take_subtracts_within_two_bounds() -> None:
    """ADD tk E-n if n-E <= tk <= C-E."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 8, 1, 1), stamp=2), {"rps": 3}, at(LATER))

    for tk in (-1_000, 4_000):
        assert tk + 1_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    for tk in (-1_001, 4_001):
        assert isinstance(apply(write, with_balances(item, rps=tk)), Refused)
    assert 3_000 == after(write, item)["b_rps_tc"]


def test_rebase_with_a_take_from_an_overflowing_bucket_sets_the_rest() -> None:
    """SET tk = C-n, n <= C."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 8, 1, 1), stamp=2), {"rps": 8}, at(LATER))

    assert 0 == balance(after(write, item), "rps")
    assert isinstance(apply(write, with_balances(item, rps=4_000)), Refused)


def test_rebase_without_enough_tokens_takes_nothing() -> None:
    """The bucket is rebased, and then rejects the request."""
    item = with_balances(created(OLD), rps=1_000)
    terms = stored(Limit("rps", 50, 10, 1), stamp=2)
    chosen = step(view(item), terms, {"rps": 20}, at(LATER))
    client = Client(terms, item)

    reported = client.request({"rps": 20}, at(LATER))

    assert isinstance(chosen, Rebase)
    assert not chosen.takes
    assert [(5, True, 1.5)] == [(one.available, one.exceeded, one.retry_after_seconds) for one in reported]
    assert (2, 0) == (client.item["cv"], client.item["b_rps_tc"])


def test_rebase_adds_a_new_limit_full() -> None:
    """No request has taken from it yet."""
    item = created(OLD, {"rps": 4})
    write = taking(view(item), stored(RPS, RPM, stamp=2), {"rpm": 30}, at(NOON))

    item = after(write, item)

    assert (70_000, 30_000) == (balance(item, "rpm"), item["b_rpm_tc"])
    assert isinstance(apply(write, {**created(OLD), "b_rpm_tk": 0}), Refused)


def test_rebase_deletes_a_removed_limit_that_is_full() -> None:
    """A full limit has no state worth keeping."""
    item = created(stored(RPS, RPM), {"rps": 1})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)

    assert not [name for name in item if name.startswith("b_rpm_")]
    assert 8_000 == balance(item, "rps")


def test_rebase_that_deletes_a_limit_is_refused_if_it_is_not_full() -> None:
    """The write has a condition on its level."""
    item = created(stored(RPS, RPM))
    write = taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON))

    assert isinstance(apply(write, with_balances(item, rpm=99_999)), Refused)


def test_removed_limit_that_was_lowered_stays_dormant_until_its_highest_capacity() -> None:
    """It refills up to the largest capacity it ever had before it is deleted."""
    item = created(stored(RPS, RPM), {"rpm": 100})
    lowered = Limit("rpm", 1, 100, 60)
    for stamp, limits in ((2, (RPS, lowered)), (3, (RPS,)), (4, (RPS,))):
        item = after(taking(view(item), stored(*limits, stamp=stamp), {"rps": 1}, at(NOON + 6_000)), item)

    assert (True, 100_000, 1_000) == (item["b_rpm_dm"], item["b_rpm_cp"], level(item, "rpm", NOON + 6_000))

    item = after(taking(view(item), stored(RPS, stamp=5), {"rps": 1}, at(NOON + 66_000)), item)

    assert not [name for name in item if name.startswith("b_rpm_")]


def test_a_bucket_does_not_expire_before_a_dormant_limit_is_full() -> None:
    """A dormant limit refills to its largest capacity at its last rate."""
    item = created(stored(RPS, RPM), {"rpm": 100})
    item = after(taking(view(item), stored(RPS, Limit("rpm", 1, 1, 3_600), stamp=2), {"rps": 1}, at(NOON)), item)

    item = after(taking(view(item), stored(RPS, stamp=3, ttl=2), {"rps": 1}, at(NOON)), item)

    assert item["ttl"] * 1000 >= NOON + 100 * 3_600_000


def test_highest_capacity_is_stored_while_the_limit_is_lower() -> None:
    """It is removed once the capacity is that high again."""
    item = created(stored(RPM))
    item = after(taking(view(item), stored(Limit("rpm", 1, 100, 60), stamp=2), {"rpm": 1}, at(NOON)), item)

    assert 100_000 == item["b_rpm_hc"]

    item = after(taking(view(item), stored(Limit("rpm", 200, 100, 60), stamp=3), {}, at(NOON)), item)

    assert "b_rpm_hc" not in item


def test_rebase_beyond_the_maximum_of_stored_limits_raises() -> None:
    """Names of passed limits cannot accumulate without bound."""
    item = created(stored(Limit("l0", 1, 1, 3_600)), {"l0": 1})
    for number in range(1, MOST_REMEMBERED):
        terms = stored(Limit(f"l{number}", 1, 1, 3_600), stamp=number + 1)
        item = after(taking(view(item), terms, {f"l{number}": 1}, at(NOON)), item)

    with pytest.raises(ValidationError, match="also keeps 64 removed limits") as refused:
        taking(view(item), stored(Limit("one-more", 1, 1, 3_600), stamp=100), {"one-more": 1}, at(NOON))

    assert ("limits", ["one-more"]) == (refused.value.field, refused.value.value)


def test_removed_limit_that_is_not_full_stays_dormant() -> None:
    """It is hidden, refills, and is rebased with the others."""
    item = created(stored(RPS, RPM), {"rpm": 60})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)
    item = after(taking(view(item), stored(RPS, stamp=3), {"rps": 1}, at(NOON + 6_000)), item)

    assert ("rps",) == tuple(limit.name for limit in view(item).layout.limits)
    assert 50_000 == level(item, "rpm", NOON + 6_000)
    assert NOON + 6_000 == item["rf"]


def test_dormant_limit_that_is_added_again_keeps_its_level() -> None:
    """Removing and adding a limit does not refill it."""
    item = created(stored(RPS, RPM), {"rpm": 60})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)
    item = after(taking(view(item), stored(RPM, RPS, stamp=3), {"rpm": 1}, at(NOON + 6_000)), item)

    assert 49_000 == level(item, "rpm", NOON + 6_000)
    assert 61_000 == item["b_rpm_tc"]
    assert ("rpm", "rps") == tuple(limit.name for limit in view(item).layout.limits)


def test_dormant_limit_is_debited_by_a_settlement() -> None:
    """A lease is settled even if the limit is no longer in force."""
    item = created(stored(RPS, RPM), {"rpm": 60})
    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)

    item = after(settling(view(item), at(NOON), debits={"rpm": 5}), item)

    assert 35_000 == level(item, "rpm", NOON)


def test_rebase_of_a_shard_takes_at_most_its_share_of_a_new_limit() -> None:
    """A larger request is not taken with the rebase."""
    item = {**created(OLD), "shard_count": 2}
    terms = stored(RPS, RPM, stamp=2)

    for tokens, takes in ((50, True), (51, False)):
        chosen = step(view(item), terms, {"rpm": tokens}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert takes is chosen.takes


def test_passed_limits_rebase_a_bucket_and_stored_limits_rebase_it_back() -> None:
    """They keep the stamp and add a digest: the last writer wins."""
    mine, its = own(Limit("rps", 5, 5, 1)), stored(RPS)
    item = created(its)

    mine_now = after(taking(view(item), mine, {"rps": 1}, at(NOON)), item)
    its_again = after(taking(view(mine_now), its, {"rps": 1}, at(NOON)), mine_now)

    assert (1, mine.digest, 4_000) == (mine_now["cv"], mine_now["ld"], balance(mine_now, "rps"))
    assert (1, "", 3_000) == (its_again["cv"], its_again["ld"], balance(its_again, "rps"))


def test_rebase_never_moves_the_baseline_back() -> None:
    """A client whose clock is behind uses the existing baseline."""
    item = created(OLD, {"rps": 4})

    item = after(taking(view(item), stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON - 5_000)), item)

    assert NOON == item["rf"]
    assert 5_000 == balance(item, "rps")


def test_rebase_at_an_uncertain_time_uses_the_early_bound() -> None:
    """Tokens that may not have been refilled yet are not added."""
    item = created(OLD, {"rps": 9})

    item = after(taking(view(item), stored(RPM, RPS, stamp=2), {}, (NOON + 300, NOON + 500)), item)

    assert (NOON + 300, 4_000) == (item["rf"], balance(item, "rps"))


@pytest.mark.parametrize("change", [{"bi": 7}, {"gn": 7}])
def test_rebase_is_refused_by_a_bucket_that_changed_since_the_view(change: dict[str, object]) -> None:
    """Another client has rebased or recreated it."""
    item = created(OLD)
    write = taking(view(item), stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON))

    assert isinstance(apply(write, {**item, **change}), Refused)


@given(
    old=small_limits,
    new=small_limits,
    tk=st.integers(-60_000, 60_000),
    elapsed=st.integers(0, 20_000),
    tokens=st.integers(0, 60),
)
def test_rebase_cuts_the_level_exactly_and_never_raises_it(
    old: Limit, new: Limit, tk: int, elapsed: int, tokens: int
) -> None:
    """With or without a take."""
    now = NOON + elapsed
    item = with_balances(created(stored(old)), rps=tk)
    terms = stored(new, stamp=2)
    tokens = min(tokens, new.capacity)
    held = min(level(item, "rps", now), new.capacity_milli)
    chosen = step(view(item), terms, {"rps": tokens}, at(now))

    item = after(taking(view(item), terms, {"rps": tokens}, at(now)), item)

    assert isinstance(chosen, Rebase)
    assert chosen.takes == (not tokens or tokens * 1000 <= held)
    assert held - (tokens * 1000 if chosen.takes else 0) == level(item, "rps", now)
