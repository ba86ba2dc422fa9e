"""A bucket put on other limits: what becomes of its levels."""

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


def test_a_capacity_that_is_lowered_cuts_the_level() -> None:
    """C is the smaller of the two capacities."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 3, 10, 1), stamp=2), {}, at(LATER))

    item = after(write, item)

    assert 3_000 == level(item, "rps", LATER) == balance(item, "rps")
    assert (LATER, 3_000, 2) == (item["rf"], item["b_rps_cp"], item["cv"])


def test_a_capacity_that_is_raised_adds_nothing() -> None:
    """Tokens come by the refill and by nothing else."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 50, 10, 1), stamp=2), {}, at(LATER))

    item = after(write, item)

    assert 10_000 == level(item, "rps", LATER)
    assert 11_000 == level(item, "rps", LATER + 100)


def test_what_was_earned_is_kept() -> None:
    """ADD tk E if tk <= C - E."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 10, 1, 1), stamp=2), {}, at(LATER))

    for tk in (-9_000, 0, 6_000):
        assert tk + 4_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    assert isinstance(apply(write, with_balances(item, rps=6_001)), Refused)


def test_an_overflow_is_cut() -> None:
    """SET tk = C if tk > C - E."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 10, 1, 1), stamp=2), {}, at(LATER))

    for tk in (6_001, 90_000):
        assert 10_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    assert isinstance(apply(write, with_balances(item, rps=6_000)), Refused)


def test_a_take_goes_with_it() -> None:
    """ADD tk E-n if n-E <= tk <= C-E."""
    item = with_balances(created(OLD), rps=1_000)
    write = taking(view(item), stored(Limit("rps", 8, 1, 1), stamp=2), {"rps": 3}, at(LATER))

    for tk in (-1_000, 4_000):
        assert tk + 1_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
    for tk in (-1_001, 4_001):
        assert isinstance(apply(write, with_balances(item, rps=tk)), Refused)
    assert 3_000 == after(write, item)["b_rps_tc"]


def test_a_take_goes_with_a_cut() -> None:
    """SET tk = C-n, n <= C."""
    item = with_balances(created(OLD), rps=9_000)
    write = taking(view(item), stored(Limit("rps", 8, 1, 1), stamp=2), {"rps": 8}, at(LATER))

    assert 0 == balance(after(write, item), "rps")
    assert isinstance(apply(write, with_balances(item, rps=4_000)), Refused)


def test_without_the_tokens_it_is_done_without_the_take() -> None:
    """The bucket is brought up to date, and the request rejected by it."""
    item = with_balances(created(OLD), rps=1_000)
    terms = stored(Limit("rps", 50, 10, 1), stamp=2)
    chosen = step(view(item), terms, {"rps": 20}, at(LATER))
    client = Client(terms, item)

    told = client.request({"rps": 20}, at(LATER))

    assert isinstance(chosen, Rebase)
    assert not chosen.takes
    assert [(5, True, 1.5)] == [(one.available, one.exceeded, one.retry_after_seconds) for one in told]
    assert (2, 0) == (client.item["cv"], client.item["b_rps_tc"])


def test_a_limit_that_is_added_starts_full() -> None:
    """Nobody has taken from it yet."""
    item = created(OLD, {"rps": 4})
    write = taking(view(item), stored(RPS, RPM, stamp=2), {"rpm": 30}, at(NOON))

    item = after(write, item)

    assert (70_000, 30_000) == (balance(item, "rpm"), item["b_rpm_tc"])
    assert isinstance(apply(write, {**created(OLD), "b_rpm_tk": 0}), Refused)


def test_a_limit_that_is_removed_full_is_gone() -> None:
    """There is nothing to remember of it."""
    item = created(stored(RPS, RPM), {"rps": 1})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)

    assert not [name for name in item if name.startswith("b_rpm_")]
    assert 8_000 == balance(item, "rps")


def test_a_limit_that_turns_out_not_to_be_full_is_not_dropped() -> None:
    """The write depends on it."""
    item = created(stored(RPS, RPM))
    write = taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON))

    assert isinstance(apply(write, with_balances(item, rpm=99_999)), Refused)


def test_a_limit_that_is_full_only_since_it_was_lowered_is_remembered() -> None:
    """It fills up to the largest capacity it ever had before it goes."""
    item = created(stored(RPS, RPM), {"rpm": 100})
    lowered = Limit("rpm", 1, 100, 60)
    for stamp, limits in ((2, (RPS, lowered)), (3, (RPS,)), (4, (RPS,))):
        item = after(taking(view(item), stored(*limits, stamp=stamp), {"rps": 1}, at(NOON + 6_000)), item)

    assert (True, 100_000, 1_000) == (item["b_rpm_dm"], item["b_rpm_cp"], level(item, "rpm", NOON + 6_000))

    item = after(taking(view(item), stored(RPS, stamp=5), {"rps": 1}, at(NOON + 66_000)), item)

    assert not [name for name in item if name.startswith("b_rpm_")]


