"""Administration on real engines, in both trees: opening, namespaces, entities, audit, buckets, usage, and purging."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, session, tree
from zae_limiter import (
    EntityHasChildrenError,
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    Repository,
    SyncRepository,
)
from zae_limiter._async import dynamodb_table as async_table
from zae_limiter._sync import dynamodb_table as sync_table

TEN_YEARS_S = 10 * 365 * 24 * 3600
SLOW = [Limit.custom("rpm", 10, 1, TEN_YEARS_S)]
"""A limit of which nothing comes back while a test runs."""
DEADLINE_S = 60.0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def place(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}"


@pytest.fixture
def repo(kind: Any, place: str) -> Iterator[Any]:
    opened = kind.open(f"{place}&create=true", deadline_s=DEADLINE_S)
    opened.set_system_defaults(SLOW)
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


def take(limiter: Any, entity_id: str = "user-1", resource: str = "gpt-4", **consume: int) -> None:
    """Take and keep."""
    with limiter.acquire(entity_id, resource, consume):
        pass


class TestOpening:
    def test_what_was_created_is_found_without_creating(self, kind: Any, place: str, repo: Any) -> None:
        """A URL without create opens the same table; what is stored is there."""
        with kind.open(place, deadline_s=DEADLINE_S) as other:
            assert place == other.name
            assert SLOW == other.get_system_defaults()[0]

    def test_creating_again_changes_nothing(self, kind: Any, place: str, repo: Any) -> None:
        """Every process of a fleet may be started with the same URL."""
        with kind.open(f"{place}&create=true", deadline_s=DEADLINE_S) as other:
            assert SLOW == other.get_system_defaults()[0]
            assert ["default"] == [namespace.name for namespace in other.list_namespaces()]

    def test_a_missing_table_is_named(self, kind: Any, place: str, table_name: str) -> None:
        """The message says what to do about it."""
        with pytest.raises(InfrastructureNotFoundError) as caught:
            kind.open(place, deadline_s=DEADLINE_S)
        assert table_name == caught.value.name
        assert f"There is no limiter {table_name!r}" in str(caught.value)

    def test_a_missing_namespace_is_named(self, kind: Any, place: str, repo: Any) -> None:
        """Only the default one is there from the beginning."""
        for url in (place, f"{place}&create=true"):
            with pytest.raises(NamespaceNotFoundError) as caught:
                kind.open(url, namespace="team-a", deadline_s=DEADLINE_S)
            assert "team-a" == caught.value.namespace

    def test_a_registered_namespace_is_opened(self, kind: Any, place: str, repo: Any) -> None:
        """By its name, and with its own data."""
        repo.register_namespace("team-a")

        with kind.open(place, namespace="team-a", deadline_s=DEADLINE_S) as other:
            assert [] == other.get_system_defaults()[0]

    def test_the_table_answers_a_ping(self, repo: Any, limiter: Any) -> None:
        """It is there."""
        assert repo.ping()
        assert limiter.is_available(DEADLINE_S)

    def test_what_the_table_can_do_is_told(self, repo: Any) -> None:
        """A deployed table has partitions that take so many writes, and a stream."""
        capabilities = repo.capabilities

        assert (1000, True) == (capabilities.partition_writes_per_second, capabilities.supports_change_streams)


async def test_connect_finds_what_was_created(engine: Engine, table_name: str) -> None:
    """By name and region, as a deployed limiter is found."""
    url = f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"
    async with await Repository.open(url, session=session(), deadline_s=DEADLINE_S) as made:
        await made.set_system_defaults(SLOW)
    options = {"endpoint_url": engine.url, "session": session(), "deadline_s": DEADLINE_S}

    async with await Repository.connect(table_name, "us-east-1", **options) as repo:
        assert (SLOW, None) == await repo.get_system_defaults()
    with SyncRepository.connect(table_name, "us-east-1", **options) as other:
        assert (SLOW, None) == other.get_system_defaults()
    with pytest.raises(InfrastructureNotFoundError):
        await Repository.connect(f"{table_name}-no", "us-east-1", **options)


class TestNamespaces:
    def test_each_has_limits_and_buckets_of_its_own(self, kind: Any, repo: Any, limiter: Any) -> None:
        """The same names in another namespace are others."""
        repo.register_namespace("team-a")
        scoped = repo.namespace("team-a")
        scoped.set_system_defaults([Limit.custom("rpm", 3, 1, TEN_YEARS_S)])
        theirs = kind.limiter(scoped)
        take(limiter, rpm=4)
        take(theirs, rpm=1)

        assert ({"rpm": 6}, {"rpm": 2}) == (
            limiter.available("user-1", "gpt-4"),
            theirs.available("user-1", "gpt-4"),
        )

    def test_a_scoped_repository_shares_connection_and_caches(self, repo: Any) -> None:
        """Closing it leaves the other open."""
        repo.register_namespace("team-a")
        first, second = repo.namespace("team-a"), repo.namespace("team-a")
        first.close()

        assert first.scope.table is repo.scope.table
        assert first.scope.caches is second.scope.caches
        assert repo.ping()

    def test_one_that_is_not_registered_is_named(self, repo: Any) -> None:
        """A typing error does not make a namespace."""
        with pytest.raises(NamespaceNotFoundError) as caught:
            repo.namespace("team-b")
        assert "team-b" == caught.value.namespace

    def test_one_that_was_deleted_is_recovered(self, repo: Any, limiter: Any) -> None:
        """Nothing of it was lost."""
        namespace_id = repo.register_namespace("team-a")
        repo.namespace("team-a").set_system_defaults(SLOW)
        repo.delete_namespace("team-a")
        orphans = [namespace.id for namespace in repo.list_orphan_namespaces()]
        repo.recover_namespace(namespace_id)

        assert [namespace_id] == orphans
        assert SLOW == repo.namespace("team-a").get_system_defaults()[0]

    def test_one_that_is_purged_is_gone_and_the_others_stay(
        self, kind: Any, repo: Any, limiter: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every item of it, found by its index, which may lag."""
        for table in (async_table.DynamoTable, sync_table.DynamoTable):
            monkeypatch.setattr(table, "index_lag_s", 0.001)
        namespace_id = repo.register_namespace("team-a")
        scoped = repo.namespace("team-a")
        scoped.set_system_defaults(SLOW)
        for number in range(30):
            take(kind.limiter(scoped), f"user-{number}", rpm=1)
        take(limiter, rpm=1)
        repo.delete_namespace("team-a")

        assert 32 == repo.purge_namespace(namespace_id)
        assert [] == repo.list_orphan_namespaces()
        assert {"rpm": 9} == limiter.available("user-1", "gpt-4")
        with pytest.raises(NamespaceNotFoundError):
            repo.namespace("team-a")


