"""Stores the limits of each level, and resolves the effective limits of a bucket through the cache."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Sequence

from zae_limiter._sync.store.audit import make_change
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.store.versions import VersionStore, own_version
from zae_limiter.caches.buckets import BucketId, KnownLimits
from zae_limiter.core.audit import AuditChange
from zae_limiter.core.config import ConfigRecord, resolve
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.version import check_kinds, unknown_kind
from zae_limiter.core.view import effective_limits
from zae_limiter.schema import config_item, namespace_item, version_item
from zae_limiter.schema.config_item import ConfigPlace
from zae_limiter.schema.operations import Key, Operation, Put, Update

_RECORDS = len(config_item.ResolutionKeys._fields)


class ConfigStore:
    """The config records of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._index = IndexReader(scope.table)

    def get(self, place: ConfigPlace) -> ConfigRecord | None:
        """Return the record at a place, None if it does not exist or was deleted."""
        found = self._read(place)
        return None if found is None or found.deleted else found

    def set(self, place: ConfigPlace, limits: Sequence[Limit], change: AuditChange, *, inherit: bool) -> None:
        """Replace the limits at a place, with an audit event.

        Raises:
            KindNotAllowedError: Inherited limits are not allowed yet, and this client may not allow them.
        """
        if inherit:
            # Before the first such record: an older client would take it for all limits of its place.
            VersionStore(self._scope.client).allow("inherit", change.principal)

        def decide() -> list[Operation]:
            seen = self._read(place)
            return _with_count(config_item.write(place, limits, seen, None, inherit), config_item.register(place, seen))

        self._change(place, change, decide)

    def set_system(
        self, place: ConfigPlace, limits: Sequence[Limit], on_unavailable: OnUnavailable | None, change: AuditChange
    ) -> None:
        """Replace the limits of the system and, unless it is None, the choice for an unavailable store."""

        def decide() -> list[Operation]:
            seen = self._read(place)
            kept = on_unavailable if on_unavailable or seen is None else seen.on_unavailable
            return [config_item.write(place, limits, seen, kept)]

        self._change(place, change, decide)
        if on_unavailable is not None:
            self._scope.caches.on_unavailable = on_unavailable

    def delete(self, place: ConfigPlace, change: AuditChange) -> None:
        """Replace the limits at a place by a tombstone, with an audit event; do nothing if there are none."""

        def decide() -> list[Operation]:
            seen = self._read(place)
            if seen is None or seen.deleted:
                return []
            return _with_count(config_item.tombstone(place, seen), config_item.unregister(place, seen))

        self._change(place, change, decide)

    def delete_system(self, place: ConfigPlace, change: AuditChange) -> None:
        """Delete the limits of the system and the choice for an unavailable store."""
        self.delete(place, change)
        self._scope.caches.on_unavailable = None

    def entities(self, resource: str, limit: int | None, after: str | None) -> tuple[list[str], str | None]:
        """Return the entities after ``after`` that have limits for a resource, and the last one if more follow."""
        query = config_item.entities_query(self._scope.namespace_id, resource, limit, after)
        page = self._index.read(query)
        found = config_item.entities_of(page)
        return found, None if page.next is None else found[-1]

    def resources(self, registry: Key) -> list[str]:
        """Return the resources in a registry, in order."""
        return config_item.registered(self._scope.table.get(registry, consistent=True) or {})

    def _change(
        self, place: ConfigPlace, change: AuditChange, decide: Callable[[], Sequence[Operation]]
    ) -> None:
        try:
            make_change(self._scope, change, decide)
        finally:
            # In any case: a change that was cancelled, or whose response was lost, may have been carried out.
            if place.entity_id is None:
                self._scope.caches.forget_limits()
            else:
                self._scope.caches.forget_limits_of(place.entity_id)

    def _read(self, place: ConfigPlace) -> ConfigRecord | None:
        item = self._scope.table.get(place.key, consistent=True)
        return None if item is None else config_item.from_item(item)

    def fresh(self, bucket: BucketId) -> KnownLimits | None:
        """Return the cached effective limits, None if they are missing or too old."""
        known = self._scope.caches.limits(bucket)
        fresh = known is not None and known.is_fresh(self._scope.now_ms())
        return known if fresh else None

    def known(self, bucket: BucketId, until_s: float | None = None) -> KnownLimits:
        """Return the effective limits of an entity for a resource, from the cache if they are fresh."""
        known = self.fresh(bucket)
        if known is None:
            return self.read_again(bucket, until_s)
        self._scope.caches.hits += 1
        return known

    def read_again(
        self, bucket: BucketId, until_s: float | None = None, *, consistent: bool = False
    ) -> KnownLimits:
        """Read the effective limits from the table and cache them.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        # A consistent read also checks that the namespace still exists.
        if consistent:
            self._scope.caches.active_until_ms = 0
        items = self._scope.table.batch_get(self.keys(bucket), consistent=consistent, until_s=until_s)
        return self.learn(bucket, items)

    def keys(self, bucket: BucketId) -> Sequence[Key]:
        """Return the keys of all items that decide the effective limits.

        They include the registration of the namespace and the version record, but at most once per cache period.
        """
        # All namespaces are registered in one partition. A read of it for every bucket would overload it.
        found = config_item.resolution_keys(self._scope.namespace_id, *bucket)
        if self._scope.now_ms() < self._scope.caches.active_until_ms:
            return found
        return (*found, namespace_item.reverse_key(self._scope.namespace_id), version_item.key())

    def learn(self, bucket: BucketId, items: Sequence[Item | None]) -> KnownLimits:
        """Resolve and cache the effective limits from the items of ``keys``.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
            UnknownKindError: The table stores a kind of items that this package would misread.
        """
        scope = self._scope
        caches, settings = scope.caches, scope.settings
        if len(items) > _RECORDS:
            self._check_table(*items[_RECORDS:])
        resolution = resolve(config_item.resolution_records(items[:_RECORDS]))
        before = caches.limits(bucket)
        terms = effective_limits(resolution, settings.bucket_ttl_multiplier, None if before is None else before.terms)
        now_ms = scope.now_ms()
        known = caches.share_limits(resolution, terms, now_ms, settings.config_cache_ttl_ms)
        caches.misses += 1
        caches.keep_limits(bucket, known)
        caches.on_unavailable = resolution.on_unavailable
        return known

    def _check_table(self, registration: Item | None, version: Item | None) -> None:
        """Raise if the namespace was deleted or a kind is unknown; else do not check again for one cache period."""
        scope = self._scope
        if registration is None or not namespace_item.is_active(registration):
            raise NamespaceNotFoundError(scope.namespace)
        kinds = {} if version is None else version_item.kinds_of(version)
        if unknown_kind(kinds) is not None:
            check_kinds(kinds, own_version())
        scope.caches.active_until_ms = scope.now_ms() + scope.settings.config_cache_ttl_ms


def _with_count(record: Put, count: Update | None) -> list[Operation]:
    """Return the operations of a changed record, with the change of its registry if there is one."""
    return [record] if count is None else [record, count]
