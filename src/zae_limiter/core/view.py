"""Describe what a client last saw of a bucket, and what it knows about other clients that use it.

A view is the newest response of the table, reduced to numbers. Apart from credits, other clients
only take from a bucket. So the level of a view is an upper bound. The pace estimates how far below
it the true level is.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from zae_limiter.core.bucket import Baseline, LimitShare
from zae_limiter.core.config import Resolution
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import MAX_LIMITS, Limit, digest

Amounts = Sequence[tuple[int, int]]
"""What a request takes: positions among the limits in force, and millitokens."""

_SHARED = 1024
_HALF_LIFE_MS = 2_000
_MOST_HALVINGS = 60
_SILENCE = 0.01


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """The limits that a client applies to one bucket, and the stamp of the configuration they came from.

    ``limits`` are sorted by name. ``digest`` is empty unless the caller passed the limits.
    ``ttl_multiplier`` is 0 if the bucket must never expire.
    """

    limits: tuple[Limit, ...]
    stamp: int
    digest: str
    ttl_multiplier: int
    positions: Mapping[str, int]
    parent_id: str | None = None
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """A take that was admitted: the limits that it was judged by, and the birth number of the bucket it charged.

    ``birth`` is None if the bucket has no birth number, or if nothing was taken from it.
    """

    terms: EffectiveLimits
    birth: int | None


NO_LIMITS = EffectiveLimits((), -1, "", 0, {})
"""The limits of a bucket that follows no known limits. No bucket has their stamp."""


def effective_limits(
    resolution: Resolution, ttl_multiplier: int, known: EffectiveLimits | None = None
) -> EffectiveLimits | None:
    """Return the effective limits of a resolved configuration, None if it has no limits.

    ``known`` are the effective limits that were known before. If they are equal, they are returned.
    """
    if not resolution.limits:
        return None
    if len(resolution.limits) > MAX_LIMITS:
        reason = f"inherited from several levels, must be at most {MAX_LIMITS} limits: set fewer, or without inherit"
        raise ValidationError("limits", len(resolution.limits), reason)
    expires = resolution.source in ("resource", "system")
    terms = _terms(resolution, resolution.limits, "", ttl_multiplier if expires else 0)
    # Return the same object if nothing changed: layouts compare limits by identity first.
    return known if terms == known else terms


def own_effective_limits(resolution: Resolution, limits: tuple[Limit, ...], ttl_multiplier: int) -> EffectiveLimits:
    """Return the effective limits for limits that the caller passed."""
    return _terms(resolution, limits, digest(limits), ttl_multiplier)


def _terms(resolution: Resolution, limits: tuple[Limit, ...], own: str, ttl_multiplier: int) -> EffectiveLimits:
    ordered = tuple(sorted(limits, key=lambda limit: limit.name))
    facts, links = resolution.facts, resolution.links
    return EffectiveLimits(
        limits=ordered,
        stamp=resolution.stamp,
        digest=own,
        ttl_multiplier=ttl_multiplier,
        positions=_positions(tuple([limit.name for limit in ordered])),
        parent_id=None if facts is None else facts.parent_id,
        cascade=links is not None and links.parent_id is not None,
    )


@lru_cache(_SHARED)
def _positions(names: tuple[str, ...]) -> Mapping[str, int]:
    """Return the positions of limits by name. Limits with equal names have the same object, which is never changed."""
    return {name: position for position, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class LimitLayout:
    """What all buckets with the same limits have in common. Equal layouts are one object.

    ``shares`` are the limits in force, sorted by name, then the dormant ones, which are no longer
    in force. ``positions`` are the positions in ``shares``, by name. ``highest`` is the largest
    capacity each limit ever had, over all shards, in millitokens. ``slots`` are the positions of
    limits of concurrent use, ``quotas`` those of quotas, and ``tracked`` those of quotas and soft rate
    limits. ``is_mixed`` is True if there are limits other than enforced rate limits.
    """

    shares: tuple[LimitShare, ...]
    positions: Mapping[str, int]
    limits: tuple[Limit, ...]
    stamp: int
    digest: str
    shard: int
    shard_count: int
    fill_time_ms: int
    highest: tuple[int, ...]
    slots: tuple[int, ...]
    quotas: tuple[int, ...]
    tracked: tuple[int, ...]
    is_mixed: bool

    def agrees(self, terms: EffectiveLimits) -> bool:
        """Return whether buckets of this layout were built from these limits."""
        return self.stamp == terms.stamp and self.digest == terms.digest and self.limits == terms.limits


@dataclass(frozen=True, slots=True)
class BucketLayout(Admitted):
    """What stays the same for a bucket between two rebases: its limits, and the time its balances are counted from.

    ``grids`` is what each limit had offered by then. ``birth`` is the random number of the bucket's
    creation, None if it has none. ``terms`` are the limits that it was seen to follow,
    ``NO_LIMITS`` if none are known. A layout is itself the result of a take that its terms
    admit, so that no acquire has to make one.
    """

    shared: LimitLayout
    start_ms: int
    grids: tuple[int, ...]

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits in force."""
        return self.shared.limits

    @property
    def stamp(self) -> int:
        """The stamp of the configuration that its limits came from."""
        return self.shared.stamp

    @property
    def digest(self) -> str:
        """The digest of limits that a caller passed, empty for stored limits."""
        return self.shared.digest

    @property
    def shard(self) -> int:
        """The shard's number."""
        return self.shared.shard

    @property
    def shard_count(self) -> int:
        """The number of shards if every shard had been split as often as this one."""
        return self.shared.shard_count

    @property
    def fill_time_ms(self) -> int:
        """The milliseconds that the slowest of its limits takes to fill."""
        return self.shared.fill_time_ms

    @property
    def highest(self) -> tuple[int, ...]:
        """The largest capacity each limit ever had, over all shards, in millitokens."""
        return self.shared.highest

    @property
    def seen_terms(self) -> EffectiveLimits:
        """The limits that the bucket was seen to follow, ``NO_LIMITS`` if none are known."""
        return self.terms

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines of all limits, dormant ones included. Use ``baseline()`` for a single one."""
        start_ms = self.start_ms
        pairs = zip(self.shared.shares, self.grids, strict=True)
        return tuple([Baseline(share, start_ms, grid) for share, grid in pairs])

    @property
    def in_force(self) -> tuple[Baseline, ...]:
        """The baselines of the limits in force."""
        return self.baselines[: len(self.shared.limits)]

    def baseline(self, position: int) -> Baseline:
        """Return the baseline of one limit."""
        return Baseline(self.shared.shares[position], self.start_ms, self.grids[position])

    def position(self, name: str) -> int | None:
        """Return the position of a limit among the baselines, dormant ones included; None if the bucket lacks it."""
        return self.shared.positions.get(name)

    def has_all(self, names: Iterable[str]) -> bool:
        """Return whether the bucket has all these limits, dormant ones included."""
        return self.shared.positions.keys() >= set(names)

    def follows(self, terms: EffectiveLimits) -> bool:
        """Return whether the bucket was built from these limits."""
        return self.terms is terms or self.shared.agrees(terms)

    def admitted_by(self, terms: EffectiveLimits) -> Admitted:
        """Return the result of a take from this bucket that these terms admit."""
        return self if self.terms is terms else Admitted(terms, self.birth)


F = TypeVar("F", bound=BucketLayout)


@dataclass(slots=True)
class Pace:
    """How other clients use a bucket: millitokens of each limit, and writes, over a time; older usage counts less."""

    milli: tuple[float, ...]
    writes: float
    elapsed_ms: float

    def expected(self, position: int, age_ms: int) -> float:
        """Return the millitokens of a limit that others are expected to take in ``age_ms`` milliseconds."""
        return self.milli[position] * age_ms / self.elapsed_ms

    def size(self, position: int) -> float:
        """Return the millitokens of a limit that others take per write, on average."""
        return self.milli[position] / self.writes


@dataclass(slots=True)
class View(Generic[F]):
    """A bucket as last returned: ``numbers`` are balances, then totals of all baselines, then the write counter."""

    layout: F
    numbers: tuple[int, ...]
    seen_ms: int
    pace: Pace | None

    @property
    def writes(self) -> int:
        """The bucket's write counter."""
        return self.numbers[-1]

    def level(self, position: int, at_ms: int) -> int:
        """Return what is available of a limit, in millitokens; a negative level is debt."""
        baseline: Baseline = self.layout.baseline(position)
        return baseline.level(self.numbers[position], at_ms)

    def total(self, position: int) -> int:
        """Return the total ever consumed of one limit, minus what was given back, in millitokens."""
        return self.numbers[len(self.layout.grids) + position]


