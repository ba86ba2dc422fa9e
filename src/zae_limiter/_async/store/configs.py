"""Stores the limits of each level, and resolves the effective limits of a bucket through the cache."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter._async.store.audit import make_change
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.versions import VersionStore, own_version
from zae_limiter.caches.buckets import BucketId, KnownLimits
from zae_limiter.core.audit import AuditChange
from zae_limiter.core.config import ConfigRecord, Resolution, resolve, resolve_all_resources
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.limit import Limit, kinds_of_limits
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.version import check_kinds, unknown_kind
from zae_limiter.core.version_errors import KindNotAllowedError
from zae_limiter.core.view import effective_limits
from zae_limiter.schema import config_item, entity_item, keys, namespace_item, version_item
from zae_limiter.schema.config_item import ConfigPlace
from zae_limiter.schema.operations import Key, Operation, Put, Query, Update

_ALL_RESOURCES_KIND = "all_resources"


class LearnedLimits(NamedTuple):
    """The limits of a bucket as just read, and those across resources of its entity, None if they were not read."""

    limits: KnownLimits
    across: KnownLimits | None


class ConfigStore:
    """The config records of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._index = IndexReader(scope.table)

    async def get(self, place: ConfigPlace) -> ConfigRecord | None:
        """Return the record at a place, None if it does not exist or was deleted."""
        found = await self._read(place)
        return None if found is None or found.deleted else found

    async def set(self, place: ConfigPlace, limits: Sequence[Limit], change: AuditChange, *, inherit: bool) -> None:
        """Replace the limits at a place, with an audit event.

        Raises:
            KindNotAllowedError: Such limits are not allowed yet, and this client may not allow them.
        """
        # Before the first such record: an older client would take inherited limits for all limits of their place, and
        # would ignore limits across resources.
        kinds = {"inherit": inherit, _ALL_RESOURCES_KIND: place.resource == ALL_RESOURCES}
        await VersionStore(self._scope.client).allow_all(
            [*(kind for kind, used in kinds.items() if used), *kinds_of_limits(limits)], change.principal
        )

        async def decide() -> list[Operation]:
            seen = await self._read(place)
            return _with_count(config_item.write(place, limits, seen, None, inherit), config_item.register(place, seen))

        await self._change(place, change, decide)

    async def set_system(
        self, place: ConfigPlace, limits: Sequence[Limit], on_unavailable: OnUnavailable | None, change: AuditChange
    ) -> None:
        """Replace the limits of the system and, unless it is None, the choice for an unavailable store.

        Raises:
            KindNotAllowedError: Such limits are not allowed yet, and this client may not allow them.
        """
        await VersionStore(self._scope.client).allow_all(kinds_of_limits(limits), change.principal)

        async def decide() -> list[Operation]:
            seen = await self._read(place)
            kept = on_unavailable if on_unavailable or seen is None else seen.on_unavailable
            return [config_item.write(place, limits, seen, kept)]

        await self._change(place, change, decide)
        if on_unavailable is not None:
            self._scope.caches.on_unavailable = on_unavailable

    async def delete(self, place: ConfigPlace, change: AuditChange) -> None:
        """Replace the limits at a place by a tombstone, with an audit event; do nothing if there are none."""

        async def decide() -> list[Operation]:
            seen = await self._read(place)
            if seen is None or seen.deleted:
                return []
            return _with_count(config_item.tombstone(place, seen), config_item.unregister(place, seen))

        await self._change(place, change, decide)

    async def delete_system(self, place: ConfigPlace, change: AuditChange) -> None:
        """Delete the limits of the system and the choice for an unavailable store."""
        await self.delete(place, change)
        self._scope.caches.on_unavailable = None

    async def of_entity(self, entity_id: str) -> dict[str, ConfigRecord]:
        """Return the records of an entity by resource, including ``_default_`` and ``_all_``."""
        query = Query(keys.pk_entity(self._scope.namespace_id, entity_id), prefix=keys.SK_CONFIG_PREFIX)
        found = {}
        for item in (await self._index.read(query)).items:
            resource, record = keys.parse_entity_config_sk(item["SK"]), config_item.from_item(item)
            if resource is not None and not record.deleted:
                found[resource] = record
        return found

    async def entities(self, resource: str, limit: int | None, after: str | None) -> tuple[list[str], str | None]:
        """Return the entities after ``after`` that have limits for a resource, and the last one if more follow."""
        query = config_item.entities_query(self._scope.namespace_id, resource, limit, after)
        page = await self._index.read(query)
        found = config_item.entities_of(page)
        return found, None if page.next is None else found[-1]

    async def resources(self, registry: Key) -> list[str]:
        """Return the resources in a registry, in order."""
        return config_item.registered(await self._scope.table.get(registry, consistent=True) or {})

    async def _change(
        self, place: ConfigPlace, change: AuditChange, decide: Callable[[], Awaitable[Sequence[Operation]]]
    ) -> None:
        try:
            await make_change(self._scope, change, decide)
        finally:
            # In any case: a change that was cancelled, or whose response was lost, may have been carried out.
            if place.resource == ALL_RESOURCES:
                self._scope.caches.kinds |= {_ALL_RESOURCES_KIND}
            if place.entity_id is None:
                self._scope.caches.forget_limits()
            else:
                self._scope.caches.forget_limits_of(place.entity_id)

    async def _read(self, place: ConfigPlace) -> ConfigRecord | None:
        item = await self._scope.table.get(place.key, consistent=True)
        return None if item is None else config_item.from_item(item)

    def fresh(self, bucket: BucketId) -> KnownLimits | None:
        """Return the cached effective limits, None if they are missing or too old."""
        known = self._scope.caches.limits(bucket)
        fresh = known is not None and known.is_fresh(self._scope.now_ms())
        return known if fresh else None

    async def allow_own(self, limits: Sequence[Limit]) -> None:
        """Require that the table may store a bucket with limits that a caller passes; an embedded table allows it.

        Raises:
            KindNotAllowedError: It may not, and an operator has to allow it.
        """
        for kind in kinds_of_limits(limits):
            if kind in self._scope.caches.kinds:
                continue
            versions = VersionStore(self._scope.client)
            if self._scope.table.inline:
                await versions.allow(kind)
            elif (record := await versions.read()) is None or kind not in record.kinds:
                raise KindNotAllowedError(kind)
            self._scope.caches.kinds |= {kind}

    async def known(self, bucket: BucketId, until_s: float | None = None) -> KnownLimits:
        """Return the effective limits of an entity for a resource, from the cache if they are fresh."""
        known = self.fresh(bucket)
        if known is None:
            return await self.read_again(bucket, until_s)
        self._scope.caches.hits += 1
        return known

    async def known_all(self, buckets: Sequence[BucketId]) -> list[KnownLimits]:
        """Return the effective limits of buckets, from the cache if they are fresh. Others are read in one call.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        known = [self.fresh(bucket) for bucket in buckets]
        self._scope.caches.hits += len(known) - known.count(None)
        stale = [bucket for bucket, limits in zip(buckets, known, strict=True) if limits is None]
        wanted = list(dict.fromkeys([key for bucket in stale for key in self.keys(bucket)]))
        found = dict(zip(wanted, await self._scope.table.batch_get(wanted), strict=True)) if wanted else {}
        pairs = zip(buckets, known, strict=True)
        return [self.learn(bucket, found).limits if limits is None else limits for bucket, limits in pairs]

    async def read_again(
        self, bucket: BucketId, until_s: float | None = None, *, consistent: bool = False
    ) -> KnownLimits:
        """Read the effective limits from the table and cache them.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        # A consistent read also checks that the namespace still exists.
        if consistent:
            self._scope.caches.active_until_ms = 0
        wanted, read_all = self.keys(bucket), self.has_all_resources
        items = await self._scope.table.batch_get(wanted, consistent=consistent, until_s=until_s)
        known = self.learn(bucket, dict(zip(wanted, items, strict=True))).limits
        # The read has shown for the first time that there are limits across resources.
        missed = self.has_all_resources and not read_all
        return await self.read_again(bucket, until_s, consistent=consistent) if missed else known

    def keys(self, bucket: BucketId) -> Sequence[Key]:
        """Return the keys of all items that decide the effective limits.

        They include the registration of the namespace and the version record, but at most once per cache period.
        """
        # All namespaces are registered in one partition. A read of it for every bucket would overload it.
        namespace_id, (entity_id, resource) = self._scope.namespace_id, bucket
        due = self._scope.now_ms() >= self._scope.caches.active_until_ms
        found: list[Key] = []
        across = config_item.all_resources_keys(namespace_id, entity_id)
        if resource == ALL_RESOURCES:
            found += [*across, entity_item.key(namespace_id, entity_id)]
        else:
            found += config_item.resolution_keys(namespace_id, entity_id, resource)
            if self.has_all_resources:
                found += across
        if due:
            found += [namespace_item.reverse_key(namespace_id), version_item.key()]
        return found

    @property
    def has_all_resources(self) -> bool:
        """Whether the table has limits across resources, as of its last check."""
        return _ALL_RESOURCES_KIND in self._scope.caches.kinds

    def learn(self, bucket: BucketId, found: Mapping[Key, Item | None]) -> LearnedLimits:
        """Resolve and cache the effective limits from items, which include those of ``keys``.

        If the limits across resources were read, they are cached too.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
            UnknownKindError: The table stores a kind of items that this package would misread.
        """
        namespace_id, (entity_id, resource) = self._scope.namespace_id, bucket
        registration = namespace_item.reverse_key(namespace_id)
        if registration in found:
            self._check_table(found[registration], found[version_item.key()])
        own = config_item.resolution_keys(namespace_id, entity_id, resource)
        across = config_item.all_resources_keys(namespace_id, entity_id)
        records = config_item.resolution_records(own, across, found)
        self._scope.caches.misses += 1
        shared: KnownLimits | None = None
        if across.entity_all in found:
            shared = self._keep((entity_id, ALL_RESOURCES), resolve_all_resources(records))
            if resource == ALL_RESOURCES:
                return LearnedLimits(shared, shared)
        resolution = resolve(records, resource)
        self._scope.caches.on_unavailable = resolution.on_unavailable
        if self.has_all_resources and across.entity_all not in found:
            # These items have shown for the first time that there are limits across resources. Hazard: without them,
            # another caller would take the cached limits for all limits of the entity.
            terms = effective_limits(resolution, self._scope.settings.bucket_ttl_multiplier)
            return LearnedLimits(KnownLimits(resolution, terms, 0, 0, resolution.links), None)
        return LearnedLimits(self._keep(bucket, resolution), shared)

    def _keep(self, bucket: BucketId, resolution: Resolution) -> KnownLimits:
        """Cache a resolution of the limits of a bucket."""
        caches, settings = self._scope.caches, self._scope.settings
        before = caches.limits(bucket)
        if before is None and bucket[1] == ALL_RESOURCES and not resolution.limits:
            # Most entities have none, and need no entry for them.
            return KnownLimits(resolution, None, 0, 0, resolution.links)
        terms = effective_limits(resolution, settings.bucket_ttl_multiplier, None if before is None else before.terms)
        known = caches.share_limits(resolution, terms, self._scope.now_ms(), settings.config_cache_ttl_ms)
        caches.keep_limits(bucket, known)
        return known

    def _check_table(self, registration: Item | None, version: Item | None) -> None:
        """Raise if the namespace was deleted or a kind is unknown; else do not check again for one cache period."""
        scope = self._scope
        if registration is None or not namespace_item.is_active(registration):
            raise NamespaceNotFoundError(scope.namespace)
        kinds = {} if version is None else version_item.kinds_of(version)
        if unknown_kind(kinds) is not None:
            check_kinds(kinds, own_version())
        if _ALL_RESOURCES_KIND in kinds and not self.has_all_resources:
            # Limits that are cached were read without those across resources.
            scope.caches.forget_limits()
        scope.caches.kinds = frozenset(kinds)
        scope.caches.active_until_ms = scope.now_ms() + scope.settings.config_cache_ttl_ms


def _with_count(record: Put, count: Update | None) -> list[Operation]:
    """Return the operations of a changed record, with the change of its registry if there is one."""
    return [record] if count is None else [record, count]
