"""A purge removes every item of a namespace and no other, even if it is interrupted and repeated."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import (
    Limit,
    NamespaceNotFoundError,
    NamespaceStateError,
    SyncRateLimiter,
    RateLimiterUnavailable,
    SyncRepository,
)
from zae_limiter._sync.store import namespaces

from .clients import SettableClock, Wrapped, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60)]


class InterruptedTable(Wrapped):
    """A table that becomes unavailable after ``deletes_left`` deletes, in the middle of a batch."""

    def __init__(self, table):
        super().__init__(table)
        self.deletes_left = 0

    def batch_delete(self, keys):
        some = keys[: self.deletes_left]
        self.deletes_left -= len(some)
        super().batch_delete(some)
        if len(some) < len(keys):
            raise RateLimiterUnavailable(ConnectionError("the store is unavailable"))


class LaggingTable(Wrapped):
    """A table whose index is empty at the first query."""

    def __init__(self, table):
        super().__init__(table)
        self.index_lag_s = 0.001
        self.looks = 0

    def query(self, query):
        page = super().query(query)
        if query.index != "GSI4":
            return page
        self.looks += 1
        return type(page)([], None) if self.looks == 1 else page


def fill(repo, entities=3):
    """Store at least one item of every kind in a namespace."""
    repo.set_system_defaults(LIMITS)
    repo.set_resource_defaults("gpt-4", LIMITS)
    limiter = SyncRateLimiter(repo)
    for number in range(entities):
        repo.set_limits(f"user-{number}", LIMITS, "gpt-4")
        take(limiter, {"rpm": 1}, entity_id=f"user-{number}")
        repo.delete_limits(f"user-{number}", "gpt-4")
        repo.create_entity(f"key-{number}", parent_id=None)


def registered(repo, name):
    """Return the repository of a new namespace, and its id."""
    namespace_id = repo.register_namespace(name)
    return repo.namespace(name), namespace_id


def keys_of_namespace(repo, namespace_id):
    """Return the keys of all items of a namespace, however they are marked."""
    return {
        key
        for key, item in everything_in(repo).items()
        if key[0].startswith(f"{namespace_id}/")
        or item.get("GSI4PK") == namespace_id
        or key[1] == f"#NSID#{namespace_id}"
    }


def without_events(items):
    """Return the items without the audit events of namespaces."""
    return {key: item for key, item in items.items() if "$NAMESPACE:" not in key[0]}


def test_purge_removes_all_items_of_the_namespace_and_no_others(repo):
    """Only the audit events of the registry remain."""
    fill(repo)
    other, _ = registered(repo, "team-b")
    fill(other)
    before = without_events(everything_in(repo))
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    items = len(keys_of_namespace(repo, namespace_id)) - 1
    repo.delete_namespace("team-a")

    assert items == repo.purge_namespace(namespace_id)
    assert set() == keys_of_namespace(repo, namespace_id)
    assert before == without_events(everything_in(repo))
    assert [] == repo.list_orphan_namespaces()


def test_every_item_is_in_the_index_of_its_namespace(repo):
    """An item that is not would survive a purge."""
    fill(repo)

    assert {key[0].partition("/")[0] for key in everything_in(repo)} == {"_", repo.scope.namespace_id}
    assert [] == [key for key, item in everything_in(repo).items() if item.get("GSI4PK") != key[0].partition("/")[0]]


def test_purge_removes_more_items_than_fit_one_page(repo, monkeypatch):
    """It works page by page."""
    monkeypatch.setattr(namespaces, "_KEYS_PER_PAGE", 7)
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped, entities=20)
    repo.delete_namespace("team-a")

    assert 60 < repo.purge_namespace(namespace_id)
    assert set() == keys_of_namespace(repo, namespace_id)


def test_purge_of_an_empty_namespace_removes_only_its_record(repo):
    """The count of removed items is zero."""
    _, namespace_id = registered(repo, "team-a")
    repo.delete_namespace("team-a")

    assert 0 == repo.purge_namespace(namespace_id)
    assert [] == repo.list_orphan_namespaces()


def test_purge_of_an_active_namespace_raises_and_removes_nothing(repo):
    """It must be deleted first."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    before = everything_in(repo)

    with pytest.raises(NamespaceStateError, match="it is active"):
        repo.purge_namespace(namespace_id)
    with pytest.raises(NamespaceStateError, match="it is active"):
        repo.purge_namespace(repo.scope.namespace_id)
    assert before == everything_in(repo)


def test_purged_namespace_cannot_be_purged_again_or_recovered(repo):
    """It is not found any more."""
    _, namespace_id = registered(repo, "team-a")
    repo.delete_namespace("team-a")
    repo.purge_namespace(namespace_id)

    for verb in (repo.purge_namespace, repo.recover_namespace):
        with pytest.raises(NamespaceNotFoundError):
            verb(namespace_id)


def test_purge_leaves_a_new_namespace_of_the_same_name_unchanged(repo):
    """The two have different ids."""
    first, first_id = registered(repo, "team-a")
    fill(first)
    repo.delete_namespace("team-a")
    second, second_id = registered(repo, "team-a")
    fill(second)
    before = keys_of_namespace(repo, second_id)
    repo.purge_namespace(first_id)

    assert set() == keys_of_namespace(repo, first_id)
    assert before == keys_of_namespace(repo, second_id)
    assert {"rpm": 59} == SyncRateLimiter(second).available("user-1", "gpt-4")