class TestEntities:
    def test_one_that_was_created_is_found_with_its_children(self, repo: Any) -> None:
        """Parent and cascade are what they were created with."""
        repo.create_entity("project", name="A project")
        for child in ("key-2", "key-1"):
            repo.create_entity(child, parent_id="project", cascade=True)

        assert "A project" == repo.get_entity("project").name
        assert [("key-1", True), ("key-2", True)] == [(one.id, one.cascade) for one in repo.get_children("project")]
        assert repo.get_entity("nobody") is None

    def test_one_that_is_deleted_takes_limits_and_buckets_along(self, repo: Any, limiter: Any) -> None:
        """Made again it starts anew; its audit stays."""
        repo.create_entity("user-1")
        repo.set_limits("user-1", [Limit.custom("rpm", 5, 1, TEN_YEARS_S)], "gpt-4")
        take(limiter, rpm=3)
        repo.delete_entity("user-1")

        assert ([], []) == (repo.get_buckets("user-1"), repo.get_limits("user-1", "gpt-4"))
        assert {"rpm": 10} == limiter.available("user-1", "gpt-4")
        assert "entity_deleted" in [event.action for event in repo.get_audit_events("user-1")]

    def test_one_with_children_stays(self, repo: Any) -> None:
        """They would lose their parent."""
        repo.create_entity("project")
        repo.create_entity("key-1", parent_id="project")

        with pytest.raises(EntityHasChildrenError):
            repo.delete_entity("project")


class TestLooking:
    def test_every_change_is_told_to_the_audit(self, repo: Any) -> None:
        """The newest first, page by page."""
        repo.create_entity("user-1", principal="alice")
        for capacity in (1, 2, 3):
            repo.set_limits("user-1", [Limit.custom("rpm", capacity, 1, TEN_YEARS_S)], "gpt-4", principal="bob")
        newest = repo.get_audit_events("user-1", limit=2)
        older = repo.get_audit_events("user-1", start_event_id=newest[-1].event_id)

        assert ["bob", "bob", "bob", "alice"] == [event.principal for event in (*newest, *older)]
        assert ["limits_set"] * 3 + ["entity_created"] == [event.action for event in (*newest, *older)]

    def test_limits_that_were_set_are_listed(self, repo: Any) -> None:
        """By resource and by entity."""
        repo.set_resource_defaults("gpt-4", SLOW)
        for entity_id in ("user-2", "user-1"):
            repo.set_limits(entity_id, SLOW, "gpt-4")
        repo.delete_limits("user-2", "gpt-4")

        assert ["gpt-4"] == repo.list_resources_with_defaults()
        assert ["gpt-4"] == repo.list_resources_with_entity_configs()
        assert (["user-1"], None) == tuple(repo.list_entities_with_custom_limits("gpt-4"))

    def test_buckets_show_what_was_taken(self, repo: Any, limiter: Any) -> None:
        """Of one resource, or of all."""
        take(limiter, rpm=3)
        take(limiter, resource="gpt-5", rpm=1)

        found = [(one.resource, one.tokens, one.total_consumed_milli) for one in repo.get_buckets("user-1")]
        assert [("gpt-4", 7, 3_000), ("gpt-5", 9, 1_000)] == sorted(found)
        assert [7] == [one.tokens for one in repo.get_buckets("user-1", "gpt-4")]

    def test_a_resource_is_summed_up(self, repo: Any, limiter: Any) -> None:
        """Over all entities that have used it, or over those without a parent."""
        repo.create_entity("project")
        repo.create_entity("key-1", parent_id="project", cascade=True)
        take(limiter, "key-1", rpm=3)
        take(limiter, "user-1", rpm=5)
        every = repo.get_resource_capacity("gpt-4", "rpm")
        parents = repo.get_resource_capacity("gpt-4", "rpm", parents_only=True)

        assert (30, 19) == (every.total_capacity, every.total_available)
        assert (20, 12) == (parents.total_capacity, parents.total_available)

    def test_usage_that_nobody_has_counted_is_none(self, repo: Any, limiter: Any) -> None:
        """Without an aggregator behind the table's stream there are no snapshots, and asking is no error."""
        take(limiter, rpm=3)

        assert ([], None) == tuple(repo.get_usage_snapshots("user-1"))
        assert ([], None) == tuple(repo.get_usage_snapshots(resource="gpt-4"))
        assert (0, {}) == (repo.get_usage_summary("user-1").snapshot_count, repo.get_usage_summary("user-1").total)
