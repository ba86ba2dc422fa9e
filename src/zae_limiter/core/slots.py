"""Decide about limits of concurrent use: who holds slots until when, and which of them are free again.

The balance of such a limit is the number of free slots. It earns nothing. Slots in use are counted in *cohorts* by
their end. Slots that are taken at about the same time have the same end. If no lease renews them, they are returned
together. On every item, the balance and all cohorts add up to the shard's share of the capacity.

A cohort has *expired* once its end has passed at the earliest possible time. The next take adds expired cohorts to the
balance and removes them, in the same write.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core.bucket import LimitShare, OfShare, TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import LevelAbove, Reserve, level_above
from zae_limiter.core.view import Amounts, F, View

Cohorts = tuple[tuple[int, int], ...]
"""The slots of one limit that are in use: the end in seconds since the epoch, and millislots, by end."""

LOCAL_TRUST_MS = 150
"""A view that is older may not reject a request for slots without a read: slots are returned at any time."""


class Claim(NamedTuple):
    """Slots that a lease holds on one shard, in millislots, and when they end, in seconds since the epoch."""

    shard: int
    name: str
    end_s: int
    milli: int


@dataclass(slots=True)
class SlotTake:
    """How slots of one limit are taken.

    The write adds ``change`` to the balance if that is at least ``low``, which is None for a soft limit. It adds
    ``taken`` to the cohort that ends at ``end_s``. It removes ``expired`` cohorts, which must be as they were seen.
    """

    position: int
    taken: int
    low: int | None
    change: int
    end_s: int
    expired: Cohorts


class SlotRelease(NamedTuple):
    """Slots of one limit that a lease returns, in millislots, and the end of their cohort."""

    name: str
    end_s: int
    milli: int


class SlotRenewal(NamedTuple):
    """Slots of one limit that stay in use: the end of their cohort, the later end, and millislots."""

    name: str
    end_s: int
    later_s: int
    milli: int


@dataclass(slots=True)
class MixedView(View[F]):
    """A view of a bucket with limits of several kinds: slots, quotas or soft limits beside enforced rate limits.

    ``cohorts`` are the slots in use, by position of the limit. ``expires_s`` is when the item may expire, None if it
    never does.
    """

    cohorts: Mapping[int, Cohorts]
    expires_s: int | None

    def level(self, position: int, at_ms: int) -> int:
        """Return what is available of a limit, in millitokens; a negative level is debt."""
        return self.balance_at(position, at_ms) if position in self.cohorts else View.level(self, position, at_ms)

    def balance_at(self, position: int, at_ms: int) -> int:
        """Return the free slots of a limit, in millislots: those that are returned, and those that have expired."""
        over = expired(self.cohorts[position], at_ms)
        return self.numbers[position] + sum([milli for _, milli in over]) if over else self.numbers[position]

    def after(self, takes: Sequence[SlotTake]) -> "MixedView[F]":
        """Return the view after takes that were not answered yet, as if all were applied."""
        numbers, cohorts = list(self.numbers), dict(self.cohorts)
        for one in takes:
            before = dict(cohorts[one.position])
            # Another take may have removed them already; then the balance has them.
            gone = sum(before.pop(end_s, 0) for end_s, _ in one.expired)
            numbers[one.position] += gone - one.taken
            before[one.end_s] = before.get(one.end_s, 0) + one.taken
            cohorts[one.position] = tuple(sorted(before.items()))
        return MixedView(self.layout, tuple(numbers), self.seen_ms, self.pace, cohorts, self.expires_s)


def cohort_end_s(limit: Limit, at_ms: int) -> int:
    """Return the end of the cohort that slots join which are taken or renewed at ``at_ms``, in seconds."""
    # Rounded up: a slot is held for at least its hold, and at most half as long more.
    hold_s = limit.hold_seconds
    # The same as ``limit.cohort_seconds``, without the call: every take of a slot does this.
    width_s = (hold_s + 1) // 2
    return -(-(at_ms + hold_s * 1000) // (width_s * 1000)) * width_s


def expired(cohorts: Cohorts, at_ms: int) -> Cohorts:
    """Return the cohorts that have ended at ``at_ms``; they are sorted by their end."""
    if not cohorts or cohorts[0][0] * 1000 > at_ms:
        return ()
    return tuple([one for one in cohorts if one[0] * 1000 <= at_ms])


def in_use(cohorts: Cohorts, at_ms: int) -> int:
    """Return how many slots are in use at ``at_ms``, in millislots."""
    return sum(milli for end_s, milli in cohorts if end_s * 1000 > at_ms)


def take_slots(view: MixedView[Any], amounts: Amounts, now: TimeBounds) -> tuple[Amounts, list[SlotTake]] | None:
    """Return the other amounts of a request, and how its slots are taken; None if too few are free."""
    rest: list[tuple[int, int]] = []
    takes: list[SlotTake] = []
    shares = view.layout.shared.shares
    for position, taken in amounts:
        cohorts = view.cohorts.get(position)
        if cohorts is None or not taken:
            rest.append((position, taken))
            continue
        over = expired(cohorts, now[0])
        returned = sum([milli for _, milli in over]) if over else 0
        limit = shares[position].limit
        if limit.enforce and taken > view.numbers[position] + returned:
            return None
        low = taken - returned if limit.enforce else None
        takes.append(SlotTake(position, taken, low, returned - taken, cohort_end_s(limit, now[1]), over))
    return rest, takes


def claims_of(shard: int, limits: Sequence[Limit], amounts: Amounts, at_ms: int) -> tuple[Claim, ...]:
    """Return what a take of these amounts at ``at_ms`` claims of the limits of concurrent use."""
    return tuple(
        [
            Claim(shard, limits[position].name, cohort_end_s(limits[position], at_ms), milli)
            for position, milli in amounts
            if milli and limits[position].hold_seconds
        ]
    )


def claimed(shard: int, shares: Sequence[LimitShare], takes: Sequence[SlotTake]) -> tuple[Claim, ...]:
    """Return what the applied takes of one shard claim."""
    return tuple([Claim(shard, shares[one.position].name, one.end_s, one.taken) for one in takes])


def divided(claims: Sequence[Claim], consumes: Sequence[Mapping[str, int]]) -> list[tuple[Claim, ...]]:
    """Return each request's part of what was claimed for all of them together."""
    left = list(claims)
    return [_part_of(left, consume) for consume in consumes]


