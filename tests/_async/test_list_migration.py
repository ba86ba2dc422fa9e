"""The migration to schema 2.0.0: entities, audit events and usage of an older table appear in its lists."""

from dataclasses import replace

import pytest

from zae_limiter import IncompatibleSchemaError, Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter._async.backoff import Pauses
from zae_limiter._async.store import migrations as migrations_module
from zae_limiter._async.store.migrations import REGISTRY, Migrations
from zae_limiter._async.upgrade import upgrade
from zae_limiter.clock import SystemClock
from zae_limiter.core.outcome import Cancelled, Conflict, Throttled, Unavailable
from zae_limiter.core.version import SCHEMA_VERSION, Migrated, VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Put

from .clients import Wrapped, another, everything_in
from .test_migrations import FailingAfterCallsTable, InterveningTable

LIMITS = [Limit.per_minute("rpm", 100)]
LISTS = REGISTRY[1:]


def migrations(repo, wrap=None):
    return Migrations(another(repo, wrap).scope.client, LISTS)


async def use(repo):
    """Put entities, limits, usage, audit events and a tombstone into a namespace."""
    await repo.set_system_defaults(LIMITS)
    for name in ("a", "b", "gone"):
        await repo.create_entity(name)
    await repo.set_limits("a", LIMITS, "gpt-4")
    await repo.delete_entity("gone")
    async with RateLimiter(repo).acquire("a", "gpt-4", {"rpm": 3}):
        pass
    await repo.get_usage_snapshots("a")


async def make_old(repo):
    """Give every item the sort key of the older schema, and return the number of those that lists contain."""
    found = 0
    for item in everything_in(repo).values():
        if "GSI4PK" in item and item["GSI4SK"] != item["PK"]:
            await repo.scope.table.write(Put({**item, "GSI4SK": item["PK"]}))
            found += 1
    await repo.scope.table.write(Put(version_item.to_item(VersionRecord("1.0.0"))))
    return found


async def listed(repo):
    """Return all lists of a namespace."""
    snapshots, _ = await repo.get_usage_snapshots()
    return [await repo.list_entities(), await repo.get_audit_events(), snapshots]


def old_in(repo):
    """Return the number of items that lists should contain, but that have the old sort key."""
    kinds = ("#META", "#USAGE#", "#AUDIT#")
    return sum(
        item["GSI4SK"] == item["PK"] and key[1].startswith(kinds) and not item.get("deleted")
        for key, item in everything_in(repo).items()
    )


async def test_migrated_items_appear_in_the_lists(repo):
    """The lists are the same as those of a table that had the new schema from the start."""
    await repo.register_namespace("team")
    team = await repo.namespace("team")
    await use(repo)
    await use(team)
    before = [await listed(repo), await listed(team)]
    old = await make_old(repo)
    hidden = [await listed(repo), await listed(team)]
    (done,) = await migrations(repo).run(principal="ops")

    assert ([], None) == hidden[0][0]
    assert [[event.entity_id for event in one[1]] for one in hidden] == [["$NAMESPACE:default"], ["$NAMESPACE:team"]]
    assert before == [await listed(repo), await listed(team)]
    assert (Migrated("2.0.0", LISTS[0].summary, moved=old), 0) == (done, old_in(repo))


async def test_migrated_items_keep_everything_but_their_sort_key(repo):
    """Nothing else is rewritten, also not in a deleted namespace, which may be recovered."""
    await repo.register_namespace("team")
    await use(await repo.namespace("team"))
    await repo.delete_namespace("team")
    await use(repo)
    before = everything_in(repo)
    await make_old(repo)
    await migrations(repo).run()
    after = everything_in(repo)
    version = version_item.key()

    assert {key: item for key, item in before.items() if key != version} == {
        key: item for key, item in after.items() if key != version
    }


async def test_dry_run_counts_what_the_run_moves_and_writes_nothing(repo):
    """A tombstone is not counted, and the run that follows confirms the number."""
    await use(repo)
    old = await make_old(repo)
    before = everything_in(repo)
    (dry,) = await migrations(repo).run(dry_run=True)
    after = everything_in(repo)
    (done,) = await migrations(repo).run()

    assert (before, old) == (after, dry.moved)
    assert replace(dry, dry_run=False) == done
    assert [] == await migrations(repo).run()


