"""Compute the level of each limit of a bucket, as the next request would find it, and describe it as a status."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from zae_limiter.core.bucket import Baseline, LimitShare, TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.quota_level import QuotaLevel, full_quota
from zae_limiter.core.reserve import LevelAbove, Reserve, floor_of, level_above
from zae_limiter.core.slots import MixedView, SlotLevel
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.tracked import quota_view
from zae_limiter.core.view import Amounts, EffectiveLimits, View


@dataclass(slots=True)
class LimitLevel:
    """One limit of a bucket, as the next request would find it."""

    baseline: Baseline
    balance_milli: int

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.baseline.name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.baseline.limit

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact if no other request takes from the limit."""
        return True

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return None: tokens are not returned."""
        return None

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return None: the limit is refilled all the time."""
        return None

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens available now."""
        return self.baseline.level(self.balance_milli, now[0])

    def full_ms(self) -> int:
        """Return the millisecond at which the limit is full if nothing is taken from it."""
        return self.baseline.ready_ms(self.balance_milli, self.baseline.capacity_milli)

    def less(self, milli: int, at: TimeBounds) -> "LimitLevel":
        """Return the limit after a take of ``milli`` millitokens."""
        ceiling = self.baseline.capacity_milli - self.baseline.earned(at[0])
        return LimitLevel(self.baseline, min(ceiling, self.balance_milli) - milli) if milli else self

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available; 0 if nothing is needed, even in debt."""
        return max(0, self.baseline.ready_ms(self.balance_milli, needed_milli) - now[0]) if needed_milli else 0

    def above(self, reserve: Reserve) -> LevelAbove:
        """Return what the limit has above a reserve."""
        return level_above(self, self.baseline.share, reserve)


def limit_levels(view: View[Any] | None, terms: EffectiveLimits, now: TimeBounds) -> "list[LevelOfLimit]":
    """Return the level of each limit in force, as if the bucket had been created or moved to these limits now."""
    if view is None:
        return [_full(limit, now) for limit in terms.limits]
    layout = view.layout
    if layout.follows(terms):
        return [_level_in_force(view, position) for position in range(len(layout.limits))]
    result: list[LevelOfLimit] = []
    for limit in terms.limits:
        position = layout.position(limit.name)
        if position is None or layout.shared.shares[position].limit.kind != limit.kind:
            result.append(_full(limit, now, layout.shard, layout.shard_count))
            continue
        if limit.is_quota:
            # What was spent stays spent, whatever the new amount and schedule are.
            result.append(_moved_quota(view, position, limit, now))
            continue
        start_ms = max(now[0], layout.start_ms)
        baseline = Baseline.of(limit, start_ms, layout.shard, layout.shard_count)
        if limit.hold_seconds:
            moved = _level_in_force(view, position)
            assert isinstance(moved, SlotLevel), "the limit has slots before and after"
            balance = moved.balance_milli + baseline.capacity_milli - moved.share.capacity_milli
            result.append(SlotLevel(baseline.share, balance, moved.cohorts))
        else:
            result.append(LimitLevel(baseline, min(view.level(position, now[0]), baseline.capacity_milli)))
    return result


def _level_in_force(view: View[Any], position: int) -> "LevelOfLimit":
    if isinstance(view, MixedView) and position in view.cohorts:
        return SlotLevel(view.layout.shared.shares[position], view.numbers[position], view.cohorts[position])
    if position in view.layout.shared.quotas:
        return QuotaLevel(view.layout.shared.shares[position], view.numbers[position])
    return LimitLevel(view.layout.baseline(position), view.numbers[position])


def _full(limit: Limit, now: TimeBounds, shard: int = 0, shard_count: int = 1) -> "LevelOfLimit":
    baseline = Baseline.of(limit, now[1], shard, shard_count)
    if limit.hold_seconds:
        return SlotLevel(baseline.share, baseline.capacity_milli, ())
    return full_quota(baseline.share, now) if limit.is_quota else LimitLevel(baseline, baseline.capacity_milli)