def test_a_bucket_does_not_expire_before_a_dormant_limit_is_full() -> None:
    """It fills to the largest capacity it ever had, at the last rate it had."""
    item = created(stored(RPS, RPM), {"rpm": 100})
    item = after(taking(view(item), stored(RPS, Limit("rpm", 1, 1, 3_600), stamp=2), {"rps": 1}, at(NOON)), item)

    item = after(taking(view(item), stored(RPS, stamp=3, ttl=2), {"rps": 1}, at(NOON)), item)

    assert item["ttl"] * 1000 >= NOON + 100 * 3_600_000


def test_the_largest_capacity_is_remembered_while_a_limit_is_lower() -> None:
    """And forgotten once it is that large again."""
    item = created(stored(RPM))
    item = after(taking(view(item), stored(Limit("rpm", 1, 100, 60), stamp=2), {"rpm": 1}, at(NOON)), item)

    assert 100_000 == item["b_rpm_hc"]

    item = after(taking(view(item), stored(Limit("rpm", 200, 100, 60), stamp=3), {}, at(NOON)), item)

    assert "b_rpm_hc" not in item


def test_a_bucket_has_room_for_so_many_limits() -> None:
    """Names of one's own do not pile up without bound: what may not be forgotten is an error, before it is written."""
    item = created(stored(Limit("l0", 1, 1, 3_600)), {"l0": 1})
    for number in range(1, MOST_REMEMBERED):
        terms = stored(Limit(f"l{number}", 1, 1, 3_600), stamp=number + 1)
        item = after(taking(view(item), terms, {f"l{number}": 1}, at(NOON)), item)

    with pytest.raises(ValidationError, match=r"it also keeps 64 limits") as refused:
        taking(view(item), stored(Limit("one-more", 1, 1, 3_600), stamp=100), {"one-more": 1}, at(NOON))

    assert ("limits", ["one-more"]) == (refused.value.field, refused.value.value)


def test_a_limit_that_is_removed_while_it_is_not_full_stays_dormant() -> None:
    """It is hidden, earns, and is rebased with the rest."""
    item = created(stored(RPS, RPM), {"rpm": 60})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)
    item = after(taking(view(item), stored(RPS, stamp=3), {"rps": 1}, at(NOON + 6_000)), item)

    assert ("rps",) == tuple(limit.name for limit in view(item).layout.limits)
    assert 50_000 == level(item, "rpm", NOON + 6_000)
    assert NOON + 6_000 == item["rf"]


def test_a_limit_that_comes_back_is_not_refilled() -> None:
    """Removing and adding a limit leaves its level."""
    item = created(stored(RPS, RPM), {"rpm": 60})

    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)
    item = after(taking(view(item), stored(RPM, RPS, stamp=3), {"rpm": 1}, at(NOON + 6_000)), item)

    assert 49_000 == level(item, "rpm", NOON + 6_000)
    assert 61_000 == item["b_rpm_tc"]
    assert ("rpm", "rps") == tuple(limit.name for limit in view(item).layout.limits)


def test_a_dormant_limit_is_settled_with_like_any_other() -> None:
    """What a lease owes is owed, though the limit is out of force."""
    item = created(stored(RPS, RPM), {"rpm": 60})
    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)

    item = after(settling(view(item), at(NOON), debits={"rpm": 5}), item)

    assert 35_000 == level(item, "rpm", NOON)


def test_a_shard_gives_no_more_than_its_share_of_a_new_limit() -> None:
    """The request is not taken with the rebase."""
    item = {**created(OLD), "shard_count": 2}
    terms = stored(RPS, RPM, stamp=2)

    for tokens, takes in ((50, True), (51, False)):
        chosen = step(view(item), terms, {"rpm": tokens}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert takes is chosen.takes


def test_limits_of_the_callers_own_rebase_and_are_rebased_from() -> None:
    """They keep the stamp and add a digest: the last writer wins."""
    mine, its = own(Limit("rps", 5, 5, 1)), stored(RPS)
    item = created(its)

    mine_now = after(taking(view(item), mine, {"rps": 1}, at(NOON)), item)
    its_again = after(taking(view(mine_now), its, {"rps": 1}, at(NOON)), mine_now)

    assert (1, mine.digest, 4_000) == (mine_now["cv"], mine_now["ld"], balance(mine_now, "rps"))
    assert (1, "", 3_000) == (its_again["cv"], its_again["ld"], balance(its_again, "rps"))


def test_the_baseline_never_moves_back() -> None:
    """A client whose clock is behind rebases at the baseline there is."""
    item = created(OLD, {"rps": 4})

    item = after(taking(view(item), stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON - 5_000)), item)

    assert NOON == item["rf"]
    assert 5_000 == balance(item, "rps")


def test_an_unsure_time_rebases_at_its_early_end() -> None:
    """What may not have been earned is not added."""
    item = created(OLD, {"rps": 9})

    item = after(taking(view(item), stored(RPM, RPS, stamp=2), {}, (NOON + 300, NOON + 500)), item)

    assert (NOON + 300, 4_000) == (item["rf"], balance(item, "rps"))


@pytest.mark.parametrize("change", [{"bi": 7}, {"gn": 7}])
def test_it_holds_on_to_what_was_seen(change: dict[str, object]) -> None:
    """A bucket that was rebased by another client refuses it."""
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
def test_a_level_is_cut_to_the_smaller_capacity_and_never_raised(
    old: Limit, new: Limit, tk: int, elapsed: int, tokens: int
) -> None:
    """With or without a take, and exactly."""
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
