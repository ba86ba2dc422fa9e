"""Administration on real engines, async and sync: opening, namespaces, entities, audit, buckets, usage and purging."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, session, tree
from zae_limiter import (
    ALL_RESOURCES,
    EntityHasChildrenError,
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    Repository,
    SyncRepository,
    usd,
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
    def test_an_existing_table_is_opened_without_create(self, kind: Any, place: str, repo: Any) -> None:
        """Stored data is found."""
        with kind.open(place, deadline_s=DEADLINE_S) as other:
            assert place.removeprefix("dynamodb://").partition("?")[0] == other.name
            assert SLOW == other.get_system_defaults()[0]

    def test_opening_with_create_again_changes_nothing(self, kind: Any, place: str, repo: Any) -> None:
        """Every process of a fleet may start with the same URL."""
        with kind.open(f"{place}&create=true", deadline_s=DEADLINE_S) as other:
            assert SLOW == other.get_system_defaults()[0]
            assert ["default"] == [namespace.name for namespace in other.list_namespaces()]

    def test_opening_a_missing_table_names_it(self, kind: Any, place: str, table_name: str) -> None:
        """The message says what to do."""
        with pytest.raises(InfrastructureNotFoundError) as caught:
            kind.open(place, deadline_s=DEADLINE_S)
        assert table_name == caught.value.name
        assert f"There is no limiter {table_name!r}" in str(caught.value)

    def test_opening_a_missing_namespace_names_it(self, kind: Any, place: str, repo: Any) -> None:
        """Only the default namespace exists from the start."""
        for url in (place, f"{place}&create=true"):
            with pytest.raises(NamespaceNotFoundError) as caught:
                kind.open(url, namespace="team-a", deadline_s=DEADLINE_S)
            assert "team-a" == caught.value.namespace

    def test_opening_a_registered_namespace_uses_its_data(self, kind: Any, place: str, repo: Any) -> None:
        """The namespace is given by name."""
        repo.register_namespace("team-a")

        with kind.open(place, namespace="team-a", deadline_s=DEADLINE_S) as other:
            assert [] == other.get_system_defaults()[0]

    def test_is_available_of_an_existing_table_is_true(self, repo: Any, limiter: Any) -> None:
        """The table answers a ping."""
        assert repo.ping()
        assert limiter.is_available(DEADLINE_S)

    def test_capabilities_of_a_dynamodb_table_are_reported(self, repo: Any) -> None:
        """It has partitions with a write limit, and a stream."""
        capabilities = repo.capabilities

        assert (1000, True) == (capabilities.partition_writes_per_second, capabilities.supports_change_streams)


async def test_connect_finds_a_table_by_name_and_region(engine: Engine, table_name: str) -> None:
    """A deployed limiter is found in the same way."""
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
    def test_each_namespace_has_its_own_limits_and_buckets(self, kind: Any, repo: Any, limiter: Any) -> None:
        """The same names in another namespace are separate."""
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
        """Closing it keeps the other open."""
        repo.register_namespace("team-a")
        first, second = repo.namespace("team-a"), repo.namespace("team-a")
        first.close()

        assert first.scope.table is repo.scope.table
        assert first.scope.caches is second.scope.caches
        assert repo.ping()

    def test_a_namespace_that_is_not_registered_raises_an_error(self, repo: Any) -> None:
        """A typing error does not create a namespace."""
        with pytest.raises(NamespaceNotFoundError) as caught:
            repo.namespace("team-b")
        assert "team-b" == caught.value.namespace

    def test_a_deleted_namespace_is_recovered_with_its_data(self, repo: Any, limiter: Any) -> None:
        """Deleting loses nothing."""
        namespace_id = repo.register_namespace("team-a")
        repo.namespace("team-a").set_system_defaults(SLOW)
        repo.delete_namespace("team-a")
        orphans = [namespace.id for namespace in repo.list_orphan_namespaces()]
        repo.recover_namespace(namespace_id)

        assert [namespace_id] == orphans
        assert SLOW == repo.namespace("team-a").get_system_defaults()[0]

    def test_a_purged_namespace_is_removed_and_others_stay(
        self, kind: Any, repo: Any, limiter: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every item is found by its index, which may lag."""
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
    def test_an_entity_is_found_with_its_children(self, repo: Any) -> None:
        """Parent and cascade are as created."""
        repo.create_entity("project", name="A project")
        for child in ("key-2", "key-1"):
            repo.create_entity(child, parent_id="project", cascade=True)

        assert "A project" == repo.get_entity("project").name
        assert [("key-1", True), ("key-2", True)] == [(one.id, one.cascade) for one in repo.get_children("project")]
        assert repo.get_entity("nobody") is None

    def test_metadata_is_returned_exactly_as_it_was_given(self, repo: Any) -> None:
        """A number of DynamoDB has 38 digits and exponents up to 125; a float keeps its own."""
        numbers = [0.1, 1.0, -0.0, 1e300, 5e-324, 1, True]
        metadata = {"tier": "gold", "seats": 10**30, "numbers": numbers, "owner": {"name": "Zo\u00eb", "tags": []}}
        repo.create_entity("key-1", metadata=metadata)
        found = repo.get_entity("key-1").metadata

        assert metadata == found
        assert repr(numbers) == repr(found["numbers"])

    def test_deleting_an_entity_removes_its_limits_and_buckets(self, repo: Any, limiter: Any) -> None:
        """Created again, it starts empty; its audit events stay."""
        repo.create_entity("user-1")
        repo.set_limits("user-1", [Limit.custom("rpm", 5, 1, TEN_YEARS_S)], "gpt-4")
        take(limiter, rpm=3)
        repo.delete_entity("user-1")

        assert ([], []) == (repo.get_buckets("user-1"), repo.get_limits("user-1", "gpt-4"))
        assert {"rpm": 10} == limiter.available("user-1", "gpt-4")
        assert "entity_deleted" in [event.action for event in repo.get_audit_events("user-1")]

    def test_deleting_an_entity_with_children_is_refused(self, repo: Any) -> None:
        """The children would lose their parent."""
        repo.create_entity("project")
        repo.create_entity("key-1", parent_id="project")

        with pytest.raises(EntityHasChildrenError):
            repo.delete_entity("project")


