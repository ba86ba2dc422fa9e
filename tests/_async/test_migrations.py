"""Migrations run in order, can be interrupted at any point, and keep the level of every bucket."""

from dataclasses import replace

import pytest

from tests.old_buckets import START_MS, OldLimit, old_bucket, old_level_milli
from zae_limiter import IncompatibleSchemaError, Limit, RateLimiter, RateLimiterUnavailable, Repository, ValidationError
from zae_limiter._async.backoff import Pauses
from zae_limiter._async.store import migrations as migrations_module
from zae_limiter._async.store.migrations import REGISTRY, Migration, MigrationCount, Migrations
from zae_limiter._async.upgrade import upgrade
from zae_limiter.core.outcome import Conflict
from zae_limiter.core.version import SCHEMA_VERSION, Migrated, VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Delete, Key, Put, Update

from .clients import Wrapped, another, buckets_in, everything_in

RPM = OldLimit(balance_milli=40_000, capacity=60, burst=90, refill_amount=1, period_s=3_600)
OWED = OldLimit(balance_milli=-7_000, capacity=1000, burst=1000, refill_amount=1, period_s=3_600)
BUCKETS = REGISTRY[:1]
SUMMARY = BUCKETS[0].summary


class FailingAfterCallsTable(Wrapped):
    """A table that fails from a call on; with ``after``, it still carries that call out."""

    def __init__(self, table, calls, after=False):
        super().__init__(table)
        self.left = calls
        self.after = after

    async def _counted(self, call):
        self.left -= 1
        if self.left < 0 and not self.after:
            raise RateLimiterUnavailable(ConnectionError("cut off"))
        answer = await call()
        if self.left < 0:
            raise RateLimiterUnavailable(ConnectionError("cut off"))
        return answer

    async def get(self, key, *, consistent=False, until_s=None):
        return await self._counted(lambda: self.table.get(key, consistent=consistent))

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        return await self._counted(lambda: self.table.batch_get(keys, consistent=consistent))

    async def query(self, query):
        return await self._counted(lambda: self.table.query(query))

    async def write(self, operation, until_s=None):
        return await self._counted(lambda: self.table.write(operation))

    async def transact(self, operations, token, *, until_s=None):
        return await self._counted(lambda: self.table.transact(operations, token))


class InterveningTable(Wrapped):
    """A table where another client acts before the first transactions."""

    def __init__(self, table, intervene, times=1):
        super().__init__(table)
        self.intervene = intervene
        self.times = times

    async def transact(self, operations, token, *, until_s=None):
        if self.times:
            self.times -= 1
            answer = await self.intervene(self.table)
            if answer is not None:
                return answer
        return await super().transact(operations, token)


def migrations(repo, wrap=None, registry=BUCKETS):
    return Migrations(another(repo, wrap).scope.client, registry)


async def put(repo, *items):
    for item in items:
        await repo.scope.table.write(Put(item))


async def make_old(repo, *buckets):
    """Make the table one of the old schema with these buckets."""
    await put(repo, version_item.to_item(VersionRecord("0.9.0", lambda_version="0.3.0")), *buckets)


def bucket_of(repo, entity_id="user-1", limits=None, resource="gpt-4"):
    return old_bucket(repo.scope.namespace_id, entity_id, resource, limits or {"rpm": RPM})


def old_buckets_in(repo):
    return [key for key in everything_in(repo) if key[1].startswith("#BUCKET#")]


async def schema_of(repo):
    return (await repo.get_version_record()).schema_version


