"""Decide about *tracked* limits: quotas and soft rate limits. A lease remembers what each of them has charged.

A quota gives back only to the epoch that was charged. A soft limit may have counted without charging, and then it gives
nothing back. So an amount alone does not say what a credit is.

Amounts of all kinds are in thousandths. A quota stores whole units, so its rows in ``quota`` get whole units.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core import quota
from zae_limiter.core.add_or_set import Add, Effort, Part, Reset
from zae_limiter.core.bucket import LimitShare, TimeBounds
from zae_limiter.core.calendar import period_at
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.quota import BAND, HALF_BAND, QuotaAdd, QuotaView, QuotaWrite
from zae_limiter.core.slots import Claim, MixedView, SlotTake, claims_of, take_slots
from zae_limiter.core.view import Admitted, Amounts, EffectiveLimits, View


class EpochCharge(NamedTuple):
    """What a take has charged to one epoch of a quota, on one shard; the epoch of a soft rate limit is 0."""

    shard: int
    name: str
    epoch: int
    milli: int


class Refund(NamedTuple):
    """What a lease gives back of one limit: ``milli`` were charged to an epoch, and ``counted`` were counted."""

    name: str
    epoch: int
    milli: int
    counted: int


@dataclass(frozen=True, slots=True)
class AdmittedMixed(Admitted):
    """A take that was admitted by a bucket with limits of several kinds.

    ``claims`` are the slots that it took, and ``charges`` what it has charged to tracked limits. A soft limit that only
    counted has no charge.
    """

    claims: tuple[Claim, ...]
    charges: tuple[EpochCharge, ...]

    def charging(self, charges: tuple[EpochCharge, ...]) -> "AdmittedMixed":
        """Return the same result with other charges."""
        return AdmittedMixed(self.terms, self.birth, self.claims, charges)


class Taken(NamedTuple):
    """What a take claims of slots, and charges to tracked limits."""

    claims: tuple[Claim, ...] = ()
    charges: tuple[EpochCharge, ...] = ()

    def admitted(self, terms: EffectiveLimits, birth: int | None) -> AdmittedMixed:
        """Return the result of the take."""
        return AdmittedMixed(terms, birth, self.claims, self.charges)


class TrackedTake(NamedTuple):
    """How a take is written to one tracked limit, the epoch that it is charged to, and what is charged."""

    part: Part
    epoch: int
    charged: int


class TrackedTakes(NamedTuple):
    """How a request is written to tracked limits, and its amounts of other limits.

    ``unsure`` is True if others may have begun the epoch since the view was seen. A read is cheaper than a refusal.
    """

    rest: Amounts
    takes: list[TrackedTake]
    unsure: bool


def is_tracked(limit: Limit) -> bool:
    """Return whether a lease remembers what the limit has charged."""
    return limit.schedule is not None or not (limit.enforce or limit.hold_seconds)


def is_mixed(limits: Iterable[Limit]) -> bool:
    """Return whether there are limits other than enforced rate limits."""
    return any(limit.kind != "rate" or not limit.enforce for limit in limits)


# Takes.


def take_tracked(view: View[Any], amounts: Amounts, now: TimeBounds, effort: Effort) -> TrackedTakes | None:
    """Return how a request is written to tracked limits; None if a quota has too little left."""
    rest: list[tuple[int, int]] = []
    takes: list[TrackedTake] = []
    unsure = False
    shared = view.layout.shared
    for position, milli in amounts:
        if not milli or position not in shared.tracked:
            rest.append((position, milli))
            continue
        is_quota = shared.shares[position].limit.schedule is not None
        one = _take_quota(view, position, milli, now[0]) if is_quota else _take_soft(view, position, milli, now)
        if one is None:
            return None
        unsure = unsure or (is_quota and type(one.part) is Reset and view.pace is not None and not effort.sure)
        takes.append(one)
    return TrackedTakes(rest, takes, unsure)


class MixedParts(NamedTuple):
    """A request to a bucket with limits of several kinds: what is taken of enforced rate limits, and of the others."""

    rest: Amounts
    slots: list[SlotTake]
    tracked: list[TrackedTake]


def take_mixed(view: View[Any], amounts: Amounts, now: TimeBounds, effort: Effort) -> MixedParts | None:
    """Return how a request is written to limits of each kind; None if there are too few slots, or too little left."""
    slots: list[SlotTake] = []
    if isinstance(view, MixedView):
        taken = take_slots(view, amounts, now)
        if taken is None:
            return None
        amounts, slots = taken
    tracked = take_tracked(view, amounts, now, effort)
    return None if tracked is None else MixedParts(tracked.rest, slots, tracked.takes)


def _take_quota(view: View[Any], position: int, milli: int, low_ms: int) -> TrackedTake | None:
    share, qk = view.layout.shared.shares[position], view.numbers[position]
    limit, units, low_s = share.limit, milli // 1000, low_ms // 1000
    if not limit.enforce:
        seen = quota_view(view, position, low_s)
        units = min(units, MAX_QUOTA)
        return TrackedTake(_part(position, milli, quota.debit(seen, units)), seen.epoch, units * 1000)
    epoch = 2 * period_at(limit.schedule, low_s)[0]
    full = -BAND * epoch
    # The same as ``quota.take``, inlined for the usual case: something was spent in the period of the clock already.
    if full - HALF_BAND < qk <= full:
        low = full - share.capacity_milli // 1000 + units
        return TrackedTake(Add(position, milli, -units, low, full), epoch, milli) if qk >= low else None
    seen = quota_view(view, position, low_s)
    write = quota.take(seen, units)
    return None if write is None else TrackedTake(_part(position, milli, write), seen.epoch, milli)


def _take_soft(view: View[Any], position: int, milli: int, now: TimeBounds) -> TrackedTake:
    """Return how a soft rate limit is taken from: it is charged if it has the tokens, and only counts otherwise."""
    baseline, balance = view.layout.baseline(position), view.numbers[position]
    earned, ceiling = baseline.earned(now[0]), baseline.capacity_milli - baseline.earned(now[1])
    if milli > min(baseline.capacity_milli, balance + earned):
        return TrackedTake(Add(position, milli, 0, None, None), 0, 0)
    if balance <= ceiling:
        return TrackedTake(Add(position, milli, -milli, milli - earned, ceiling), 0, milli)
    return TrackedTake(Reset(position, milli, ceiling - milli, max(ceiling, milli - earned)), 0, milli)


def is_at_edge(view: View[Any], now: TimeBounds) -> bool:
    """Return whether a quota may begin a period now, or not: its level is then too low to reject by."""
    shared = view.layout.shared
    low_s, high_s = now[0] // 1000, now[1] // 1000
    return any(period_at(shared.shares[position].limit.schedule, low_s)[1] <= high_s for position in shared.quotas)


def proven(views: Iterable[View[Any]], now: TimeBounds) -> TimeBounds:
    """Return the bounds of the time, with the edges that the stored numbers of several shards prove."""
    numbers = [view.numbers[position] for view in views for position in view.layout.shared.quotas]
    if not numbers:
        return now
    low_ms = max(now[0], quota.known_s(now[0] // 1000, numbers) * 1000)
    return low_ms, max(low_ms, now[1])


def quota_view(view: View[Any], position: int, low_s: int) -> QuotaView:
    """Return one quota of a bucket; ``low_s`` is the earliest second that it may be."""
    share = view.layout.shared.shares[position]
    return quota.view_at(view.numbers[position], share.capacity_milli // 1000, share.limit.schedule, low_s)


def _part(position: int, spent: int, write: QuotaWrite) -> Part:
    if isinstance(write, QuotaAdd):
        return Add(position, spent, write.change, write.low, write.high)
    return Reset(position, spent, write.qk, write.low, write.high)


# What a lease remembers.


def changes_of(view: View[Any], takes: Sequence[TrackedTake]) -> list[tuple[int, int]]:
    """Return what takes in flight change of the balances of tracked limits, by position."""
    parts = [one.part for one in takes]
    return [
        (part.position, part.change if isinstance(part, Add) else part.balance - view.numbers[part.position])
        for part in parts
    ]


def charged(shard: int, shares: Sequence[LimitShare], takes: Sequence[TrackedTake]) -> tuple[EpochCharge, ...]:
    """Return what the applied takes of one shard have charged."""
    return tuple(
        [EpochCharge(shard, shares[one.part.position].name, one.epoch, one.charged) for one in takes if one.charged]
    )


def taken_at_creation(limits: Sequence[Limit], amounts: Amounts, late_ms: int) -> Taken | None:
    """Return what a take claims and charges that creates a bucket; None if all limits are enforced rate limits."""
    if not is_mixed(limits):
        return None
    charges = charged_at_creation([LimitShare.of(limit) for limit in limits], amounts, late_ms)
    return Taken(claims_of(0, limits, amounts, late_ms), charges)


def charged_at_creation(shares: Sequence[LimitShare], amounts: Amounts, late_ms: int) -> tuple[EpochCharge, ...]:
    """Return what a take charges that creates the limits of one shard at ``late_ms``."""
    found = [
        EpochCharge(share.shard, share.name, first_epoch(share.limit, late_ms), charged_from_full(share, milli))
        for share, milli in [(shares[position], milli) for position, milli in amounts]
        if milli and is_tracked(share.limit)
    ]
    return tuple([one for one in found if one.milli])


def charged_from_full(share: LimitShare, milli: int) -> int:
    """Return what a full limit is charged for a use: a soft rate limit that lacks the tokens only counts."""
    if share.limit.schedule is not None:
        return min(milli // 1000, MAX_QUOTA) * 1000
    return 0 if not share.limit.enforce and milli > share.capacity_milli else milli


def first_epoch(limit: Limit, late_ms: int) -> int:
    """Return the epoch of a quota that is created at ``late_ms``, the latest time; 0 for a limit of another kind."""
    return 0 if limit.schedule is None else 2 * period_at(limit.schedule, late_ms // 1000)[0]


def first_balance(share: LimitShare, milli: int, late_ms: int) -> int:
    """Return the stored balance of a limit that is created at ``late_ms``, and charged so many thousandths."""
    schedule = share.limit.schedule
    if schedule is None:
        return share.capacity_milli - milli
    return quota.created(period_at(schedule, late_ms // 1000)[0], milli // 1000)


def balance_from_full(share: LimitShare, milli: int, late_ms: int) -> int:
    """Return the stored balance of a limit that is created at ``late_ms`` by a use of so many thousandths."""
    return first_balance(share, charged_from_full(share, milli) if is_tracked(share.limit) else milli, late_ms)


# Changed limits.


def rebase_quota(view: View[Any], position: int, new: tuple[Limit, int | None], now: TimeBounds) -> TrackedTake | None:
    """Return how a quota moves to a new limit, and is taken from; None if it has too little.

    The amount in ``new`` is None if nothing is taken.
    """
    limit, taken = new
    layout = view.layout
    share = LimitShare.of(limit, layout.shard, layout.shard_count)
    old = layout.shared.shares[position].limit
    seen = replace(quota_view(view, position, now[0] // 1000), capacity=share.capacity_milli // 1000)
    units = None if taken is None else min(taken // 1000, MAX_QUOTA)
    spent, charged_milli = taken or 0, (units or 0) * 1000
    if old.schedule == limit.schedule:
        if not units:
            return TrackedTake(Add(position, 0, 0, None, None), seen.epoch, 0)
        kept = quota.take(seen, units) if limit.enforce else quota.debit(seen, units)
        return None if kept is None else TrackedTake(_part(position, spent, kept), seen.epoch, charged_milli)
    high_s = now[1] // 1000
    moved = (
        quota.rebase_schedule(seen, units, seen.capacity, high_s)
        if limit.enforce
        else quota.rebase_soft(seen, units or 0, high_s)
    )
    if moved is None:
        return None
    return TrackedTake(_part(position, spent, moved), quota.action_epoch(high_s, seen.epoch), charged_milli)


def split_quota(view: View[Any], position: int, new: LimitShare, early_ms: int) -> tuple[int, Part] | None:
    """Return the balance of a quota on the new shard, and the part of the old one; None if it cannot be split."""
    halves = quota.split(quota_view(view, position, early_ms // 1000), new.capacity_milli // 1000)
    return None if halves is None else (halves.new_qk, _part(position, 0, halves.old_write))


def merge_quota(
    staying: View[Any], leaving: View[Any], position: int, early_ms: int
) -> tuple[Part, tuple[int, int | None]] | None:
    """Return the part of a quota that gets what another shard has spent, and the bounds of that one; None: no merge."""
    early_s = early_ms // 1000
    merged = quota.merge(quota_view(staying, position, early_s), quota_view(leaving, position, early_s))
    return None if merged is None else (_part(position, 0, merged.staying_write), (merged.low, merged.high))


def retire_quota(view: View[Any], position: int, early_ms: int) -> int | None:
    """Return the lowest balance with which a removed quota may be dropped; None if it stays, dormant."""
    return quota.least_to_drop(quota_view(view, position, early_ms // 1000))


def divided_charges(
    charges: Sequence[EpochCharge], consumes: Sequence[Mapping[str, int]]
) -> list[tuple[EpochCharge, ...]]:
    """Return each request's part of what was charged for all of them together."""
    left = list(charges)
    return [tuple(_cut(left, consume)) for consume in consumes]