def _part_of(left: list[Claim], consume: Mapping[str, int]) -> tuple[Claim, ...]:
    """Remove a request's part from the claims that are left, and return it."""
    found: list[Claim] = []
    for name, amount in consume.items():
        needed = amount * 1000
        for index, claim in enumerate(left):
            part = min(needed, claim.milli) if claim.name == name else 0
            if part:
                found.append(claim._replace(milli=part))
                left[index] = claim._replace(milli=claim.milli - part)
                needed -= part
    return tuple(found)


def taken_from(claims: Sequence[Claim], amounts: Mapping[str, int]) -> tuple[list[Claim], list[Claim]]:
    """Return the claims that are given up for these amounts, those that end first, and the claims that stay."""
    left = sorted(claims, key=lambda claim: claim.end_s)
    gone = _part_of(left, amounts)
    return list(gone), [claim for claim in left if claim.milli]


def by_shard(claims: Sequence[Claim]) -> dict[int, tuple[SlotRelease, ...]]:
    """Return what claims release on each shard; slots that end together are one sum."""
    sums: dict[int, dict[tuple[str, int], int]] = {}
    for claim in claims:
        of_shard = sums.setdefault(claim.shard, {})
        key = claim.name, claim.end_s
        of_shard[key] = of_shard.get(key, 0) + claim.milli
    return {
        shard: tuple([SlotRelease(name, end_s, milli) for (name, end_s), milli in found.items()])
        for shard, found in sums.items()
    }


