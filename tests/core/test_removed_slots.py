"""Limits of concurrent use: removal and renewal of slots."""

from tests.one_bucket import NOON, OWNER, stored
from zae_limiter.core.limit import Limit
from zae_limiter.core.rebase import Rebasing, rebase
from zae_limiter.core.slots import SlotRenewal, renewed_together
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.bucket_writes import Signature

SLOTS = Limit.concurrent("slots", 1, hold_seconds=5)
RPM = Limit.per_minute("rpm", 60)


def test_removed_limit_with_a_slot_in_use_stays_dormant_though_the_baseline_is_later() -> None:
    """Whether a slot has ended is decided at the earliest time, not at a baseline in the future."""
    item = dict(bucket_writes.create(OWNER, stored(SLOTS, RPM), {}, NOON + 20_000, Signature(1, 1)).item)
    item |= {"b_slots_tk": 0, f"b_slots_h{NOON // 1000 + 6}": 1000}

    rebasing = rebase(view_of(item, NOON, None), stored(RPM, stamp=2), (), (NOON, NOON))

    assert isinstance(rebasing, Rebasing)
    assert (1, []) == (len(rebasing.dormant), rebasing.freed)


def test_renewals_of_one_cohort_to_two_ends_become_one_to_the_later_end() -> None:
    """A cohort is renewed by its sum, because a condition on each part would not require the sum."""
    parts = [SlotRenewal("slots", 100, 106, 1000), SlotRenewal("slots", 100, 130, 2000), SlotRenewal("u", 100, 106, 1)]

    assert (SlotRenewal("slots", 100, 130, 3000), SlotRenewal("u", 100, 106, 1)) == renewed_together(parts)
