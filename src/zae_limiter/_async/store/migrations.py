"""Migrations: what brings a table from one schema to the next, in order, each to its end before the next.

The version record tells how far a table is, and is moved on after a migration has ended. One that was interrupted is
begun again, so each must do no harm when repeated, by one or by several at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.old_buckets import MigrationCount, OldBuckets
from zae_limiter._async.store.scope import Client
from zae_limiter._async.store.versions import VersionStore
from zae_limiter.core.audit import check_principal
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.version import SCHEMA_VERSION, Migrated, VersionRecord, in_order, parse_version, pending


@dataclass(frozen=True, slots=True)
class Migration:
    """A step to a schema: what it is for, and what carries it out, or in a dry run (True) only counts."""

    target: str
    summary: str
    carry_out: Callable[[Client, bool], Awaitable[MigrationCount]]


async def move_buckets(client: Client, dry_run: bool) -> MigrationCount:
    """Move the buckets that stand beside their entities to partitions of their own, in every namespace there is."""
    store = NamespaceStore(client)
    orphans = [one for one in await store.orphans() if one.status is not NamespaceStatus.PURGING]
    namespaces = [*await store.active(), *orphans]
    return await OldBuckets(client, dry_run=dry_run).move_all([one.id for one in namespaces])


REGISTRY = (Migration("1.0.0", "buckets to partitions of their own, the burst as capacity", move_buckets),)
"""All migrations, from the oldest schema on."""


class Migrations:
    """Brings a table to this package's schema."""

    def __init__(self, client: Client, registry: Sequence[Migration] = REGISTRY) -> None:
        assert in_order([one.target for one in registry]), "migrations are listed from the oldest schema on"
        self._client = client
        self._registry = registry
        self._versions = VersionStore(client)

    async def pending(self) -> list[Migration]:
        """Return the migrations a table has yet to go through, in their order.

        Raises:
            IncompatibleSchemaError: The table's schema is newer than this package's.
        """
        return self._after(await self._versions.read())

    async def run(self, *, dry_run: bool = False, principal: str | None = None) -> list[Migrated]:
        """Carry out what is pending, and return what was done; a dry run writes nothing and returns what would be.

        One that was interrupted is finished by calling it again.

        Raises:
            IncompatibleSchemaError: The table's schema is newer than this package's.
            RateLimiterUnavailable: The table did not answer.
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
        """Write down that a schema was reached, unless somebody else has brought the table as far or further."""
        while True:
            seen = await self._versions.read()
            if seen is not None and parse_version(seen.schema_version) >= parse_version(target):
                return seen
            known = VersionRecord(target) if seen is None else seen
            record = replace(known, schema_version=target, updated_at=self._versions.now(), updated_by=principal)
            if await self._versions.replace(record, seen):
                return record