@pytest.mark.parametrize("deletes", [0, 1, 5, 16])
def test_interrupted_purge_is_completed_by_the_next_one(repo, deletes):
    """Until then it is listed as purging, and cannot be recovered."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    items = len(keys_of_namespace(repo, namespace_id)) - 1
    broken = another(repo, InterruptedTable)
    broken.scope.table.deletes_left = deletes

    with pytest.raises(RateLimiterUnavailable):
        broken.purge_namespace(namespace_id)
    assert [(namespace_id, "purging")] == [(one.id, one.status) for one in repo.list_orphan_namespaces()]
    with pytest.raises(NamespaceStateError, match="it is purging"):
        repo.recover_namespace(namespace_id)
    assert items - deletes == repo.purge_namespace(namespace_id)
    assert set() == keys_of_namespace(repo, namespace_id)


def test_interrupted_purge_records_one_begun_and_one_purged_event(repo):
    """Each names the principal of its attempt."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    for principal in ("alice", "bob"):
        with pytest.raises(RateLimiterUnavailable):
            another(repo, InterruptedTable).purge_namespace(namespace_id, principal=principal)
    repo.purge_namespace(namespace_id, principal="carol")
    newest = (repo.get_audit_events("$NAMESPACE:team-a"))[:2]

    assert [("namespace_purged", "carol"), ("namespace_purge_begun", "alice")] == [
        (str(event.action), event.principal) for event in newest
    ]


def test_purge_reports_progress_that_adds_up_to_the_result(repo):
    """``progress`` gets the count of each step."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    steps = []
    removed = repo.purge_namespace(namespace_id, progress=steps.append)

    assert 0 < removed == sum(steps)


def test_concurrent_purges_of_one_namespace_both_complete(repo):
    """Items that one has removed are no error for the other, the namespace record included."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")

    class RacedTable(Wrapped):
        def batch_delete(self, keys):
            if keys:
                repo.purge_namespace(namespace_id)
            super().batch_delete(keys)

    another(repo, RacedTable).purge_namespace(namespace_id)

    events = repo.get_audit_events("$NAMESPACE:team-a")

    assert set() == keys_of_namespace(repo, namespace_id)
    assert 1 == len([event for event in events if event.action == "namespace_purged"])


def test_purge_queries_a_lagging_index_until_it_is_empty_twice(repo):
    """There is a pause in between; one empty result proves nothing."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    lagging = another(repo, LaggingTable)

    lagging.purge_namespace(namespace_id)

    assert set() == keys_of_namespace(repo, namespace_id)
    assert 4 == lagging.scope.table.looks


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=4), st.integers(0, 4), st.integers(1, 9))
def test_purge_interrupted_any_number_of_times_removes_exactly_its_namespace(interruptions, entities, page):
    """At any item and in any page; other namespaces never lose an item."""
    with SyncRepository.open("memory://", clock=SettableClock(), random=Random(3)) as repo:
        fill(repo, entities)
        before = without_events(everything_in(repo))
        scoped, namespace_id = registered(repo, "team-a")
        fill(scoped, entities)
        repo.delete_namespace("team-a")
        usual, namespaces._KEYS_PER_PAGE = namespaces._KEYS_PER_PAGE, page
        try:
            purge_with_interruptions(repo, namespace_id, interruptions)
        finally:
            namespaces._KEYS_PER_PAGE = usual

        assert before == without_events(everything_in(repo))


def purge_with_interruptions(repo, namespace_id, interruptions):
    """Purge with an interruption after each of these numbers of deletes, then without."""
    for deletes in interruptions:
        broken = another(repo, InterruptedTable)
        broken.scope.table.deletes_left = deletes
        try:
            broken.purge_namespace(namespace_id)
        except RateLimiterUnavailable:
            continue
        return
    repo.purge_namespace(namespace_id)


def test_lease_that_ends_after_its_namespace_was_purged_writes_nothing(repo):
    """There is no bucket left to debit."""
    repo.register_namespace("tenant")
    tenant = repo.namespace("tenant")
    limits = [Limit.per_minute("rpm", 10)]
    with SyncRateLimiter(tenant).acquire("user-1", "gpt-4", {"rpm": 1}, limits=limits) as lease:
        lease.adjust(rpm=5)
        gone = repo.delete_namespace("tenant")
        repo.purge_namespace(gone.id)

    assert [] == [key for key in everything_in(repo) if key[0].startswith(f"{gone.id}/")]


class InterveningTable(Wrapped):
    """A table where another client acts right before the first transaction that creates a bucket."""

    def __init__(self, table):
        super().__init__(table)
        self.intervene = None

    def transact(self, operations, token, *, until_s=None):
        if self.intervene is not None:
            intervene, self.intervene = self.intervene, None
            intervene()
        return super().transact(operations, token, until_s=until_s)


@pytest.mark.parametrize("entity_id", ["user-9", "child"])
def test_bucket_creation_in_a_namespace_purged_concurrently_raises(repo, entity_id):
    """The same holds for a child and its parent, which are created together; the cache is cleared."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    scoped.create_entity("child", parent_id="key-0", cascade=True)
    client = another(scoped, InterveningTable)
    client.scope.table.intervene = lambda: purge(repo, namespace_id)

    with pytest.raises(NamespaceNotFoundError, match="team-a"):
        take(SyncRateLimiter(client), {"rpm": 1}, entity_id=entity_id)
    assert set() == keys_of_namespace(repo, namespace_id)
    assert 0 == client.get_cache_stats().size


def test_debit_in_a_namespace_purged_concurrently_creates_no_bucket(repo):
    """The exit of the lease raises no error."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    client = another(scoped, InterveningTable)
    with SyncRateLimiter(client).acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)
        scoped.delete_entity("key-1")
        client.scope.table.intervene = lambda: purge(repo, namespace_id)

    assert None is client.scope.table.intervene
    assert set() == keys_of_namespace(repo, namespace_id)


def purge(repo, namespace_id):
    """Delete and purge a namespace."""
    repo.delete_namespace("team-a")
    repo.purge_namespace(namespace_id)
