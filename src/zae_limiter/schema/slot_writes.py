"""Describe the writes to limits of other kinds than enforced rate limits, and to slots in particular.

``bucket_writes`` calls these functions: a write of a bucket changes its limits of all kinds together.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zae_limiter.core.acquire import MixedTake
from zae_limiter.core.add_or_set import Add
from zae_limiter.core.slots import Cohorts, SlotRelease, SlotRenewal
from zae_limiter.schema import attributes
from zae_limiter.schema.bucket_item import BucketView, StoredLayout
from zae_limiter.schema.operations import AbsentOrAtMost, AtLeast, AtMost, Condition, Equals, Ranges, Update


def take(
    view: BucketView,
    taking: MixedTake,
    add: dict[str, int],
    put: dict[str, Any],
    ranges: list[tuple[str, int, int | None]],
) -> Update:
    """Return the write that takes from a bucket with limits of several kinds.

    The other arguments take from its enforced rate limits.
    """
    layout = view.layout
    removed: list[str] = []
    when: list[Condition] = [layout.guard]
    for part, _, _ in taking.tracked:
        balance_name = layout.balance_names[part.position]
        add[layout.total_names[part.position]] = part.spent
        if isinstance(part, Add):
            add[balance_name] = part.change
        else:
            put[balance_name] = part.balance
        # A soft limit that only counts has no bounds.
        if part.low is not None:
            ranges.append((balance_name, part.low, part.high))
    for slots in taking.slots:
        balance_name = layout.balance_names[slots.position]
        name = layout.shared.shares[slots.position].name
        add[balance_name] = slots.change
        add[layout.total_names[slots.position]] = slots.taken
        add[attributes.cohort_attribute(name, slots.end_s)] = slots.taken
        if slots.low is not None:
            ranges.append((balance_name, slots.low, None))
        remove_cohorts(name, slots.expired, removed, when)
    if taking.expires_s is None:
        removed.append(attributes.TTL)
    else:
        put[attributes.TTL] = taking.expires_s
        # Hazard: an item that expired would forget slots that are in use. So a take that arrives late must not bring
        # the expiry forward.
        when.append(AbsentOrAtMost(attributes.TTL, taking.expires_s))
        ranges += [(layout.balance_names[position], floor, None) for position, floor in taking.solvent]
    if ranges:
        when.append(Ranges(ranges))
    return Update(layout.key, add, put, tuple(removed), tuple(when))


def remove_cohorts(name: str, cohorts: Cohorts, removed: list[str], when: list[Condition]) -> None:
    """Remove cohorts of a limit, which must be as they were seen."""
    for end_s, milli in cohorts:
        attribute = attributes.cohort_attribute(name, end_s)
        removed.append(attribute)
        when.append(Equals(attribute, milli) if milli else AbsentOrAtMost(attribute, 0))


def release(releases: Iterable[SlotRelease], add: dict[str, int], when: list[Condition]) -> None:
    """Return slots to a bucket, whose cohorts must have them."""
    for name, end_s, milli in releases:
        balance, cohort = attributes.bucket_attribute(name, attributes.TOKENS), attributes.cohort_attribute(name, end_s)
        # One limit may release slots of several cohorts.
        add[balance] = add.get(balance, 0) + milli
        add[cohort] = -milli
        when.append(AtLeast(cohort, milli))


def renew(view: BucketView, renewals: Sequence[SlotRenewal], expires_s: int | None, nonce: int) -> Update:
    """Return the write that moves slots in use to a later end. The expiry moves with them, if there is one."""
    layout = view.layout
    add = {attributes.WRITE_COUNTER: 1}
    put: dict[str, Any] = {attributes.NONCE: nonce}
    when: list[Condition] = [Equals(attributes.SHARD_COUNT, layout.shard_count)]
    if layout.birth is not None:
        when.append(Equals(attributes.BIRTH, layout.birth))
    for name, end_s, later_s, milli in renewals:
        before, after = (attributes.cohort_attribute(name, one) for one in (end_s, later_s))
        add[before] = add.get(before, 0) - milli
        add[after] = add.get(after, 0) + milli
        when.append(AtLeast(before, milli))
    if expires_s is None:
        return Update(layout.key, add, put, (), tuple(when))
    put[attributes.TTL] = expires_s
    # Hazard: an expiry that was removed since must stay removed, because the bucket may be in debt.
    when.append(AtMost(attributes.TTL, expires_s))
    return Update(layout.key, add, put, (), tuple(when))


def moved_cohorts(layout: StoredLayout, cohorts: Mapping[int, Cohorts]) -> list[SlotRelease]:
    """Return the cohorts that a split or a merge moves, by the names of their limits."""
    shares = layout.shared.shares
    return [SlotRelease(shares[at].name, end_s, milli) for at, moved in cohorts.items() for end_s, milli in moved]