def _cut(left: list[EpochCharge], amounts: Mapping[str, int]) -> list[EpochCharge]:
    """Remove amounts from the charges that are left, and return what was removed."""
    found: list[EpochCharge] = []
    for name, amount in amounts.items():
        needed = amount * 1000
        for index, charge in enumerate(left):
            part = min(needed, charge.milli) if charge.name == name else 0
            if part > 0:
                found.append(charge._replace(milli=part))
                left[index] = charge._replace(milli=charge.milli - part)
                needed -= part
    return found


def with_charges(before: Admitted, after: Admitted) -> Admitted:
    """Return the result of a take, with what a later take from the same bucket has charged too."""
    if not isinstance(after, AdmittedMixed):
        return before
    if not isinstance(before, AdmittedMixed):
        # Nothing was taken before, or the bucket had only enforced rate limits then.
        return AdmittedMixed(before.terms, after.birth if before.birth is None else before.birth, (), after.charges)
    return before.charging(before.charges + after.charges)


def charges_left(charges: Sequence[EpochCharge], back: Mapping[str, int]) -> tuple[EpochCharge, ...]:
    """Return the charges that remain after amounts were given back."""
    left = _newest_first(charges)
    _cut(left, back)
    # A rate limit that was soft once stays tracked: an empty charge says so.
    return tuple([one for one in left if one.milli or not one.epoch])


