"""The registry of namespaces: maps names to opaque ids, and registers, deletes, recovers and purges namespaces.

Every step is one transaction with its audit event. The event is stored in the registry, so a purge does not remove it.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Sequence
from typing import NamedTuple

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.store.audit import PlannedChange, make_changes
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Client
from zae_limiter._sync.store.sharded_buckets import ShardedBuckets, highest_shards
from zae_limiter.core import namespace as life
from zae_limiter.core.audit import AuditAction, AuditChange, check_principal, namespace_audit_id
from zae_limiter.core.errors import CorruptItemError, NamespaceNotFoundError, NamespaceStateError
from zae_limiter.core.names import RESERVED_NAMESPACE, check_namespace
from zae_limiter.core.namespace import Namespace, NamespaceStatus, check_namespace_id
from zae_limiter.core.timestamp import iso_from_ms
from zae_limiter.schema import keys, namespace_item
from zae_limiter.schema.index_entries import is_in_namespace
from zae_limiter.schema.operations import Key, Operation, Query

# Each name needs two records and an event, and a transaction has at most 100 operations.
_NAMES_PER_TRANSACTION = 33
_KEYS_PER_PAGE = 500
_EMPTY_LOOKS = 2


class _StatusChange(NamedTuple):
    """A namespace after a change of its status, and the operations that store it."""

    namespace: Namespace
    operations: Sequence[Operation]


class NamespaceStore:
    """Finds, registers, deletes, recovers and purges namespaces."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = client.table
        self._registry = client.scope(RESERVED_NAMESPACE, RESERVED_NAMESPACE)
        # A purge removes all items of its namespace, even those with a forged sort key.
        self._index = IndexReader(client.table, is_in_namespace)

    def find(self, name: str) -> Namespace:
        """Return an active namespace.

        Raises:
            NamespaceNotFoundError: No active namespace has that name.
        """
        check_namespace(name)
        item = self._table.get(namespace_item.forward_key(name), consistent=True)
        if item is None:
            raise NamespaceNotFoundError(name)
        return namespace_item.from_item(item)

    def active(self) -> list[Namespace]:
        """Return all active namespaces, in the order of their names."""
        return self._registered(keys.SK_NAMESPACE_PREFIX)

    def orphans(self) -> list[Namespace]:
        """Return all namespaces that are deleted and not purged yet, in the order of their deletion."""
        found = self._registered(keys.SK_NSID_PREFIX)
        orphaned = [one for one in found if one.status is not NamespaceStatus.ACTIVE]
        return sorted(orphaned, key=lambda one: (one.deleted_at or "", one.name))

    def register(self, name: str, principal: str | None = None) -> Namespace:
        """Return the active namespace of a name; register it if it does not exist."""
        return (self.register_all([name], principal))[name]

    def register_all(self, names: Sequence[str], principal: str | None) -> dict[str, Namespace]:
        """Return the active namespaces of names; register those that do not exist."""
        check_principal(principal)
        for name in names:
            check_namespace(name)
        unique = list(dict.fromkeys(names))
        known: dict[str, Namespace] = {}
        for start in range(0, len(unique), _NAMES_PER_TRANSACTION):
            known |= self._register_some(unique[start : start + _NAMES_PER_TRANSACTION], principal)
        return known

    def delete(self, name: str, principal: str | None) -> Namespace:
        """Hide an active namespace; its data is kept."""

        def decide() -> _StatusChange:
            deleted = life.delete(self.find(name), iso_from_ms(self._registry.now_ms()))
            return _StatusChange(deleted, namespace_item.delete(deleted))

        deleted = self._carry_out(AuditAction.NAMESPACE_DELETED, principal, decide)
        self._forget(deleted.id)
        return deleted

    def recover(self, namespace_id: str, principal: str | None) -> Namespace:
        """Restore a deleted namespace under its name.

        Raises:
            NamespaceNotFoundError: No namespace has that id.
            NamespaceStateError: It is not deleted, it is being purged, or another namespace has its name now.
        """

        def decide() -> _StatusChange:
            recovered = life.recover(self._find_by_id(namespace_id))
            self._require_free_name(recovered.name)
            return _StatusChange(recovered, namespace_item.recover(recovered))

        return self._carry_out(AuditAction.NAMESPACE_RECOVERED, principal, decide)

    def purge(
        self, namespace_id: str, principal: str | None, progress: Callable[[int], None] | None = None
    ) -> int:
        """Remove a deleted namespace with all its items, and return their number; complete an interrupted purge.

        ``progress`` is called after each step with the number of items that the step removed.

        Raises:
            NamespaceNotFoundError: No namespace has that id.
            NamespaceStateError: It is active.
        """

        def begin() -> _StatusChange:
            seen = self._find_by_id(namespace_id)
            purging = life.purge(seen)
            begun = seen.status is NamespaceStatus.PURGING
            return _StatusChange(purging, [] if begun else [namespace_item.begin_purge(purging, seen.status)])

        namespace = self._carry_out(AuditAction.NAMESPACE_PURGE_BEGUN, principal, begin)
        self._forget(namespace_id)
        removed = self._remove_everything(namespace_id, progress or _ignore)

        def end() -> _StatusChange:
            # Another client may have completed the same purge.
            left = self._table.get(namespace_item.reverse_key(namespace_id), consistent=True)
            return _StatusChange(namespace, [] if left is None else [namespace_item.end_purge(namespace_id)])

        self._carry_out(AuditAction.NAMESPACE_PURGED, principal, end)
        self._client.caches.pop(namespace_id, None)
        return removed

    def _register_some(self, names: Sequence[str], principal: str | None) -> dict[str, Namespace]:
        """Return the namespaces of at most 33 names; register those that do not exist in one transaction."""
        known: dict[str, Namespace] = {}

        def decide() -> PlannedChange:
            items = self._table.batch_get([namespace_item.forward_key(name) for name in names], consistent=True)
            for name, item in zip(names, items, strict=True):
                known[name] = self._new(name) if item is None else namespace_item.from_item(item)
            fresh = [known[name] for name, item in zip(names, items, strict=True) if item is None]
            writes = [operation for one in fresh for operation in namespace_item.register(one)]
            return PlannedChange(writes, [_change(AuditAction.NAMESPACE_REGISTERED, one, principal) for one in fresh])

        make_changes(self._registry, decide)
        return known

    def _new(self, name: str) -> Namespace:
        namespace_id = life.make_namespace_id(self._client.random.randbytes(8))
        return life.register(name, namespace_id, iso_from_ms(self._registry.now_ms()))

    def _carry_out(
        self, action: AuditAction, principal: str | None, decide: Callable[[], _StatusChange]
    ) -> Namespace:
        """Change a namespace with an audit event, and return it; decide again if another client was faster."""
        check_principal(principal)
        # One entry per attempt; the last one was carried out.
        steps: list[_StatusChange] = []

        def plan() -> PlannedChange:
            steps.append(decide())
            return PlannedChange(steps[-1].operations, [_change(action, steps[-1].namespace, principal)])

        make_changes(self._registry, plan)
        return steps[-1].namespace

    def _find_by_id(self, namespace_id: str) -> Namespace:
        check_namespace_id(namespace_id)
        item = self._table.get(namespace_item.reverse_key(namespace_id), consistent=True)
        if item is None:
            raise NamespaceNotFoundError(namespace_id)
        return namespace_item.from_item(item)

    def _require_free_name(self, name: str) -> None:
        if self._table.get(namespace_item.forward_key(name), consistent=True) is not None:
            hint = "another namespace has been registered under its name; delete that one first"
            raise NamespaceStateError(name, NamespaceStatus.DELETED.value, "recover", hint)

    def _registered(self, prefix: str) -> list[Namespace]:
        found = self._index.read(Query(keys.pk_registry(), prefix=prefix))
        return [namespace_item.from_item(item) for item in found.items]

    def _remove_everything(self, namespace_id: str, progress: Callable[[int], None]) -> int:
        """Remove all items of a namespace, until two searches in a row find nothing.

        The searches are ``index_lag_s`` seconds apart, because an index may lag behind the table.
        """
        removed = looks = 0
        while looks < _EMPTY_LOOKS:
            found = self._remove_what_is_found(namespace_id, progress)
            removed += found
            looks = 0 if found else looks + 1
            if looks < _EMPTY_LOOKS and self._table.index_lag_s:
                runtime.sleep(self._table.index_lag_s)
        return removed

    def _remove_what_is_found(self, namespace_id: str, progress: Callable[[int], None]) -> int:
        """Remove all items of a namespace that one traversal of the index finds; return their number."""
        removed = 0
        query: Query | None = Query(keys.gsi4_pk(namespace_id), index="GSI4", limit=_KEYS_PER_PAGE)
        while query is not None:
            page = self._index.page(query)
            done = self._remove([Key(item["PK"], item["SK"]) for item in page.items], page.next is not None)
            removed += done
            progress(done)
            query = query.after(page)
        return removed

    def _remove(self, found: Sequence[Key], more: bool) -> int:
        """Remove the items of a page, each bucket of several shards in one transaction; return their number.

        A damaged bucket is removed item by item, because it must not stop a purge.
        """
        # Shards of the last bucket may be on the next page, so that bucket is removed as a whole too.
        last = highest_shards(found[-1:]) if more else {}
        buckets = {bucket: known for bucket, known in highest_shards(found).items() if known or bucket in last}
        removed = 0
        for bucket, known in list(buckets.items()):
            try:
                removed += ShardedBuckets(self._client).remove(bucket, known)
            except CorruptItemError:
                del buckets[bucket]
        single = [key for key in found if not highest_shards([key]).keys() & buckets.keys()]
        self._table.batch_delete(single)
        return removed + len(single)

    def _forget(self, namespace_id: str) -> None:
        """Drop the cached limits of a namespace, so that limiters of this client notice its deletion immediately."""
        caches = self._client.caches.get(namespace_id)
        if caches is not None:
            caches.forget_limits()


def _ignore(_: int) -> None:
    return


def _change(action: AuditAction, namespace: Namespace, principal: str | None) -> AuditChange:
    details: dict[str, object] = {"namespace_id": namespace.id}
    return AuditChange(action, namespace_audit_id(namespace.name), principal, None, details)