async def test_migration_of_more_items_than_fit_one_page_moves_all(repo, monkeypatch):
    """It continues after items that it does not move, such as limits and tombstones."""
    monkeypatch.setattr(migrations_module, "_ITEMS_AT_ONCE", 3)
    for number in range(10):
        await repo.create_entity(f"user-{number}")
        await repo.set_limits(f"user-{number}", LIMITS, "gpt-4")
    await repo.delete_entity("user-5")
    old = await make_old(repo)
    (done,) = await migrations(repo).run()

    assert (old, 0) == (done.moved, old_in(repo))


@pytest.mark.parametrize("after", [False, True], ids=["before a call", "after a call"])
async def test_migration_interrupted_at_any_call_is_completed_by_the_next_run(repo, after, monkeypatch):
    """Items that were moved stay moved."""
    monkeypatch.setattr(migrations_module, "_ITEMS_AT_ONCE", 4)
    await use(repo)
    before = await listed(repo)
    calls = 0
    while True:
        await make_old(repo)
        try:
            await migrations(repo, lambda table, cut=calls: FailingAfterCallsTable(table, cut, after)).run()
            break
        except RateLimiterUnavailable:
            pass
        await migrations(repo).run()
        assert (0, before) == (old_in(repo), await listed(repo))
        calls += 1

    assert 10 < calls


async def test_two_migrations_at_the_same_time_both_complete(repo):
    """Each item is moved by one of them, and no change of the other is lost."""
    await use(repo)
    old = await make_old(repo)
    inner = []

    async def migrate(table):
        inner.extend(await migrations(repo).run())

    (done,) = await migrations(repo, lambda table: InterveningTable(table, migrate)).run()

    assert (old, 0) == (done.moved + inner[0].moved, old_in(repo))


async def test_entity_deleted_during_the_migration_is_not_listed(repo):
    """The other items of the same transaction are still moved."""
    await use(repo)
    old = await make_old(repo)

    async def delete(table):
        await repo.delete_entity("b")

    (done,) = await migrations(repo, lambda table: InterveningTable(table, delete)).run()

    assert (old - 1, 0) == (done.moved, old_in(repo))
    assert ["a"] == [entity.id for entity in (await repo.list_entities())[0]]


async def test_migration_retries_writes_that_are_throttled(repo, monkeypatch):
    """It ends with an error that names the item, if that lasts."""
    monkeypatch.setattr(migrations_module, "_PAUSES", Pauses(0.001, 0.001))

    class BusyTable(Wrapped):
        left = 3

        async def transact(self, operations, token, *, until_s=None):
            return Conflict()

        async def write(self, operation, until_s=None):
            if not operation.set.get("GSI4SK"):
                return await super().write(operation, until_s)
            self.left -= 1
            return Throttled() if self.left >= 0 else await super().write(operation, until_s)

    class FullTable(BusyTable):
        left = 10**6

    await use(repo)
    old = await make_old(repo)
    with pytest.raises(RateLimiterUnavailable, match=r"the item .*/ENTITY#a #META could not be written"):
        await migrations(repo, FullTable).run()
    (done,) = await migrations(repo, BusyTable).run()

    assert (old, 0) == (done.moved, old_in(repo))


@pytest.mark.parametrize("call", ["transact", "write"])
async def test_migration_of_an_unavailable_table_raises(repo, call):
    """The schema version stays the old one."""

    class LostTable(Wrapped):
        async def transact(self, operations, token, *, until_s=None):
            return Unavailable(ConnectionError("cut off"), False) if call == "transact" else Cancelled((None,))

        async def write(self, operation, until_s=None):
            return Unavailable(ConnectionError("cut off"), False)

    await use(repo)
    await make_old(repo)
    with pytest.raises(RateLimiterUnavailable, match="cut off"):
        await migrations(repo, LostTable).run()

    assert "1.0.0" == (await repo.get_version_record()).schema_version


class TestUpgrade:
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'limiter.db'}"

    async def test_table_of_the_older_schema_is_refused_until_it_is_upgraded(self, repo, url, clock):
        """The error names the command."""
        # The upgrade uses the clock of the machine, and must not find usage that has expired.
        clock.time_ms = SystemClock().now_ms()
        await use(repo)
        before = await listed(repo)
        old = await make_old(repo)
        with pytest.raises(IncompatibleSchemaError, match="zae-limiter upgrade"):
            await Repository.open(url)
        (done,) = await upgrade(url, principal="ops")
        async with await Repository.open(url, clock=clock) as opened:
            found, record = await listed(opened), await opened.get_version_record()

        assert (old, before) == (done.moved, found)
        assert (SCHEMA_VERSION, "ops") == (record.schema_version, record.updated_by)