def _moved_quota(view: View[Any], position: int, limit: Limit, now: TimeBounds) -> QuotaLevel:
    layout = view.layout
    share = LimitShare.of(limit, layout.shard, layout.shard_count)
    spent = quota_view(view, position, now[0] // 1000).spent
    return full_quota(share, (now[0], now[0])).less(spent * 1000, (now[0], now[0]))


class LevelOfLimit(Protocol):
    """The level of one limit, on one shard or on all."""

    @property
    def name(self) -> str:
        """The limit's name."""
        ...

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact if no other request takes from the limit."""
        ...

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return the slots in use now, in millislots; None for a limit of another kind."""
        ...

    def full_ms(self) -> int:
        """Return the millisecond at which the limit is full if nothing is taken from it."""
        ...

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return when a quota is full again, in seconds since the epoch; None for a limit of another kind."""
        ...

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens available now."""
        ...

    def less(self, milli: int, at: TimeBounds) -> "LevelOfLimit":
        """Return the limit after a take of ``milli`` millitokens."""
        ...

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available."""
        ...

    def above(self, reserve: Reserve) -> "LevelOfLimit":
        """Return what the limit has above a reserve."""
        ...


def lacks(level: LevelOfLimit, milli: int, at: TimeBounds) -> bool:
    """Return whether a limit rejects a take of ``milli`` thousandths. A soft limit rejects none."""
    return milli > 0 and level.limit.enforce and level.available_milli(at) < milli


def statuses(
    bucket: tuple[str, str],
    levels: Sequence[LevelOfLimit],
    amounts: Amounts,
    judged: TimeBounds,
    now: TimeBounds,
    reserve: Reserve | None = None,
) -> list[LimitStatus]:
    """Return the status of every limit of a bucket (entity, resource) as of ``judged``, with the wait from ``now``.

    The request must leave ``reserve``; None if it may take everything.
    """
    entity_id, resource = bucket
    requested = dict(amounts)
    result = []
    for position, level in enumerate(levels):
        wanted, limit, wait_s = requested.get(position, 0), level.limit, 0.0
        spare = level if reserve is None else level.above(reserve)
        floor = floor_of(limit, reserve) if wanted else 0
        # A request for 0 tokens is never too much, even for a limit in debt.
        exceeded = spare.available_milli(judged) < wanted and wanted > 0
        if exceeded and limit.enforce:
            # More than the capacity is never available; the wait is the time until the bucket is full.
            wait_s = spare.wait_ms(min(wanted, limit.capacity_milli - floor * 1000), now) / 1000
        result.append(
            LimitStatus(
                entity_id=entity_id,
                resource=resource,
                limit_name=limit.name,
                limit=limit,
                available=level.available_milli(judged) // 1000,
                requested=wanted // 1000,
                exceeded=exceeded,
                retry_after_seconds=wait_s,
                exact=level.is_exact,
                in_use=whole_slots(level, judged),
                resets_at=level.resets_s(judged),
                reserved=floor,
            )
        )
    return result


def held_statuses(
    bucket: tuple[str, str],
    levels: Sequence[LevelOfLimit],
    held: Mapping[str, int],
    pending: Mapping[str, int],
    now: TimeBounds,
) -> list[LimitStatus]:
    """Return the status of every limit of a bucket for a request that was admitted, none of them exceeded.

    ``held`` are the tokens of the request, adjustments included. ``pending`` are its adjustments, up or down.
    """
    entity_id, resource = bucket
    result = []
    for level in levels:
        limit = level.limit
        name = limit.name
        left = level.available_milli(now) // 1000
        if pending:
            left = min(limit.capacity, left - pending.get(name, 0))
        # Positional, because a response with headers makes one for each limit.
        result.append(
            LimitStatus(
                entity_id,
                resource,
                name,
                limit,
                left,
                held.get(name, 0),
                left < 0 and not limit.enforce,
                0.0,
                level.is_exact,
                whole_slots(level, now),
                level.resets_s(now),
            )
        )
    return result


def whole_slots(level: LevelOfLimit, now: TimeBounds) -> int | None:
    """Return how many slots of a limit are in use, None for a limit of another kind."""
    milli = level.in_use_milli(now)
    return None if milli is None else -(-milli // 1000)


def held_statuses_of(
    bucket: tuple[str, str],
    view: View[Any],
    terms: EffectiveLimits,
    held: Mapping[str, int],
    pending: Mapping[str, int],
    now: TimeBounds,
) -> list[LimitStatus]:
    """Return the ``held_statuses`` of an unsharded bucket by its view."""
    layout = view.layout
    if layout.shared.is_mixed or not layout.follows(terms):
        return held_statuses(bucket, limit_levels(view, terms, now), held, pending, now)
    entity_id, resource = bucket
    low_ms = now[0]
    numbers, grids = view.numbers, layout.grids
    has_earned = low_ms > layout.start_ms
    result = []
    # The same as by ``limit_levels``, without an object for each level: a response with headers does this.
    for position, (part, limit) in enumerate(zip(layout.shared.shares, layout.shared.limits, strict=False)):
        milli = numbers[position]
        if has_earned:
            milli += part.offered(low_ms) - grids[position]
        capacity = part.capacity_milli
        left = (milli if milli < capacity else capacity) // 1000
        name = part.name
        if pending:
            left = min(limit.capacity, left - pending.get(name, 0))
        result.append(LimitStatus(entity_id, resource, name, limit, left, held.get(name, 0), False, 0.0))
    return result
