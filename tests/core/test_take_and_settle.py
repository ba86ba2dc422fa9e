"""One write that takes and settles: what it does to the item, compared with two writes in a row."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.one_bucket import (
    NOON,
    after,
    apply,
    at,
    balance,
    created,
    level,
    settling,
    step,
    stored,
    view,
    with_balances,
    without_birth,
    write_of,
)
from zae_limiter.core.acquire import Progress, Take, amounts_of
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.take_and_settle import TakeAndSettle, take_and_settle
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Update

RPS = Limit("rps", 10, 10, 1)
"""Ten tokens, ten a second: 10 millitokens a millisecond, on any grid."""

RPM = Limit("rpm", 100, 100, 60)
BOTH = stored(RPM, RPS)
ALONE = stored(RPS)
LATER = NOON + 400
"""4,000 millitokens are earned by then: a balance of 6,000 is full."""


def settlement_of(owed: dict[str, int], birth: int | None = 1) -> Settlement:
    """Return a settlement in whole tokens: a debit above 0, a credit below."""
    return Settlement(
        tuple((name, tokens * 1000) for name, tokens in owed.items() if tokens > 0),
        tuple((name, -tokens * 1000) for name, tokens in owed.items() if tokens < 0),
        birth,
    )


def decided(
    seen: BucketView,
    terms: EffectiveLimits,
    consume: dict[str, int],
    settlement: Settlement,
    now: TimeBounds,
) -> TakeAndSettle | None:
    amounts = amounts_of(consume, terms)
    return take_and_settle(seen, terms, amounts, settlement, now, Progress(trust_ms=1_000))


def write(
    seen: BucketView, terms: EffectiveLimits, consume: dict[str, int], owed: dict[str, int], now: TimeBounds
) -> Update:
    found = decided(seen, terms, consume, settlement_of(owed), now)
    assert found is not None
    return bucket_writes.take_and_settle(seen, found.taking, found.parts, 77)


class TestWithADebit:
    """ADD tk -(n+d) if n+d-E <= tk <= cap-E; SET tk = T-E-n-d if tk >= T-E."""

    def test_take_with_a_debit_needs_the_tokens_of_both(self) -> None:
        """The debit comes first, so the take finds less."""
        item = with_balances(created(ALONE), rps=1_000)
        made = write(view(item), ALONE, {"rps": 2}, {"rps": 3}, at(LATER))

        for tk in (1_000, 6_000):
            assert tk - 5_000 == balance(after(made, with_balances(item, rps=tk)), "rps")
        for tk in (999, 6_001):
            assert isinstance(apply(made, with_balances(item, rps=tk)), Refused)

    def test_take_with_a_debit_from_an_overflowing_bucket_cuts_the_overflow(self) -> None:
        """An overflow must not pay the debit."""
        item = with_balances(created(ALONE), rps=9_000)
        made = write(view(item), ALONE, {"rps": 2}, {"rps": 3}, at(LATER))

        assert 5_000 == level(after(made, item), "rps", LATER)
        assert isinstance(apply(made, with_balances(item, rps=5_999)), Refused)

    def test_take_with_a_debit_that_leaves_too_little_is_not_one_write(self) -> None:
        """The debit has to be charged even though the take is rejected."""
        item = with_balances(created(ALONE), rps=1_000)

        assert decided(view(item), ALONE, {"rps": 2}, settlement_of({"rps": 4}), at(LATER)) is None

    def test_debit_of_another_limit_may_leave_a_debt(self) -> None:
        """Only what is taken has to be there, and the debt ends the expiry."""
        terms = stored(RPM, RPS, ttl=7)
        item = with_balances(created(terms), rpm=1_000)
        made = write(view(item), terms, {"rps": 1}, {"rpm": 50}, at(NOON))
        new = after(made, item)

        assert (-49_000, 9_000) == (balance(new, "rpm"), balance(new, "rps"))
        assert "ttl" not in new
        assert (50_000, 1_000) == (new["b_rpm_tc"], new["b_rps_tc"])


class TestWithACredit:
    """ADD tk c-n if n-c-E <= tk <= cap-c-E; SET tk = T-E-n if tk >= T-E-c."""

    def test_take_with_a_credit_may_use_what_is_returned(self) -> None:
        """The credit comes first, so the take finds more, but never an overflow."""
        item = with_balances(created(ALONE), rps=-3_000)
        made = write(view(item), ALONE, {"rps": 2}, {"rps": -3}, at(LATER))

        for tk in (-5_000, 3_000):
            assert tk + 1_000 == balance(after(made, with_balances(item, rps=tk)), "rps")
        for tk in (-5_001, 3_001):
            assert isinstance(apply(made, with_balances(item, rps=tk)), Refused)

    def test_take_with_a_credit_that_overflows_cuts_the_overflow(self) -> None:
        """A credit returns at most what fits."""
        item = with_balances(created(ALONE), rps=5_000)
        made = write(view(item), ALONE, {"rps": 2}, {"rps": -3}, at(LATER))

        assert 8_000 == level(after(made, item), "rps", LATER)
        assert 8_000 == level(after(made, with_balances(item, rps=3_000)), "rps", LATER)
        assert isinstance(apply(made, with_balances(item, rps=2_999)), Refused)

    def test_credit_of_another_limit_is_added_without_bounds(self) -> None:
        """The next take of that limit cuts an overflow."""
        item = created(BOTH)
        new = after(write(view(item), BOTH, {"rps": 1}, {"rpm": -5}, at(NOON)), item)

        assert (105_000, 9_000) == (balance(new, "rpm"), balance(new, "rps"))
        assert (-5_000, 1_000) == (new["b_rpm_tc"], new["b_rps_tc"])

    def test_debt_of_another_limit_that_its_credit_pays_lets_the_bucket_expire(self) -> None:
        """The condition counts the credit, because it is given in the same write."""
        terms = stored(RPM, RPS, ttl=7)
        item = with_balances(created(terms), rpm=-5_000)
        made = write(view(item), terms, {"rps": 1}, {"rpm": -5}, at(NOON))

        assert "ttl" in after(made, item)
        assert isinstance(apply(made, with_balances(item, rpm=-5_001)), Refused)

    def test_credit_is_left_out_of_the_write_that_is_sent_again(self) -> None:
        """After a lost answer the credit may have been given already."""
        item = with_balances(created(BOTH), rps=1_000, rpm=1_000)
        owed = settlement_of({"rps": -3, "rpm": -5})
        found = decided(view(item), BOTH, {"rps": 2}, owed, at(LATER))
        assert found is not None
        again = bucket_writes.take_and_settle(view(item), found.again, found.debit_parts, 77)
        new = after(again, item)

        assert (-1_000, 1_000) == (balance(new, "rps"), balance(new, "rpm"))
        assert isinstance(apply(again, with_balances(item, rps=-2_001)), Refused)

    def test_credit_for_a_bucket_that_was_replaced_is_not_one_write(self) -> None:
        """Only the bucket that was charged gets it."""
        item = created(ALONE, {"rps": 5})

        assert decided(view(item), ALONE, {"rps": 1}, settlement_of({"rps": -3}, birth=2), at(NOON)) is None
        assert decided(view(without_birth(item)), ALONE, {"rps": 1}, settlement_of({"rps": -3}), at(NOON)) is None


class TestMoreThanOneWrite:
    def test_settlement_of_a_limit_that_the_bucket_lacks_is_not_one_write(self) -> None:
        """The view may be older than the limit."""
        assert decided(view(created(ALONE)), ALONE, {"rps": 1}, settlement_of({"rpm": 1}), at(NOON)) is None

    def test_bucket_on_other_limits_is_not_one_write(self) -> None:
        """It is moved to the limits in force first."""
        newer = stored(RPS, stamp=2)

        assert decided(view(created(ALONE)), newer, {"rps": 1}, settlement_of({"rps": 1}), at(NOON)) is None

    def test_request_for_nothing_is_not_one_write(self) -> None:
        """It needs no write, and the settlement keeps its own."""
        assert decided(view(created(ALONE)), ALONE, {"rps": 0}, settlement_of({"rps": 1}), at(NOON)) is None


tokens = st.integers(0, 12)
owings = st.dictionaries(st.sampled_from(["rps", "rpm"]), st.integers(-12, 12).filter(bool), min_size=1)
balances = st.fixed_dictionaries({"rps": st.integers(-20_000, 20_000), "rpm": st.integers(-20_000, 120_000)})


@given(
    tk=balances,
    consume=st.fixed_dictionaries({"rps": st.integers(0, 10), "rpm": tokens}),
    owed=owings,
    now_ms=st.integers(NOON, NOON + 3_000),
)
def test_one_write_leaves_what_two_writes_in_a_row_would_leave(
    tk: dict[str, int], consume: dict[str, int], owed: dict[str, int], now_ms: int
) -> None:
    """First the settlement, then the take, both by one client that is alone."""
    item = with_balances(created(BOTH), **tk)
    found = decided(view(item), BOTH, consume, settlement_of(owed), at(now_ms))
    settlement = settling(
        view(item),
        at(now_ms),
        {name: amount for name, amount in owed.items() if amount > 0},
        {name: -amount for name, amount in owed.items() if amount < 0},
    )
    assert settlement is not None
    between = after(settlement, item)
    chosen = step(view(between), BOTH, consume, at(now_ms))

    assert (found is not None) == (isinstance(chosen, Take) and any(consume.values()))
    if found is not None:
        one = after(bucket_writes.take_and_settle(view(item), found.taking, found.parts, 77), item)
        two = after(write_of(chosen, view(between), BOTH, consume, at(now_ms)), between)
        assert {name: level(two, name, now_ms) for name in consume} == {
            name: level(one, name, now_ms) for name in consume
        }
        assert [two["b_rps_tc"], two["b_rpm_tc"]] == [one["b_rps_tc"], one["b_rpm_tc"]]
        spent = {name: (one[f"b_{name}_tc"] - item[f"b_{name}_tc"]) for name in consume}
        changed = {view(item).layout.shared.shares[position].name: milli for position, milli in found.changed}
        assert {name: milli for name, milli in spent.items() if milli} == {
            name: milli for name, milli in changed.items() if milli
        }


@given(
    seen=st.fixed_dictionaries({"rps": st.integers(2_000, 14_000), "rpm": st.integers(10_000, 120_000)}),
    since=st.fixed_dictionaries({"rps": st.integers(-4_000, 4_000), "rpm": st.integers(-30_000, 30_000)}),
    consume=st.fixed_dictionaries({"rps": st.integers(1, 3), "rpm": st.integers(1, 12)}),
    owed=st.dictionaries(st.sampled_from(["rps", "rpm"]), st.integers(-9, 3).filter(bool), min_size=1),
    bounds=st.tuples(st.integers(NOON, NOON + 2_000), st.integers(0, 900), st.integers(0, 900)),
)
def test_write_on_an_outdated_view_keeps_the_rules_of_the_writer_table(
    seen: dict[str, int],
    since: dict[str, int],
    consume: dict[str, int],
    owed: dict[str, int],
    bounds: tuple[int, int, int],
) -> None:
    """At any true time within the bounds it saves no more than the capacity, and takes only what exists."""
    early, wait, width = bounds
    now, true_ms = (early, early + width), early + min(wait, width)
    item = with_balances(created(BOTH), **seen)
    tk = {name: milli + since[name] for name, milli in seen.items()}
    found = decided(view(item), BOTH, consume, settlement_of(owed), now)
    assume(found is not None)
    assert found is not None
    outcome = apply(bucket_writes.take_and_settle(view(item), found.taking, found.parts, 77), with_balances(item, **tk))
    assume(isinstance(outcome, Applied))
    assert isinstance(outcome, Applied)
    new: Any = outcome.new

    for name, taken in consume.items():
        amount, period = new[f"b_{name}_ra"], new[f"b_{name}_rp"]
        earned = true_ms * amount // period - NOON * amount // period
        spent = (taken + owed.get(name, 0)) * 1000
        assert tk[name] + earned >= spent
        assert new[f"b_{name}_tk"] + earned <= new[f"b_{name}_cp"] - (taken + max(0, owed.get(name, 0))) * 1000
        assert new[f"b_{name}_tk"] - tk[name] <= -spent
