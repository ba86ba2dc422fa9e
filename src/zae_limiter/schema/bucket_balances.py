"""Compute what is left of the limits of a bucket, over all its shards."""

from collections.abc import Sequence

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.levels import LevelOfLimit, limit_levels, whole_slots
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import Balance
from zae_limiter.core.tracked import proven
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema.bucket_item import newest_layout, view_of


def balances_of(
    bucket: tuple[str, str], shards: Sequence[Item], in_force: EffectiveLimits | None, now: TimeBounds
) -> list[Balance]:
    """Return what is left of a bucket (entity, resource) without a take; there are no shards if it does not exist.

    The limits are those in force, or those of the caller that the bucket was last used with.

    Raises:
        CorruptItemError: A shard is not a bucket, or is damaged.
    """
    views = [view_of(item, now[1], None) for item in shards]
    if not views:
        return full_balances(bucket, () if in_force is None else in_force.limits, now)
    newest = newest_layout([view.layout for view in views])
    terms = _terms(newest.limits, newest.stamp, newest.digest) if newest.digest else in_force
    now = proven(views, now)
    return [] if terms is None else [_balance(bucket, level, now) for level in combined(views, terms, now)]


def full_balances(bucket: tuple[str, str], limits: Sequence[Limit], now: TimeBounds) -> list[Balance]:
    """Return the balances of a bucket (entity, resource) that does not exist, in which nothing is used."""
    return [_balance(bucket, level, now) for level in limit_levels(None, _terms(limits), now)]


def _terms(limits: Sequence[Limit], stamp: int = -1, digest: str = "") -> EffectiveLimits:
    return EffectiveLimits(tuple(limits), stamp, digest, 0, {limit.name: place for place, limit in enumerate(limits)})


def _balance(bucket: tuple[str, str], level: LevelOfLimit, now: TimeBounds) -> Balance:
    entity_id, resource = bucket
    left = level.available_milli(now)
    is_full = left >= level.limit.capacity_milli
    return Balance(
        entity_id=entity_id,
        resource=resource,
        limit=level.limit,
        available=left // 1000,
        in_use=whole_slots(level, now),
        resets_at=level.resets_s(now),
        full_at=None if is_full else -(-level.full_ms() // 1000),
    )