def refunds_of(
    charges: Sequence[EpochCharge], names: Iterable[str], back: Mapping[str, int]
) -> dict[int, tuple[Refund, ...]]:
    """Return what is given back to each shard of the tracked limits ``names``.

    The newest epoch comes first. What exceeds the charges was only counted, and is taken off the count.
    """
    left = _newest_first(charges)
    default = left[0].shard if left else 0
    found: dict[int, list[Refund]] = {}
    for name in names:
        amount = back.get(name, 0)
        rest = amount * 1000
        for charge in _cut(left, {name: amount}):
            found.setdefault(charge.shard, []).append(Refund(name, charge.epoch, charge.milli, charge.milli))
            rest -= charge.milli
        if rest > 0:
            found.setdefault(default, []).append(Refund(name, 0, 0, rest))
    return {shard: tuple(refunds) for shard, refunds in found.items()}


def _newest_first(charges: Sequence[EpochCharge]) -> list[EpochCharge]:
    return sorted(charges, key=lambda charge: -charge.epoch)


def summed_refunds(refunds: Iterable[Refund]) -> tuple[Refund, ...]:
    """Return refunds in which those of the same limit and epoch are one."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for name, epoch, milli, counted in refunds:
        before = sums.get((name, epoch), (0, 0))
        sums[name, epoch] = before[0] + milli, before[1] + counted
    return tuple([Refund(*key, *amounts) for key, amounts in sums.items()])


# Settlements.


def settle_tracked(view: View[Any], position: int, debit: int, refunds: Sequence[Refund], now: TimeBounds) -> Part:
    """Return how one tracked limit is charged a debit, and gets refunds back, in thousandths."""
    counted = sum(refund.counted for refund in refunds)
    if view.layout.shared.shares[position].limit.schedule is None:
        given = sum(refund.milli for refund in refunds if not refund.epoch)
        return _settle_soft(view, position, debit, (given, counted), now)
    given = sum(refund.milli for refund in refunds if refund.epoch == quota.epoch_of(view.numbers[position])) // 1000
    spent = debit - counted
    if not debit:
        # An epoch that has ended gets nothing back. The use is still taken off the count.
        epoch = quota.epoch_of(view.numbers[position])
        return _part(position, spent, quota.credit(epoch, given)) if given else Add(position, spent, 0, None, None)
    seen, units = quota_view(view, position, now[0] // 1000), min(debit // 1000, MAX_QUOTA)
    write = quota.debit_and_credit(seen, units, given if seen.is_current else 0)
    # A saturated quota gives nothing back.
    return _part(position, spent, write or quota.debit(seen, units))


def take_covered(view: View[Any], part: Add, now_ms: int) -> Part:
    """Return the part of a debit that the shard refuses if its quota lacks it; a soft limit is charged anyway."""
    if not view.layout.shared.shares[part.position].limit.enforce:
        return part
    write = quota.take(quota_view(view, part.position, now_ms // 1000), -part.change)
    # The quota has less than that already. The settlement goes to all shards then.
    return part if write is None else _part(part.position, part.spent, write)


def _settle_soft(view: View[Any], position: int, debit: int, back: tuple[int, int], now: TimeBounds) -> Part:
    """Return how a soft rate limit is settled. It is charged down to a debt of one capacity, and counts the rest."""
    given, counted = back
    if debit <= given:
        return Add(position, debit - counted, given - debit, None, None)
    baseline, balance, owed = view.layout.baseline(position), view.numbers[position], debit - given
    earned, ceiling = baseline.earned(now[0]), baseline.capacity_milli - baseline.earned(now[1])
    charge = min(owed, max(0, min(balance + earned, baseline.capacity_milli) + baseline.capacity_milli))
    if balance > ceiling:
        return Reset(position, debit - counted, ceiling - charge, ceiling + 1)
    low = charge - baseline.capacity_milli - earned if charge else None
    return Add(position, debit - counted, -charge, low, ceiling)


def refunds_fit(view: View[Any], refunds: Sequence[Refund]) -> bool:
    """Return whether a shard has room for what a settlement gives back, or its epoch has ended."""
    given: dict[int, int] = {}
    for name, epoch, milli, _ in refunds:
        position = view.layout.position(name)
        if position is None or not epoch or not milli:
            continue
        band = quota.epoch_of(view.numbers[position])
        if epoch > band:
            return False
        if epoch == band:
            given[position] = given.get(position, 0) + milli // 1000
    return all(_has_room(view.numbers[position], units) for position, units in given.items())


def _has_room(qk: int, units: int) -> bool:
    write = quota.credit(quota.epoch_of(qk), units)
    return write.low <= qk <= write.high


def refunds_across(views: Mapping[int, View[Any]], refunds: Sequence[tuple[int, Refund]]) -> dict[int, list[Refund]]:
    """Return what each shard gets back of charges that a split or a merge has moved; refunds come with their shard."""
    parts: dict[int, list[Refund]] = {}
    for name in {refund.name for _, refund in refunds}:
        mine = [(shard, refund) for shard, refund in refunds if refund.name == name]
        numbers = {
            shard: view.numbers[position]
            for shard, view in views.items()
            if (position := view.layout.position(name)) is not None and position in view.layout.shared.quotas
        }
        if not numbers:
            _add_rate_refunds(views, name, mine, parts)
            continue
        owed: dict[tuple[int, int], int] = {}
        for shard, refund in mine:
            owed[shard, refund.epoch] = owed.get((shard, refund.epoch), 0) + refund.milli // 1000
        left = sum(refund.counted for _, refund in mine)
        for shard, (epoch, units) in quota.share_credit(owed, sum(owed.values()), numbers).items():
            counted = min(left, units * 1000)
            left -= counted
            parts.setdefault(shard, []).append(Refund(name, epoch, units * 1000, counted))
        if left:
            # What has no room any more is still taken off the count, of any shard.
            parts.setdefault(min(numbers), []).append(Refund(name, 0, 0, left))
    return parts


def _add_rate_refunds(
    views: Mapping[int, View[Any]],
    name: str,
    refunds: Sequence[tuple[int, Refund]],
    parts: dict[int, list[Refund]],
) -> None:
    """Add what a rate limit gets back: on the shard that was charged, on another one if that shard was merged."""
    places = [
        shard
        for shard, view in views.items()
        if (position := view.layout.position(name)) is not None and position not in view.layout.shared.slots
    ]
    for shard, refund in refunds if places else ():
        parts.setdefault(shard if shard in places else min(places), []).append(refund)
