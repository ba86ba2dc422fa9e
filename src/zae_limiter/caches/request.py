"""Requests for tokens and what comes of them, as values."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from zae_limiter.caches.buckets import BucketId, ChainLink, Remembered
from zae_limiter.core.acquire import NextStep, Progress, amounts_of, requested_amounts
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.levels import LevelOfLimit, lacks, limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import Reserve, require_room
from zae_limiter.core.slots import Claim, by_shard, divided, taken_from
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.tracked import (
    AdmittedMixed,
    EpochCharge,
    charges_left,
    divided_charges,
    is_tracked,
    refunds_of,
    with_charges,
)
from zae_limiter.core.view import NO_LIMITS, Admitted, Amounts, EffectiveLimits
from zae_limiter.schema.bucket_item import BucketView

_SURE_MS = 20
"""Bounds of the time that are at most this many milliseconds apart are close enough."""


@dataclass(frozen=True, slots=True)
class FallbackLimits:
    """The limits that a caller passes, for an ancestor: they apply if no limits are stored for it."""

    limits: Sequence[Limit]


OwnLimits = Sequence[Limit] | FallbackLimits | None
"""Limits that a caller passes instead of the stored ones; None for the stored ones."""


class AcquireRequest(NamedTuple):
    """The amounts that a caller requests of one bucket.

    ``own`` are limits of the caller that replace stored ones, or apply if there are none. ``until_s`` is the deadline
    on the monotonic clock. ``partly``: limits that the bucket lacks are ignored. ``known`` are limits that were just
    read for it; None for cached ones. ``reserve`` is what it must leave; None if it may take everything.
    """

    bucket: BucketId
    consume: dict[str, int]
    own: OwnLimits
    until_s: float
    partly: bool = False
    known: "Evaluated | None" = None
    reserve: Reserve | None = None

    def amounts(self, terms: EffectiveLimits) -> Amounts:
        """Return the amounts by position among these limits.

        Raises:
            ValidationError: An amount is invalid.
            AmountExceedsCapacityError: An amount can never be admitted.
        """
        amounts = amounts_of(self.consume, terms) if not self.partly else partial_amounts(self.consume, terms)
        if self.reserve is not None:
            check_reserve(amounts, terms, self.reserve)
        return amounts

    def requested(self, terms: EffectiveLimits) -> Amounts:
        """Return the amounts by position of the limits that the bucket has, even if they can never be admitted."""
        return requested_amounts(self.consume, terms)


def partial_amounts(consume: dict[str, int], terms: EffectiveLimits) -> Amounts:
    """Return the amounts by position of those limits that the bucket has.

    Raises:
        ValidationError: An amount is invalid, or can never be admitted.
    """
    positions = terms.positions
    return amounts_of({name: amount for name, amount in consume.items() if name in positions}, terms)


def check_reserve(amounts: Amounts, terms: EffectiveLimits, reserve: Reserve) -> None:
    """Require that each amount fits into its capacity together with the reserve that it must leave.

    Raises:
        AmountExceedsCapacityError: An amount can never be admitted. Its statuses are empty.
    """
    for position, milli in amounts:
        require_room(terms.limits[position], milli // 1000, reserve, "consume")


class Evaluated(NamedTuple):
    """The limits that a request is judged by, and the progress made for it so far."""

    terms: EffectiveLimits
    progress: Progress


class Plan(NamedTuple):
    """A request to one bucket that its cached view does not reject, and the first step to carry it out.

    ``step`` is None if the bucket has several shards. ``until_s`` None: the client's deadline from now on.
    ``reserve`` is what the request must leave; None if it may take everything.
    """

    bucket: BucketId
    consume: dict[str, int]
    own: OwnLimits
    until_s: float | None
    partly: bool
    memory: Remembered
    view: BucketView | None
    terms: EffectiveLimits
    amounts: Amounts
    step: NextStep | None
    now: TimeBounds
    progress: Progress
    reserve: Reserve | None = None


@dataclass(slots=True)
class Rejected:
    """A request that a bucket lacks the tokens for, judged at the time ``judged``, and the time now.

    ``known_levels`` are the levels of its limits. None: they follow from ``seen_view``, which is None for a new bucket.
    Levels and statuses are made when they are read: under overload most callers read neither. ``reserve`` is what the
    request had to leave; None if it could take everything.
    """

    bucket: BucketId
    terms: EffectiveLimits
    seen_view: BucketView | None
    amounts: Amounts
    judged: TimeBounds
    now: TimeBounds
    known_levels: Sequence[LevelOfLimit] | None = None
    reserve: Reserve | None = None

    @property
    def levels(self) -> Sequence[LevelOfLimit]:
        """The level of each limit in force."""
        return self.known_levels or limit_levels(self.seen_view, self.terms, self.judged)

    @property
    def spare_levels(self) -> Sequence[LevelOfLimit]:
        """What the request could take of each limit in force: its level above the reserve."""
        levels, reserve = self.levels, self.reserve
        return levels if reserve is None else [level.above(reserve) for level in levels]

    def statuses(self) -> list[LimitStatus]:
        """Return the status of every limit of the bucket."""
        return statuses(self.bucket, self.levels, self.amounts, self.judged, self.now, self.reserve)

    def depends_on_the_clock(self) -> bool:
        """Say whether the request would be admitted at the latest time that it may be now."""
        early, late = self.now
        if late - early <= _SURE_MS:
            return False
        levels = self.spare_levels
        return not any(lacks(levels[position], milli, (late, late)) for position, milli in self.amounts)


class HeldBucket(NamedTuple):
    """A bucket that was taken from, what admitted the take, and the names of the limits that it has.

    ``counted`` are the limits whose use was only counted, because of a bypass; None if there is no bypass. ``missing``
    are amounts that the lease holds, but that only its other buckets gave; None if there are none.
    """

    bucket: BucketId
    admitted: Admitted
    names: Collection[str]
    counted: Collection[str] | None = None
    missing: Mapping[str, int] | None = None

    def gave(self, consumed: Mapping[str, int]) -> dict[str, int]:
        """Return what the bucket gave of the amounts that the lease holds."""
        missing = self.missing or {}
        return {name: max(0, amount - missing.get(name, 0)) for name, amount in consumed.items() if name in self.names}

    def charge(self, changes: dict[str, int], consumed: Mapping[str, int]) -> "Charge":
        """Return the changes that are settled with this bucket: it never gets back more than it gave."""
        if self.missing is None:
            return Charge(self, changes)
        gave = self.gave(consumed)
        return Charge(self, {name: max(amount, -gave.get(name, 0)) for name, amount in changes.items()})

    def settlements(self, changes: dict[str, int], claims: Sequence[Claim] | None = None) -> list[Settlement]:
        """Return what changes in tokens, up or down, mean for this bucket.

        There is one settlement for each shard that gets back slots, or what was taken from quotas or soft limits.
        ``claims`` are the slots that are given back. If it is None, they are those that the take has claimed.
        """
        admitted = self.admitted
        if not claims and not isinstance(admitted, AdmittedMixed):
            only = self.settlement(changes)
            return [] if only is None else [only]
        charges = admitted.charges if isinstance(admitted, AdmittedMixed) else ()
        back = {name: -amount for name, amount in changes.items() if amount < 0 and name in self.names}
        if claims is None:
            claims = taken_from(admitted.claims, back)[0] if isinstance(admitted, AdmittedMixed) else ()
        limits = admitted.terms.limits
        slots = {limit.name for limit in limits if limit.hold_seconds}
        tracked = _tracked_names(admitted)
        refunds = refunds_of(charges, [name for name in back if name in tracked], back)
        releases = by_shard(claims)
        apart = slots | (tracked & back.keys())
        rest = self.settlement({name: amount for name, amount in changes.items() if name not in apart})
        found: list[Settlement] = []
        for shard in {**releases, **refunds}:
            # The rest is settled with the first shard, in the same write.
            settlement = rest or Settlement(birth=admitted.birth)
            bound = replace(settlement, releases=releases.get(shard, ()), refunds=refunds.get(shard, ()), shard=shard)
            found.append(bound)
            rest = None
        return [*found, rest] if rest is not None else found

    def less(self, back: Mapping[str, int], consumed: Mapping[str, int]) -> "HeldBucket":
        """Return what is held of the bucket after amounts were given back, of those that the lease holds."""
        admitted = self.admitted
        if not isinstance(admitted, AdmittedMixed) or not admitted.charges:
            return self
        changes = self.charge({name: -amount for name, amount in back.items()}, consumed).changes
        left = charges_left(admitted.charges, {name: -amount for name, amount in changes.items()})
        return self._replace(admitted=admitted.charging(left))

    def only_counted(self, consumed: Mapping[str, int]) -> Collection[str]:
        """Return the soft rate limits that lacked tokens: they were not charged all that the lease holds."""
        admitted = self.admitted
        if not isinstance(admitted, AdmittedMixed):
            return ()
        soft = [limit.name for limit in admitted.terms.limits if limit.kind == "rate" and not limit.enforce]
        if not soft:
            return ()
        gave, charges = self.gave(consumed), admitted.charges
        return [
            name for name in soft if gave.get(name, 0) * 1000 > sum(one.milli for one in charges if one.name == name)
        ]

    def settlement(self, changes: dict[str, int]) -> Settlement | None:
        """Return what changes in tokens, up or down, mean for a bucket without slots; None if nothing changes."""
        mine = [(name, amount * 1000) for name, amount in changes.items() if amount and name in self.names]
        if not mine:
            return None
        # Lists first: a generator costs more than its items here.
        debits = tuple([(name, milli) for name, milli in mine if milli > 0])
        credits = tuple([(name, -milli) for name, milli in mine if milli < 0])
        return Settlement(debits, credits, self.admitted.birth)


def admitted_twice(
    before: HeldBucket, after: HeldBucket, held: Mapping[str, int], taken: Mapping[str, int]
) -> Admitted:
    """Return the result of two takes from a bucket: a lease ``held`` amounts, and has ``taken`` more."""
    names = _tracked_names(before.admitted) | _tracked_names(after.admitted)
    first = _charging_all(before, names, before.gave(held))
    return with_charges(first, _charging_all(after, names, taken))


def _charging_all(one: HeldBucket, names: Collection[str], amounts: Mapping[str, int]) -> Admitted:
    """Return the result of a take, with charges for those limits ``names`` that were not tracked when it was made.

    Hazard: a limit may be soft for one take and enforced for another. What was only counted must not be given back.
    """
    admitted = one.admitted
    found = tuple(
        [
            EpochCharge(0, name, 0, amounts.get(name, 0) * 1000)
            for name in sorted(names)
            if name in one.names and name not in _tracked_names(admitted)
        ]
    )
    if not found:
        return admitted
    claims, charges = (admitted.claims, admitted.charges) if isinstance(admitted, AdmittedMixed) else ((), ())
    return AdmittedMixed(admitted.terms, admitted.birth, claims, charges + found)


def _tracked_names(admitted: Admitted) -> set[str]:
    """Return the limits of which a result says what they were charged."""
    if not isinstance(admitted, AdmittedMixed):
        return set()
    tracked = {limit.name for limit in admitted.terms.limits if is_tracked(limit)}
    return tracked | {charge.name for charge in admitted.charges}


Planned = tuple[ChainLink, BucketView, Amounts]
"""A bucket of a chain, its view, and the amounts to take. A bare tuple, because every acquire makes one per bucket."""


class TakenChain:
    """The buckets of a chain that were taken from, without the first. What is held of each is made when it is read."""

    __slots__ = ("_planned",)

    def __init__(self, planned: Sequence[Planned]) -> None:
        self._planned = planned

    def __iter__(self) -> Iterator[HeldBucket]:
        """Return what is held of each bucket."""
        for link, view, _ in self._planned[1:]:
            yield HeldBucket(link.bucket, view.layout.admitted_by(link.terms), link.terms.positions)


class Charge(NamedTuple):
    """A bucket that was taken from, and changes in tokens, up or down, that are settled with it.

    ``claims`` are the slots that are given back; None for those that the take has claimed.
    """

    held: HeldBucket
    changes: dict[str, int]
    claims: Sequence[Claim] | None = None

    def settlements(self) -> list[Settlement]:
        """Return what the bucket is charged and credited: one settlement for each shard that gets something back."""
        return self.held.settlements(self.changes, self.claims)


def part_of(result: Admitted, consumes: Sequence[Mapping[str, int]]) -> list[Admitted]:
    """Return the result of each request of a take for all of them: each has its part of what was taken."""
    if not isinstance(result, AdmittedMixed):
        return [result] * len(consumes)
    claims, charges = divided(result.claims, consumes), divided_charges(result.charges, consumes)
    terms, birth = result.terms, result.birth
    return [AdmittedMixed(terms, birth, *parts) for parts in zip(claims, charges, strict=True)]


class Cascaded(NamedTuple):
    """A request that several buckets have admitted: that of its entity and resource, and all others.

    ``admitted`` is ``NOTHING_TAKEN`` if no limits are in force for the entity and resource, or with a bypass.
    ``others`` then has that bucket too, if it was taken from.
    """

    admitted: Admitted
    others: Iterable[HeldBucket]


R = TypeVar("R")


def with_slots(result: R) -> R | Cascaded:
    """Return the result of a take, as that of several buckets if it has slots: a lease then looks for them."""
    return Cascaded(result, ()) if isinstance(result, AdmittedMixed) and result.claims else result


NOTHING_TAKEN = Admitted(NO_LIMITS, None)
"""The result of a bucket without limits."""


class Owed(NamedTuple):
    """What a lease settles with one bucket, by which limits, and until when on the monotonic clock."""

    bucket: BucketId
    settlement: Settlement
    terms: EffectiveLimits
    until_s: float


def about(unavailable: RateLimiterUnavailable, bucket: BucketId, stack_name: str | None) -> RateLimiterUnavailable:
    """Return the same error with the names of the bucket and the stack that could not be reached."""
    return RateLimiterUnavailable(unavailable.cause, unavailable.stack_name or stack_name, *bucket)


def contended(bucket: BucketId) -> RateLimiterUnavailable:
    """Return the error of a bucket that other clients keep changing."""
    return RateLimiterUnavailable(TimeoutError("other clients kept changing the bucket"), None, *bucket)