class TestMovedBuckets:
    async def test_migrated_bucket_keeps_its_level(self, repo, clock):
        """The limiter sees the same whole tokens, with the stored limits."""
        clock.time_ms = START_MS + 36_000_000
        await repo.set_system_defaults([Limit.custom("rpm", 90, 1, 3_600), Limit.custom("tpm", 1000, 1, 3_600)])
        await make_old(repo, bucket_of(repo, limits={"rpm": RPM, "tpm": OWED}), bucket_of(repo, "user-2"))
        (done,) = await migrations(repo).run(principal="ops")
        limiter = RateLimiter(repo)

        assert Migrated("1.0.0", SUMMARY, moved=2) == done
        assert [] == old_buckets_in(repo)
        assert {"rpm": 50, "tpm": 3} == await limiter.available("user-1", "gpt-4")
        assert 50_000 == old_level_milli(RPM, clock.time_ms)
        assert [90_000, 90_000] == [one["b_rpm_cp"] for one in buckets_in(repo)]

    async def test_first_take_from_a_migrated_bucket_rebases_it_to_the_limits_in_force(self, repo, clock):
        """It takes from the level that was kept."""
        clock.time_ms = START_MS
        await repo.set_system_defaults([Limit.custom("rpm", 50, 2, 3_600)])
        await make_old(repo, bucket_of(repo))
        await migrations(repo).run()
        limiter = RateLimiter(repo)
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 15}):
            pass

        (bucket,) = buckets_in(repo)
        assert {"rpm": 25} == await limiter.available("user-1", "gpt-4")
        assert (50_000, 2_000) == (bucket["b_rpm_cp"], bucket["b_rpm_ra"])

    async def test_usage_after_a_migration_counts_only_new_consumption(self, repo, clock):
        """Consumption before the migration is not counted again."""
        clock.time_ms = START_MS
        await repo.set_system_defaults([Limit.custom("rpm", 90, 1, 3_600)])
        await make_old(repo, bucket_of(repo))
        await migrations(repo).run()
        async with RateLimiter(repo).acquire("user-1", "gpt-4", {"rpm": 2}):
            pass

        snapshots, _ = await repo.get_usage_snapshots("user-1", window_type="hourly")
        assert [{"rpm": 2}] == [snapshot.counters for snapshot in snapshots]

    async def test_migration_moves_the_buckets_of_every_namespace(self, repo):
        """Deleted namespaces are included, since they may be recovered."""
        other = await repo.register_namespace("team-a")
        gone = await repo.register_namespace("team-b")
        await repo.delete_namespace("team-b")
        buckets = [old_bucket(one, "user-1", "gpt-4", {"rpm": RPM}) for one in (other, gone)]
        await make_old(repo, bucket_of(repo), *buckets)
        (done,) = await migrations(repo).run()

        moved = {f"{one}/BUCKET#user-1#gpt-4#0" for one in (repo.scope.namespace_id, other, gone)}
        assert (3, moved) == (done.moved, {one["PK"] for one in buckets_in(repo)})

    async def test_migration_moves_more_buckets_than_fit_one_page(self, repo, monkeypatch):
        """It reads page by page, among the other items of the entities."""
        monkeypatch.setattr(migrations_module, "_KEYS_PER_PAGE", 7)
        monkeypatch.setattr(migrations_module, "_ITEMS_AT_ONCE", 3)
        for number in range(5):
            await repo.create_entity(f"user-{number}")
            await repo.set_limits(f"user-{number}", [Limit.per_minute("rpm", 5)], "gpt-4")
        await make_old(repo, *(bucket_of(repo, f"user-{number}") for number in range(40)))
        (done,) = await migrations(repo).run()

        assert (40, 40, []) == (done.moved, len(buckets_in(repo)), old_buckets_in(repo))

    async def test_migration_keeps_a_bucket_that_already_exists_in_the_new_layout(self, repo, clock):
        """A client of the new schema wrote it, so it is newer."""
        clock.time_ms = START_MS
        await repo.set_system_defaults([Limit.custom("rpm", 90, 1, 3_600)])
        limiter = RateLimiter(repo)
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 85}):
            pass
        await make_old(repo, bucket_of(repo))
        (done,) = await migrations(repo).run()

        assert (0, 1, []) == (done.moved, done.superseded, old_buckets_in(repo))
        assert {"rpm": 5} == await limiter.available("user-1", "gpt-4")

    async def test_migration_reports_and_leaves_a_damaged_bucket(self, repo):
        """The other buckets are still moved."""
        damaged = bucket_of(repo, "user-2") | {"b_rpm_ra": "many"}
        await make_old(repo, bucket_of(repo), damaged)
        (done,) = await migrations(repo).run()

        assert (1, (f"{damaged['PK']} {damaged['SK']}",)) == (done.moved, done.damaged)
        assert [(damaged["PK"], damaged["SK"])] == old_buckets_in(repo)
        assert SCHEMA_VERSION == await schema_of(repo)

    async def test_migration_reads_a_lagging_index_again(self, repo):
        """Buckets that the index shows only later are moved as well."""

        class LaggingTable(Wrapped):
            def __init__(self, table):
                super().__init__(table)
                self.index_lag_s = 0.001
                self.looks = 0

            async def query(self, query):
                page = await super().query(query)
                self.looks += query.index == "GSI4"
                return type(page)([], None) if query.index == "GSI4" and self.looks == 1 else page

        await make_old(repo, bucket_of(repo))
        (done,) = await migrations(repo, LaggingTable).run()

        assert (1, []) == (done.moved, old_buckets_in(repo))


