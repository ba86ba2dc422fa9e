"""A write of a calendar quota changes what is stored only in the range in which it is right."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core import quota
from zae_limiter.core.calendar import period_at, schedule_of
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.quota import (
    BAND,
    HALF_BAND,
    MOST_SPENT,
    QuotaAdd,
    QuotaSet,
    QuotaView,
    action_epoch,
    current_epoch,
    epoch_of,
    known_s,
)

MONTH = schedule_of("month")
BEGIN_S = 1_706_745_600
EPOCH = 2 * BEGIN_S
FULL = -BAND * EPOCH
OLD = EPOCH - 40 * 86_400 * 2
TOLERANCE = MONTH.tolerance

epochs = st.integers(0, 10**10)
amounts = st.integers(0, MAX_QUOTA)


def view(spent: int = 0, capacity: int = 10, band: int = EPOCH, epoch: int = EPOCH) -> QuotaView:
    """Return the view of a quota that has spent something in a band."""
    return QuotaView(-BAND * band - spent, epoch, capacity, TOLERANCE)


def admits(write: Any, qk: int) -> bool:
    """Return whether the table applies a write to a stored number."""
    return bool(write.low <= qk and (write.high is None or qk <= write.high))


def after(write: Any, qk: int) -> int:
    """Return what is stored after a write, whose bounds must hold."""
    assert admits(write, qk), (write, qk)
    return int(qk + write.change if isinstance(write, QuotaAdd) else write.qk)


@given(epochs, st.integers(-MOST_SPENT, MOST_SPENT))
def test_number_proves_its_epoch(epoch: int, spent: int) -> None:
    """Whatever is spent in an epoch, its numbers are never those of another one."""
    assert epoch == epoch_of(-BAND * epoch - spent)


def test_largest_number_has_28_digits() -> None:
    """Both local engines add such numbers exactly, and one of them rounds beyond that."""
    assert len(str(BAND * 10**10 - 1 + MOST_SPENT)) <= 29
    assert len(str(BAND * (2 * 4_102_444_800) + MOST_SPENT)) == 28


@pytest.mark.parametrize(
    ("band", "epoch"),
    [
        (OLD, EPOCH),
        (EPOCH, EPOCH),
        (EPOCH + 2, EPOCH + 2),
        (EPOCH + 7, EPOCH + 7),
        (EPOCH - 2, EPOCH - 2),
        (EPOCH - TOLERANCE, EPOCH),
        (EPOCH - TOLERANCE + 2, EPOCH - TOLERANCE + 2),
        (EPOCH - 1, EPOCH),
    ],
)
def test_epoch_is_the_edge_or_what_the_bucket_proves(band: int, epoch: int) -> None:
    """An older band near the edge is the same edge with other time zone data, but an action is not."""
    assert epoch == current_epoch(-BAND * band, BEGIN_S, TOLERANCE)


def test_time_is_proven_by_the_latest_edge_of_a_bucket() -> None:
    """An action is dated by the latest possible time, so it proves nothing."""
    numbers = [-BAND * 200 - 3, -BAND * 301]

    assert 100 == known_s(90, numbers)
    assert 120 == known_s(120, numbers)


@given(st.integers(0, 10**9), epochs)
def test_action_begins_an_odd_epoch_after_the_one_before(at_s: int, before: int) -> None:
    """So it is never an edge, and no number of the epoch before is one of it."""
    epoch = action_epoch(at_s, before)

    assert 1 == epoch % 2
    assert before < epoch <= max(2 * at_s + 1, before + 2)


def test_take_in_the_epoch_requires_the_amount() -> None:
    """The bound is that of the table, not that of the view."""
    write = quota.take(view(spent=3), 4)

    assert QuotaAdd(-4, FULL - 6, FULL) == write


def test_take_in_a_new_epoch_sets_what_is_spent() -> None:
    """What was spent in an older epoch, or not, has ended."""
    write = quota.take(view(spent=99, band=OLD), 4)

    assert isinstance(write, QuotaSet)
    assert FULL - 4 == write.qk
    assert not admits(write, FULL)
    assert not admits(write, -BAND * (EPOCH - TOLERANCE + 1))
    assert admits(write, -BAND * (EPOCH - TOLERANCE))


@pytest.mark.parametrize(
    ("spent", "taken", "reserve", "possible"),
    [(0, 10, 0, True), (0, 11, 0, False), (7, 3, 0, True), (7, 4, 0, False), (5, 3, 2, True), (5, 4, 2, False)],
)
@pytest.mark.parametrize("band", [EPOCH, OLD])
def test_take_beyond_the_amount_or_into_the_reserve_is_impossible(
    band: int, spent: int, taken: int, reserve: int, possible: bool
) -> None:
    """A reserve is what must remain for requests with a higher priority."""
    seen = view(spent, band=band)
    possible = possible if band == EPOCH else taken + reserve <= 10
    write = quota.take(seen, taken, reserve)

    assert possible is (write is not None)
    if isinstance(write, QuotaAdd):
        assert FULL - 10 + taken + reserve == write.low


def test_take_with_a_settlement_counts_both() -> None:
    """A debit must fit together with the take, and a credit makes room for it."""
    assert QuotaAdd(-5, FULL - 5, FULL) == quota.take_and_settle(view(spent=4), 3, 2, 0)
    assert QuotaAdd(1, FULL - 10 + 3 - 4, FULL - 4) == quota.take_and_settle(view(spent=10), 3, 0, 4)
    assert quota.take_and_settle(view(spent=6), 3, 2, 0) is None
    assert quota.take_and_settle(view(band=OLD), 3, 0, 1) is None


def test_debit_that_does_not_fit_the_band_is_cut() -> None:
    """A saturated quota stays so: it has lost count, and gives nothing back."""
    least = FULL - MOST_SPENT
    seen = view(spent=MOST_SPENT - 1)

    cut = quota.debit(seen, 5)

    assert least == after(cut, seen.qk) == after(cut, least)
    assert not admits(cut, least + 5)
    assert least == after(quota.debit(view(spent=MOST_SPENT), 5), least)
    assert not admits(quota.credit(EPOCH, 5), least)
    assert admits(quota.credit(EPOCH, 5), least + 1)


@given(st.integers(0, MOST_SPENT), st.integers(1, MAX_QUOTA))
def test_debit_decided_on_what_is_stored_is_applied_and_stays_in_its_band(spent: int, debit: int) -> None:
    """Nothing that is charged reaches another epoch."""
    seen = view(spent)

    stored = after(quota.debit(seen, debit), seen.qk)

    assert EPOCH == epoch_of(stored)
    assert min(spent + debit, MOST_SPENT) == FULL - stored


def test_debit_in_a_new_epoch_is_charged_to_it() -> None:
    """Charging the epoch of the take would make a lease that spans an edge free."""
    assert FULL - 4 == after(quota.debit(view(band=OLD), 4), -BAND * OLD)


def test_credit_is_applied_only_in_the_epoch_that_was_charged() -> None:
    """It never crosses an edge, and never makes more than the amount."""
    write = quota.credit(EPOCH, 4)

    assert FULL - 6 == after(write, FULL - 10)
    assert not admits(write, FULL - 3)
    assert not admits(write, FULL - BAND)
    assert not admits(write, -BAND * OLD - 10)


def test_soft_debits_and_credits_of_a_group_are_one_write() -> None:
    """They are written separately if the view is of an older epoch."""
    assert QuotaAdd(-2, FULL - MOST_SPENT + 6, FULL - 3) == quota.debit_and_credit(view(spent=4), 5, 3)
    assert quota.debit(view(spent=4), 5) == quota.debit_and_credit(view(spent=4), 5, 0)
    assert quota.debit_and_credit(view(band=OLD), 5, 3) is None


def test_credit_goes_to_the_charged_shard_first_and_then_where_there_is_room() -> None:
    """The newest epoch gets it before older ones; what belongs to an ended epoch is lost."""
    numbers = {0: FULL - 3, 1: FULL - 9, 2: -BAND * OLD - 50, 3: FULL - MOST_SPENT}
    charged = {(0, EPOCH): 5, (2, OLD): 4, (7, OLD - 2): 8}

    assert {0: (EPOCH, 3), 1: (EPOCH, 2), 2: (OLD, 4)} == quota.share_credit(charged, 20, numbers)
    assert {0: (EPOCH, 2)} == quota.share_credit(charged, 2, numbers)
    assert {} == quota.share_credit(charged, 0, numbers)
    assert {} == quota.share_credit({}, 5, numbers)


def test_changed_schedule_keeps_what_was_spent() -> None:
    """A change never refills."""
    seen = view(spent=4)
    write = quota.rebase_schedule(seen, 2, 8, BEGIN_S + 100)
    assert write is not None

    stored = after(write, seen.qk)

    assert EPOCH + 201 == epoch_of(stored)
    assert 6 == -BAND * epoch_of(stored) - stored
    assert not admits(write, FULL - 7)
    assert quota.rebase_schedule(seen, 5, 8, BEGIN_S) is None
    assert quota.rebase_schedule(seen, None, 1, BEGIN_S) is not None


def test_changed_schedule_of_an_older_epoch_begins_full() -> None:
    """The edge before the change has refilled it."""
    write = quota.rebase_schedule(view(spent=9, band=OLD), 2, 8, BEGIN_S + 100)
    assert write is not None

    assert -BAND * (EPOCH + 201) - 2 == after(write, -BAND * OLD - 9)


@pytest.mark.parametrize(("spent", "recorded"), [(4, 9), (MOST_SPENT - 2, MOST_SPENT)])
def test_changed_schedule_of_a_soft_quota_charges_without_asking(spent: int, recorded: int) -> None:
    """It may be beyond the amount, and is cut at the end of the band."""
    seen = view(spent)

    stored = after(quota.rebase_soft(seen, 5, BEGIN_S), seen.qk)

    assert recorded == -BAND * epoch_of(stored) - stored
    assert isinstance(quota.rebase_soft(view(band=OLD), 5, BEGIN_S), QuotaSet)


def test_removed_quota_stays_until_its_epoch_has_ended() -> None:
    """Removing and adding a limit is no refill."""
    assert quota.least_to_drop(view(spent=1)) is None
    assert view(band=OLD).least_of_older == quota.least_to_drop(view(band=OLD))


@given(st.integers(0, 2**40), st.integers(1, 2**40), st.booleans())
def test_split_and_merge_keep_the_level(spent: int, capacity: int, older: bool) -> None:
    """Both shards together offer what the one offered, and merging them gives it back."""
    seen = view(spent, capacity, OLD if older else EPOCH)
    small = capacity // 2
    found = quota.split(seen, small)
    assert found is not None
    big = QuotaView(after(found.old_write, seen.qk), EPOCH, capacity - small, TOLERANCE)
    new = QuotaView(found.new_qk, EPOCH, small, TOLERANCE)

    assert seen.level == big.level + new.level
    assert 0 <= new.spent
    assert 0 <= big.spent
    merged = quota.merge(big, new)
    assert merged is not None
    assert (new.qk, new.qk) == (merged.low, merged.high)
    assert seen.level == capacity + after(merged.staying_write, big.qk) - FULL


def test_merge_of_shards_in_different_epochs_is_in_the_later_one() -> None:
    """A shard that was not written since the edge is full."""
    later = EPOCH + 5
    merged = quota.merge(view(spent=3, band=OLD), view(spent=4, band=later, epoch=later))
    assert merged is not None

    assert -BAND * later - 4 == after(merged.staying_write, -BAND * OLD)
    unwritten = quota.merge(view(spent=3), view(spent=4, band=OLD))
    assert unwritten is not None
    assert FULL - 3 == after(unwritten.staying_write, FULL - 3)
    assert unwritten.high is None


def test_saturated_quota_is_neither_split_nor_merged() -> None:
    """It would no longer be known that it has lost count."""
    assert quota.split(view(MOST_SPENT), 5) is None
    assert quota.merge(view(MOST_SPENT - 1), view(1)) is None


def test_reset_fills_all_shards_in_one_later_epoch() -> None:
    """Shards may have been in different epochs, and a reset that was made since is kept."""
    views = [view(3), view(4, band=EPOCH + 1, epoch=EPOCH + 1)]
    at_s = BEGIN_S + 20 * 86_400
    writes = quota.reset(views, at_s, period_at(MONTH, at_s))

    assert [2 * at_s + 1] * 2 == [epoch_of(after(one, seen.qk)) for one, seen in zip(writes, views, strict=True)]
    assert not admits(writes[0], -BAND * (EPOCH + 1))


def test_reset_near_an_edge_belongs_to_that_edge() -> None:
    """Another client may compute the edge a little later, and must not refill the quota again."""
    early = period_at(MONTH, BEGIN_S)
    (just_after,) = quota.reset([view(3)], BEGIN_S + 60, early)
    (before,) = quota.reset([view(3, band=OLD, epoch=OLD)], BEGIN_S - 60, period_at(MONTH, BEGIN_S - 60))

    assert EPOCH + 120 == epoch_of(just_after.qk)
    assert EPOCH + 120 == current_epoch(just_after.qk, BEGIN_S + 3_600, TOLERANCE)
    assert EPOCH == current_epoch(before.qk, BEGIN_S, TOLERANCE)


def test_new_quota_is_in_the_period_of_the_latest_time() -> None:
    """What is taken at its creation is spent."""
    assert FULL - 3 == quota.created(BEGIN_S, 3)
    assert HALF_BAND > MAX_QUOTA


def test_view_has_the_epoch_that_its_schedule_and_the_bucket_give() -> None:
    """Another shard may prove that an edge has come."""
    assert QuotaView(FULL - 3, EPOCH, 10, TOLERANCE) == quota.view_at(FULL - 3, 10, MONTH, BEGIN_S)
    assert EPOCH == quota.view_at(-BAND * OLD, 10, MONTH, BEGIN_S).epoch
    assert EPOCH > quota.view_at(-BAND * OLD, 10, MONTH, BEGIN_S - 1).epoch
    assert EPOCH == quota.view_at(-BAND * OLD, 10, MONTH, BEGIN_S - 1, [FULL]).epoch


def test_quota_renews_at_the_next_edge() -> None:
    """If the bucket has taken that edge already, it is the edge after it."""
    end_s = period_at(MONTH, BEGIN_S)[1]
    following_s = period_at(MONTH, end_s)[1]

    assert end_s == quota.renews_s(view(3), MONTH, BEGIN_S)
    assert end_s == quota.renews_s(view(3, band=EPOCH + 7, epoch=EPOCH + 7), MONTH, BEGIN_S)
    early = 2 * end_s - 4
    assert following_s == quota.renews_s(view(3, band=early, epoch=early), MONTH, BEGIN_S)
