"""Migrates a table from one schema to the next, one migration after the other.

The version record has the schema that was reached; it is updated after each migration. An interrupted migration is
started again. So a migration must be repeatable, also by several clients at the same time.

Items of an old layout are found through the index of their namespace. A repeated run does not find those that were
moved, and continues with the others. Buckets are moved one by one, each in one transaction, so a bucket is always in
exactly one layout. Items that lists of a namespace contain are moved within the index.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.backoff import Pauses
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client
from zae_limiter._async.store.versions import VersionStore
from zae_limiter.core.audit import check_principal
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Applied, Committed, Item, Throttled, Unavailable
from zae_limiter.core.version import SCHEMA_VERSION, Migrated, VersionRecord, in_order, parse_version, pending
from zae_limiter.schema import fields, keys, namespace_lists, old_bucket_item
from zae_limiter.schema.operations import Check, ItemExists, Key, Operation, Query, Update

_KEYS_PER_PAGE = 500
_ITEMS_AT_ONCE = 100
_EMPTY_LOOKS = 2
_MOST_TRIES = 16
_PAUSES = Pauses(0.001, 1.0, full_jitter=True)


@dataclass(frozen=True, slots=True)
class MigrationCount:
    """The numbers of old items that were moved or superseded, and the locations of damaged ones."""

    moved: int = 0
    superseded: int = 0
    damaged: tuple[str, ...] = ()

    def __add__(self, other: "MigrationCount") -> "MigrationCount":
        """Return the sum; an item that was found damaged twice counts once."""
        damaged = tuple(dict.fromkeys(self.damaged + other.damaged))
        return MigrationCount(self.moved + other.moved, self.superseded + other.superseded, damaged)

    @property
    def changed(self) -> int:
        """The number of old items that were moved or superseded."""
        return self.moved + self.superseded


class OldItems(ABC):
    """Moves the items of an old layout in namespaces, or counts them."""

    def __init__(self, client: Client, *, dry_run: bool) -> None:
        self._client = client
        self._table = client.table
        self._dry_run = dry_run
        self._index = IndexReader(client.table)

    async def move_all(self, namespace_ids: Sequence[str]) -> MigrationCount:
        """Move all old items, until two searches in a row find nothing.

        The searches are ``index_lag_s`` seconds apart, because an index may lag behind the table.
        """
        tally = MigrationCount()
        looks = 0
        while looks < _EMPTY_LOOKS:
            found = MigrationCount()
            for namespace_id in namespace_ids:
                found += await self._move_found(namespace_id)
            tally += found
            if self._dry_run:
                return tally
            looks = 0 if found.changed else looks + 1
            if looks < _EMPTY_LOOKS and self._table.index_lag_s:
                await runtime.sleep(self._table.index_lag_s)
        return tally

    @abstractmethod
    async def _move_found(self, namespace_id: str) -> MigrationCount:
        """Move the old items that one traversal of the index finds."""


class OldBuckets(OldItems):
    """Moves old buckets to partitions of their own."""

    async def _move_found(self, namespace_id: str) -> MigrationCount:
        """Move the old buckets that one traversal of the index finds in the partitions of entities."""
        tally = MigrationCount()
        prefix = keys.pk_entity(namespace_id, "")
        query: Query | None = Query(keys.gsi4_pk(namespace_id), index="GSI4", prefix=prefix, limit=_KEYS_PER_PAGE)
        while query is not None:
            page = await self._index.page(query)
            found = [Key(item["PK"], item["SK"]) for item in page.items]
            old = [key for key in found if old_bucket_item.owner_of(key) is not None]
            for first in range(0, len(old), _ITEMS_AT_ONCE):
                some = old[first : first + _ITEMS_AT_ONCE]
                for item in await self._table.batch_get(some, consistent=True):
                    tally += MigrationCount() if item is None else await self._move(item)
            query = query.after(page)
        return tally

    async def _move(self, item: Item) -> MigrationCount:
        """Move one bucket; if it is written meanwhile, read it again and repeat the move."""
        seen: Item | None = item
        superseded = False
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_MOST_TRIES):
            if seen is None:
                # Another client has moved it.
                return MigrationCount()
            try:
                put, delete = old_bucket_item.moved(seen, self._multiplier, self._client.signature())
            except CorruptItemError as error:
                return MigrationCount(damaged=(error.location,))
            if self._dry_run:
                superseded = await self._table.get(put.key, consistent=True) is not None
                return MigrationCount(superseded=1) if superseded else MigrationCount(moved=1)
            # A new client may have created a bucket in the new layout. It is newer, so the old one is only deleted.
            new_bucket: Operation = Check(put.key, (ItemExists(),)) if superseded else put
            if isinstance(await self._client.transact([delete, new_bucket], "migrate"), Committed):
                return MigrationCount(superseded=1) if superseded else MigrationCount(moved=1)
            await backoff.wait()
            seen, new = await self._table.batch_get([delete.key, put.key], consistent=True)
            superseded = new is not None
        raise self._client.unavailable(
            TimeoutError(f"other clients kept writing to the old bucket {fields.location(item)}")
        )

    @property
    def _multiplier(self) -> int:
        return self._client.settings.bucket_ttl_multiplier


class UnlistedItems(OldItems):
    """Gives entities, audit events and usage the sort keys by which lists of a namespace find them."""

    async def _move_found(self, namespace_id: str) -> MigrationCount:
        """Change the sort keys of the items that one traversal of the index finds."""
        moved = 0
        for first in namespace_lists.old_items(namespace_id, _ITEMS_AT_ONCE):
            query: Query | None = first
            while query is not None:
                page = await self._index.page(query)
                found = [Key(item["PK"], item["SK"]) for item in page.items]
                moved += await self._list([key for key in found if namespace_lists.sort_key(key) is not None])
                query = query.after(page)
        return MigrationCount(moved=moved)

    async def _list(self, found: Sequence[Key]) -> int:
        """Change the sort keys of items that still have the old ones, and return their number."""
        items = await self._table.batch_get(found, consistent=True) if found else []
        updates = [update for item in items if item is not None and (update := namespace_lists.listed(item))]
        if self._dry_run or not updates:
            return len(updates)
        if isinstance(await self._client.transact(updates, "migrate"), Committed):
            return len(updates)
        # Another client has changed one of the items, so each is changed by itself.
        moved = 0
        for update in updates:
            moved += await self._list_one(update)
        return moved

    async def _list_one(self, update: Update) -> int:
        """Change the sort key of an item; return 0 if another client was faster, or has deleted the entity."""
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_MOST_TRIES):
            outcome = await self._table.write(update)
            if isinstance(outcome, Unavailable):
                raise self._client.unavailable(outcome.cause)
            if not isinstance(outcome, Throttled):
                return int(isinstance(outcome, Applied))
            await backoff.wait()
        raise self._client.unavailable(TimeoutError(f"the item {update.key.pk} {update.key.sk} could not be written"))


@dataclass(frozen=True, slots=True)
class Migration:
    """A step to a schema: its target, its purpose, and the function that carries it out, or counts in a dry run."""

    target: str
    summary: str
    carry_out: Callable[[Client, bool], Awaitable[MigrationCount]]


async def move_buckets(client: Client, dry_run: bool) -> MigrationCount:
    """Move the buckets from the partitions of their entities to their own partitions, in all namespaces."""
    return await OldBuckets(client, dry_run=dry_run).move_all(await _namespace_ids(client))


async def list_items(client: Client, dry_run: bool) -> MigrationCount:
    """Make the entities, audit events and usage of every namespace appear in its lists."""
    namespace_ids = [*await _namespace_ids(client), RESERVED_NAMESPACE]
    return await UnlistedItems(client, dry_run=dry_run).move_all(namespace_ids)


async def _namespace_ids(client: Client) -> list[str]:
    store = NamespaceStore(client)
    # A purge removes the old items of its namespace, so they are not moved.
    orphans = [one for one in await store.orphans() if one.status is not NamespaceStatus.PURGING]
    return [one.id for one in [*await store.active(), *orphans]]


REGISTRY = (
    Migration("1.0.0", "buckets to partitions of their own, the burst as capacity", move_buckets),
    Migration("2.0.0", "entities, audit events and usage to the lists of their namespace", list_items),
)
"""All migrations, from the oldest schema to the newest."""


class Migrations:
    """Upgrades a table to the schema of this package."""

    def __init__(self, client: Client, registry: Sequence[Migration] = REGISTRY) -> None:
        assert in_order([one.target for one in registry]), "migrations are listed from the oldest schema to the newest"
        self._client = client
        self._registry = registry
        self._versions = VersionStore(client)

    async def run(self, *, dry_run: bool = False, principal: str | None = None) -> list[Migrated]:
        """Carry out the pending migrations, and return what they did.

        A dry run writes nothing and returns what would be done. Call it again to complete an interrupted run.

        Raises:
            IncompatibleSchemaError: The table's schema is newer than this package's.
            RateLimiterUnavailable: The table did not respond.
        """
        check_principal(principal)
        done: list[Migrated] = []
        seen = await self._versions.read()
        for migration in self._after(seen):
            done.append(await self._carry_out(migration, dry_run))
            if not dry_run:
                seen = await self._record(migration.target, principal)
        if not dry_run and (seen is None or parse_version(seen.schema_version) < parse_version(SCHEMA_VERSION)):
            await self._record(SCHEMA_VERSION, principal)
        return done

    def _after(self, seen: VersionRecord | None) -> list[Migration]:
        known = {one.target: one for one in self._registry}
        return [known[target] for target in pending([*known], None if seen is None else seen.schema_version)]

    async def _carry_out(self, migration: Migration, dry_run: bool) -> Migrated:
        tally = await migration.carry_out(self._client, dry_run)
        summary, damaged = migration.summary, tally.damaged
        return Migrated(migration.target, summary, tally.moved, tally.superseded, damaged, dry_run)

    async def _record(self, target: str, principal: str | None) -> VersionRecord:
        """Record that a schema was reached, unless the record already has that schema or a newer one."""
        # Repeated if another client changes the schema between the read and the write.
        while True:
            seen = await self._versions.read()
            if seen is not None and parse_version(seen.schema_version) >= parse_version(target):
                return seen
            known = VersionRecord(target) if seen is None else seen
            record = replace(known, schema_version=target, updated_at=self._versions.now(), updated_by=principal)
            if await self._versions.replace(record, seen):
                return record