def not_ended(releases: Sequence[SlotRelease], at_ms: int) -> tuple[SlotRelease, ...]:
    """Return the releases of slots that have not ended at ``at_ms``; the others may belong to another holder by now."""
    return tuple([one for one in releases if one.end_s * 1000 > at_ms])


def renewed_together(renewals: Sequence[SlotRenewal]) -> tuple[SlotRenewal, ...]:
    """Return renewals in which slots that end together get one later end, the latest of them.

    Leases may differ in their hold, if it was changed while they were open. Hazard: a cohort that is renewed in two
    parts would have to contain each part, but not their sum.
    """
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for name, end_s, later_s, milli in renewals:
        latest_s, sum_milli = sums.get((name, end_s), (later_s, 0))
        sums[name, end_s] = max(latest_s, later_s), sum_milli + milli
    return tuple([SlotRenewal(*key, later_s, milli) for key, (later_s, milli) in sums.items()])


def releases_fit(view: MixedView[Any], releases: Sequence[SlotRelease]) -> bool:
    """Return whether a shard has all cohorts that a settlement releases, with at least as many slots."""
    for name, end_s, milli in releases:
        position = view.layout.position(name)
        if dict(view.cohorts.get(-1 if position is None else position, ())).get(end_s, 0) < milli:
            return False
    return True


def released_across(views: Mapping[int, View[Any]], releases: Sequence[SlotRelease]) -> dict[int, list[SlotRelease]]:
    """Return what each shard releases of cohorts that a split or a merge has moved, as far as any shard has them."""
    parts: dict[int, list[SlotRelease]] = {}
    for name, end_s, milli in releases:
        left = milli
        for shard, view in views.items():
            position = view.layout.position(name)
            if not isinstance(view, MixedView) or position is None:
                continue
            part = min(left, dict(view.cohorts.get(position, ())).get(end_s, 0))
            if part > 0:
                parts.setdefault(shard, []).append(SlotRelease(name, end_s, part))
                left -= part
    return parts


def item_expiry_s(view: View[Any], expires_s: int | None) -> int | None:
    """Return when an item with slots may expire: never earlier than another client has stored."""
    if expires_s is None or not isinstance(view, MixedView):
        return expires_s
    # Rounded up to a minute, so that takes of the same minute store the same time.
    expires_s = -(-expires_s // 60) * 60
    return expires_s if view.expires_s is None else max(expires_s, view.expires_s)


@dataclass(slots=True)
class SlotLevel(OfShare):
    """The free slots of one limit, on one shard, as the next request would find them."""

    share: LimitShare
    balance_milli: int
    cohorts: Cohorts

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact: slots are returned at any time."""
        return False

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return the slots that are in use now."""
        return in_use(self.cohorts, now[0])

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return None: slots are returned one by one."""
        return None

    def available_milli(self, now: TimeBounds) -> int:
        """Return the free slots."""
        return self.balance_milli + sum(milli for _, milli in expired(self.cohorts, now[0]))

    def less(self, milli: int, at: TimeBounds) -> "SlotLevel":
        """Return the limit after a take of ``milli`` millislots."""
        return SlotLevel(self.share, self.balance_milli - milli, self.cohorts) if milli else self

    def full_ms(self) -> int:
        """Return the millisecond at which all slots are free if nothing is taken or renewed."""
        return max([end_s * 1000 for end_s, _ in self.cohorts], default=0)

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until so many slots are free at the latest, if no lease renews its slots."""
        free = self.balance_milli
        if not needed_milli or free >= needed_milli:
            return 0
        for end_s, milli in self.cohorts:
            free += milli
            if free >= needed_milli:
                return max(0, end_s * 1000 - now[0])
        return max(0, self.full_ms() - now[0])

    def above(self, reserve: Reserve) -> LevelAbove:
        """Return what the limit has above a reserve."""
        return level_above(self, self.share, reserve)