class TestConcurrentChanges:
    async def test_old_bucket_written_during_its_migration_moves_with_the_new_level(self, repo):
        """A client of the old schema takes from it between the read and the move."""

        async def take(table):
            key = Key(f"{repo.scope.namespace_id}/ENTITY#user-1", "#BUCKET#gpt-4")
            await table.write(Update(key, add={"b_rpm_tk": -30_000}))

        await make_old(repo, bucket_of(repo))
        (done,) = await migrations(repo, lambda table: InterveningTable(table, take)).run()

        (bucket,) = buckets_in(repo)
        assert (1, 10_000) == (done.moved, bucket["b_rpm_tk"])

    async def test_bucket_moved_by_a_concurrent_migration_is_counted_there(self, repo):
        """Both migrations complete."""

        async def move(table):
            await migrations(repo).run()

        await make_old(repo, bucket_of(repo), bucket_of(repo, "user-2"))
        (done,) = await migrations(repo, lambda table: InterveningTable(table, move)).run()

        assert (0, 2, []) == (done.moved, len(buckets_in(repo)), old_buckets_in(repo))
        assert SCHEMA_VERSION == await schema_of(repo)

    async def test_new_bucket_deleted_during_a_migration_is_created_from_the_old_one(self, repo):
        """The level is in one of the two at any time."""
        new = {"PK": f"{repo.scope.namespace_id}/BUCKET#user-1#gpt-4#0", "SK": "#STATE"}

        async def come_and_go(table):
            present = await table.get(Key(new["PK"], new["SK"])) is not None
            await table.write(Delete(Key(new["PK"], new["SK"])) if present else Put(new))

        await make_old(repo, bucket_of(repo))
        (done,) = await migrations(repo, lambda table: InterveningTable(table, come_and_go, 2)).run()

        (bucket,) = buckets_in(repo)
        assert (1, 40_000) == (done.moved, bucket["b_rpm_tk"])

    async def test_bucket_with_lasting_conflicts_fails_the_migration_with_its_key(self, repo, monkeypatch):
        """Nothing is lost, and the schema version stays the old one."""
        monkeypatch.setattr(migrations_module, "_PAUSES", Pauses(0.001, 0.001))

        async def hold(table):
            return Conflict()

        await make_old(repo, bucket_of(repo))
        with pytest.raises(RateLimiterUnavailable, match="ENTITY#user-1 #BUCKET#gpt-4"):
            await migrations(repo, lambda table: InterveningTable(table, hold, 1000)).run()

        assert (1, "0.9.0") == (len(old_buckets_in(repo)), await schema_of(repo))


class TestInterruptedMigrations:
    @pytest.mark.parametrize("after", [False, True], ids=["before a call", "after a call"])
    async def test_migration_interrupted_at_any_call_is_completed_by_the_next_run(self, repo, after):
        """At no point is a bucket in neither layout, or in both."""
        items = [bucket_of(repo, f"user-{number}") for number in range(4)]
        calls = 0
        while True:
            await make_old(repo, *items)
            try:
                await migrations(repo, lambda table, cut=calls: FailingAfterCallsTable(table, cut, after)).run()
                break
            except RateLimiterUnavailable:
                pass
            assert 4 == len(old_buckets_in(repo)) + len(buckets_in(repo))
            await migrations(repo).run()
            assert (0, 4, SCHEMA_VERSION) == (len(old_buckets_in(repo)), len(buckets_in(repo)), await schema_of(repo))
            for bucket in buckets_in(repo):
                assert 40_000 == bucket["b_rpm_tk"]
                await repo.scope.table.batch_delete([Key(bucket["PK"], bucket["SK"])])
            calls += 1

        assert 10 < calls

    async def test_dry_run_reports_the_same_counts_as_the_run_and_writes_nothing(self, repo):
        """The run that follows confirms the report."""
        new = {"PK": f"{repo.scope.namespace_id}/BUCKET#user-2#gpt-4#0", "SK": "#STATE"}
        damaged = bucket_of(repo, "user-3") | {"rf": None}
        await make_old(repo, bucket_of(repo), bucket_of(repo, "user-2"), damaged, new)
        before = everything_in(repo)
        (dry,) = await migrations(repo).run(dry_run=True)
        after = everything_in(repo)
        (done,) = await migrations(repo).run()

        assert before == after
        assert Migrated("1.0.0", SUMMARY, 1, 1, (f"{damaged['PK']} #BUCKET#gpt-4",), dry_run=True) == dry
        assert replace(dry, dry_run=False) == done