class TestReports:
    def test_every_change_is_recorded_in_the_audit(self, repo: Any) -> None:
        """Events are listed newest first, page by page."""
        repo.create_entity("user-1", principal="alice")
        for capacity in (1, 2, 3):
            repo.set_limits("user-1", [Limit.custom("rpm", capacity, 1, TEN_YEARS_S)], "gpt-4", principal="bob")
        newest = repo.get_audit_events("user-1", limit=2)
        older = repo.get_audit_events("user-1", start_event_id=newest[-1].event_id)

        assert ["bob", "bob", "bob", "alice"] == [event.principal for event in (*newest, *older)]
        assert ["limits_set"] * 3 + ["entity_created"] == [event.action for event in (*newest, *older)]

    def test_stored_limits_are_listed(self, repo: Any) -> None:
        """They are listed by resource and by entity."""
        repo.set_resource_defaults("gpt-4", SLOW)
        for entity_id in ("user-2", "user-1"):
            repo.set_limits(entity_id, SLOW, "gpt-4")
        repo.delete_limits("user-2", "gpt-4")

        assert ["gpt-4"] == repo.list_resources_with_defaults()
        assert ["gpt-4"] == repo.list_resources_with_entity_configs()
        assert (["user-1"], None) == tuple(repo.list_entities_with_custom_limits("gpt-4"))

    def test_buckets_show_what_was_taken(self, repo: Any, limiter: Any) -> None:
        """They are listed for one resource or for all."""
        take(limiter, rpm=3)
        take(limiter, resource="gpt-5", rpm=1)

        found = [(one.resource, one.tokens, one.total_consumed_milli) for one in repo.get_buckets("user-1")]
        assert [("gpt-4", 7, 3_000), ("gpt-5", 9, 1_000)] == sorted(found)
        assert [7] == [one.tokens for one in repo.get_buckets("user-1", "gpt-4")]

    def test_balances_show_what_is_left_of_every_limit(self, repo: Any, limiter: Any) -> None:
        """Those across resources and those that were never used are listed too."""
        spend = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD", warn_at=(0.8, 1))
        repo.set_limits("user-1", [spend, *SLOW], "gpt-4")
        repo.set_limits("user-1", [Limit.concurrent("slots", 3)], ALL_RESOURCES)
        repo.set_limits("user-1", [Limit.quota("soft", 5, "week", enforce=False)], "search")
        take(limiter, rpm=3, spend=usd("487.50"))
        take(limiter, resource="gpt-5", rpm=1)

        found = repo.get_balances("user-1")
        assert [
            ("_all_", "slots", 3, None),
            ("gpt-4", "rpm", 7, None),
            ("gpt-4", "spend", usd("12.50"), "USD"),
            ("gpt-5", "rpm", 9, None),
            ("search", "soft", 5, None),
        ] == [(one.resource, one.limit_name, one.available, one.unit) for one in found]
        assert [spend] == [one.limit for one in found if one.limit_name == "spend"]

    def test_resource_capacity_sums_all_entities(self, repo: Any, limiter: Any) -> None:
        """It may be restricted to entities without a parent."""
        repo.create_entity("project")
        repo.create_entity("key-1", parent_id="project", cascade=True)
        take(limiter, "key-1", rpm=3)
        take(limiter, "user-1", rpm=5)
        every = repo.get_resource_capacity("gpt-4", "rpm")
        parents = repo.get_resource_capacity("gpt-4", "rpm", parents_only=True)

        assert (30, 19) == (every.total_capacity, every.total_available)
        assert (20, 12) == (parents.total_capacity, parents.total_available)

    def test_usage_without_an_aggregator_is_empty(self, repo: Any, limiter: Any) -> None:
        """There are no snapshots, and reading them is not an error."""
        take(limiter, rpm=3)

        assert ([], None) == tuple(repo.get_usage_snapshots("user-1"))
        assert ([], None) == tuple(repo.get_usage_snapshots(resource="gpt-4"))
        assert (0, {}) == (repo.get_usage_summary("user-1").snapshot_count, repo.get_usage_summary("user-1").total)