def pace_after(before: View[F], numbers: tuple[int, ...], own: Amounts, now_ms: int) -> Pace | None:
    """Return the pace of other clients, from two views of a bucket and this client's takes in between.

    ``own`` is empty if this client wrote nothing in between. None if no other client writes.
    """
    # Every write raises the counter by 1, so the rest of the difference is from other clients.
    others = max(0, numbers[-1] - before.numbers[-1] - (1 if own else 0))
    known = before.pace
    if not others and known is None:
        return None
    elapsed_ms = max(1, now_ms - before.seen_ms)
    count = len(before.layout.grids)
    used = [float(numbers[count + position] - before.numbers[count + position]) for position in range(count)]
    for position, taken in own:
        used[position] -= taken
    # Hazard: a credit can make the difference negative. It reduces the estimate to 0 but not below.
    milli = [max(0.0, amount) for amount in used]
    if known is None:
        return Pace(tuple(milli), others, elapsed_ms)
    # Usage loses half its weight every _HALF_LIFE_MS. Below _SILENCE writes the other clients count
    # as gone.
    kept = 0.5 ** min(_MOST_HALVINGS, elapsed_ms / _HALF_LIFE_MS)
    writes = others + kept * known.writes
    if writes < _SILENCE:
        return None
    milli = [newest + kept * old for newest, old in zip(milli, known.milli, strict=True)]
    return Pace(tuple(milli), writes, elapsed_ms + kept * known.elapsed_ms)