class TestRegistry:
    """Migrations defined by the test, which record that they ran."""

    @staticmethod
    def registry(ran, *targets, failing=()):
        def migration(target):
            async def carry_out(client, dry_run):
                ran.append((target, dry_run))
                if target in failing:
                    raise RateLimiterUnavailable(ConnectionError(target))
                return MigrationCount(moved=1)

            return Migration(target, f"to {target}", carry_out)

        return [migration(target) for target in targets]

    async def test_pending_migrations_run_in_order_up_to_the_current_schema(self, repo):
        """The version record names the principal."""
        ran = []
        await put(repo, version_item.to_item(VersionRecord("0.7.0", lambda_version="0.3.0")))
        found = migrations(repo, registry=self.registry(ran, "0.6.0", "0.7.0", "0.8.0", "0.9.0"))
        listed = [one.target for one in await found.run(dry_run=True)]
        ran.clear()
        done = await found.run(principal="ops")

        assert ["0.8.0", "0.9.0"] == listed == [one.target for one in done]
        assert [("0.8.0", False), ("0.9.0", False)] == ran
        record = await repo.get_version_record()
        assert (SCHEMA_VERSION, "0.3.0", "ops") == (record.schema_version, record.lambda_version, record.updated_by)
        assert [] == await found.run()

    async def test_run_after_a_failure_resumes_with_the_failed_migration(self, repo):
        """Earlier migrations are not run again."""
        ran = []
        await put(repo, version_item.to_item(VersionRecord("0.6.0")))
        with pytest.raises(RateLimiterUnavailable, match=r"0\.8\.0"):
            await migrations(repo, registry=self.registry(ran, "0.7.0", "0.8.0", "0.9.0", failing=["0.8.0"])).run()
        reached = await schema_of(repo)
        await migrations(repo, registry=self.registry(ran, "0.7.0", "0.8.0", "0.9.0")).run()

        assert "0.7.0" == reached
        assert ["0.7.0", "0.8.0", "0.8.0", "0.9.0"] == [target for target, _ in ran]

    async def test_dry_run_calls_every_migration_and_keeps_the_schema_version(self, repo):
        """Each migration gets ``dry_run=True``."""
        ran = []
        await put(repo, version_item.to_item(VersionRecord("0.6.0")))
        await migrations(repo, registry=self.registry(ran, "0.7.0", "0.8.0")).run(dry_run=True)

        assert ([("0.7.0", True), ("0.8.0", True)], "0.6.0") == (ran, await schema_of(repo))

    async def test_table_without_a_version_record_runs_every_migration(self, repo):
        """Its schema is unknown."""
        ran = []
        await repo.scope.table.write(Delete(version_item.key()))
        await migrations(repo, registry=self.registry(ran, "0.7.0", "0.8.0")).run()

        assert (["0.7.0", "0.8.0"], SCHEMA_VERSION) == ([target for target, _ in ran], await schema_of(repo))

    async def test_table_of_the_current_schema_is_not_changed(self, repo):
        """Only the version record is read."""
        before = everything_in(repo)

        assert [] == await migrations(repo).run()
        assert before == everything_in(repo)

    async def test_table_of_a_newer_schema_raises_incompatible_schema(self, repo):
        """An older package could only damage it."""
        await put(repo, version_item.to_item(VersionRecord("3.0.0")))

        with pytest.raises(IncompatibleSchemaError, match=r"3\.0\.0"):
            await migrations(repo).run()

    async def test_migration_with_an_invalid_principal_raises(self, repo):
        """The principal is checked as for every change."""
        with pytest.raises(ValidationError, match="principal"):
            await migrations(repo).run(principal="x" * 10_000)


class TestUpgrade:
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'limiter.db'}"

    async def test_upgrade_by_url_makes_an_old_table_usable(self, repo, url):
        """The command line upgrades in the same way."""
        await make_old(repo, bucket_of(repo))
        with pytest.raises(IncompatibleSchemaError):
            await Repository.open(url)
        dry = await upgrade(url, dry_run=True)
        done = await upgrade(url, principal="ops")
        async with await Repository.open(url) as opened:
            record = await opened.get_version_record()

        assert ([1, 0], [1, 0], []) == ([one.moved for one in dry], [one.moved for one in done], await upgrade(url))
        assert (SCHEMA_VERSION, "ops") == (record.schema_version, record.updated_by)
