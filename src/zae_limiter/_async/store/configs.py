"""Stored limits: set and read at each level, and resolved for an entity and a resource through the cache."""

from collections.abc import Sequence

from zae_limiter._async.caches import BucketId, KnownLimits
from zae_limiter._async.store.changes import make_change
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import Change
from zae_limiter.core.config import ConfigRecord, resolve
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.view import terms_of
from zae_limiter.schema import config_item
from zae_limiter.schema.config_item import ConfigPlace
from zae_limiter.schema.operations import Key, Operation


class ConfigStore:
    """The config records of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def get(self, place: ConfigPlace) -> ConfigRecord | None:
        """Return the record of a place, None if there is none or it was deleted."""
        found = await self._read(place)
        return None if found is None or found.deleted else found

    async def set(self, place: ConfigPlace, limits: Sequence[Limit], change: Change) -> None:
        """Replace the limits of a place, and tell the audit."""
        await self._write(place, limits, None, change)

    async def set_system(
        self, place: ConfigPlace, limits: Sequence[Limit], on_unavailable: OnUnavailable | None, change: Change
    ) -> None:
        """Replace the limits of the system and, unless it is None, what to do while the store is away."""
        await self._write(place, limits, on_unavailable, change)

    async def _write(
        self, place: ConfigPlace, limits: Sequence[Limit], on_unavailable: OnUnavailable | None, change: Change
    ) -> None:
        async def decide() -> list[Operation]:
            seen = await self._read(place)
            kept = on_unavailable if on_unavailable or seen is None else seen.on_unavailable
            counted = config_item.register(place, seen)
            return [config_item.write(place, limits, seen, kept), *([] if counted is None else [counted])]

        await make_change(self._scope, change, decide)

    async def _read(self, place: ConfigPlace) -> ConfigRecord | None:
        item = await self._scope.table.get(place.key, consistent=True)
        return None if item is None else config_item.from_item(item)

    def fresh(self, bucket: BucketId) -> KnownLimits | None:
        """Return the limits in force if they are known and fresh."""
        known = self._scope.caches.limits(bucket)
        return known if known is not None and self._scope.now_ms() < known.expires_ms else None

    async def known(self, bucket: BucketId) -> KnownLimits:
        """Return the limits in force for an entity and a resource, from the cache while they are fresh."""
        known = self.fresh(bucket)
        if known is None:
            return await self.read_again(bucket)
        self._scope.caches.hits += 1
        return known

    async def read_again(self, bucket: BucketId, *, consistent: bool = False) -> KnownLimits:
        """Read the limits in force, past the cache, and remember them."""
        items = await self._scope.table.batch_get(self.keys(bucket), consistent=consistent)
        return self.learn(bucket, items)

    def keys(self, bucket: BucketId) -> Sequence[Key]:
        """Return the keys of all that decides which limits are in force."""
        return config_item.resolution_keys(self._scope.namespace_id, *bucket)

    def learn(self, bucket: BucketId, items: Sequence[Item | None]) -> KnownLimits:
        """Remember the limits in force from the items of ``keys``."""
        scope = self._scope
        caches, settings = scope.caches, scope.settings
        resolution = resolve(config_item.resolution_records(items))
        before = caches.limits(bucket)
        terms = terms_of(resolution, settings.bucket_ttl_multiplier, None if before is None else before.terms)
        known = KnownLimits(resolution, terms, scope.now_ms() + settings.config_cache_ttl_ms)
        caches.misses += 1
        caches.keep_limits(bucket, known)
        caches.on_unavailable = resolution.on_unavailable
        return known
