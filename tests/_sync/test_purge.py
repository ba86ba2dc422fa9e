"""A purge removes every item of a namespace and no other, interrupted and repeated included."""  # generated from _async by tools/mirror.py; do not edit

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
    """A table that goes away after so many items were deleted, in the middle of a batch."""

    def __init__(self, table):
        super().__init__(table)
        self.deletes_left = 0

    def batch_delete(self, keys):
        some = keys[: self.deletes_left]
        self.deletes_left -= len(some)
        super().batch_delete(some)
        if len(some) < len(keys):
            raise RateLimiterUnavailable(ConnectionError("the store is away"))


class LaggingTable(Wrapped):
    """A table whose index shows an item only at the second look after a pause."""

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
    """Put something of every kind into a namespace."""
    repo.set_system_defaults(LIMITS)
    repo.set_resource_defaults("gpt-4", LIMITS)
    limiter = SyncRateLimiter(repo)
    for number in range(entities):
        repo.set_limits(f"user-{number}", LIMITS, "gpt-4")
        take(limiter, {"rpm": 1}, entity_id=f"user-{number}")
        repo.delete_limits(f"user-{number}", "gpt-4")
        repo.create_entity(f"key-{number}", parent_id=None)


def registered(repo, name):
    """Return a namespace's repository, its id, and the table's items before it held anything."""
    namespace_id = repo.register_namespace(name)
    return repo.namespace(name), namespace_id


def of_namespace(repo, namespace_id):
    """Return the keys of all items of a namespace, however they are marked."""
    return {
        key
        for key, item in everything_in(repo).items()
        if key[0].startswith(f"{namespace_id}/")
        or item.get("GSI4PK") == namespace_id
        or key[1] == f"#NSID#{namespace_id}"
    }


def without_events(items):
    """Return the items but for the events that tell of namespaces."""
    return {key: item for key, item in items.items() if "$NAMESPACE:" not in key[0]}


def test_nothing_of_it_is_left_and_all_else_is(repo):
    """The table is as if it had never been registered, but for the audit of the registry."""
    fill(repo)
    other, _ = registered(repo, "team-b")
    fill(other)
    before = without_events(everything_in(repo))
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    items = len(of_namespace(repo, namespace_id)) - 1
    repo.delete_namespace("team-a")

    assert items == repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)
    assert before == without_events(everything_in(repo))
    assert [] == repo.list_orphan_namespaces()


def test_every_item_is_found_by_its_namespace(repo):
    """An item without the mark would survive a purge."""
    fill(repo)

    assert {key[0].partition("/")[0] for key in everything_in(repo)} == {"_", repo.scope.namespace_id}
    assert [] == [key for key, item in everything_in(repo).items() if item.get("GSI4PK") != key[0].partition("/")[0]]


def test_a_namespace_larger_than_a_page_is_purged(repo, monkeypatch):
    """Page by page."""
    monkeypatch.setattr(namespaces, "_KEYS_PER_PAGE", 7)
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped, entities=20)
    repo.delete_namespace("team-a")

    assert 60 < repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)


def test_an_empty_namespace_is_purged(repo):
    """Only its record goes."""
    _, namespace_id = registered(repo, "team-a")
    repo.delete_namespace("team-a")

    assert 0 == repo.purge_namespace(namespace_id)
    assert [] == repo.list_orphan_namespaces()


def test_an_active_namespace_is_not_purged(repo):
    """Nothing of it is touched; it must be deleted first."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    before = everything_in(repo)

    with pytest.raises(NamespaceStateError, match="it is active"):
        repo.purge_namespace(namespace_id)
    with pytest.raises(NamespaceStateError, match="it is active"):
        repo.purge_namespace(repo.scope.namespace_id)
    assert before == everything_in(repo)


def test_what_was_purged_is_gone(repo):
    """It can be neither purged again nor recovered."""
    _, namespace_id = registered(repo, "team-a")
    repo.delete_namespace("team-a")
    repo.purge_namespace(namespace_id)

    for verb in (repo.purge_namespace, repo.recover_namespace):
        with pytest.raises(NamespaceNotFoundError):
            verb(namespace_id)


def test_the_new_holder_of_a_name_is_spared(repo):
    """It has the name, not the id."""
    first, first_id = registered(repo, "team-a")
    fill(first)
    repo.delete_namespace("team-a")
    second, second_id = registered(repo, "team-a")
    fill(second)
    before = of_namespace(repo, second_id)
    repo.purge_namespace(first_id)

    assert set() == of_namespace(repo, first_id)
    assert before == of_namespace(repo, second_id)
    assert {"rpm": 59} == SyncRateLimiter(second).available("user-1", "gpt-4")


@pytest.mark.parametrize("deletes", [0, 1, 5, 16])
def test_a_purge_that_was_interrupted_is_finished_by_the_next(repo, deletes):
    """Meanwhile it is listed as being purged, and cannot be recovered."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    items = len(of_namespace(repo, namespace_id)) - 1
    broken = another(repo, InterruptedTable)
    broken.scope.table.deletes_left = deletes

    with pytest.raises(RateLimiterUnavailable):
        broken.purge_namespace(namespace_id)
    assert [(namespace_id, "purging")] == [(one.id, one.status) for one in repo.list_orphan_namespaces()]
    with pytest.raises(NamespaceStateError, match="it is purging"):
        repo.recover_namespace(namespace_id)
    assert items - deletes == repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)


def test_a_purge_that_was_interrupted_is_told_as_begun_and_as_done(repo):
    """Once each, however many tries it took, with whoever made them."""
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


def test_whoever_waits_is_told_how_far_it_is(repo):
    """What the steps removed adds up to what is returned."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    steps = []
    removed = repo.purge_namespace(namespace_id, progress=steps.append)

    assert 0 < removed == sum(steps)


def test_two_that_purge_at_once_both_come_to_the_end(repo):
    """Whatever one removes, the other need not, the last record included."""
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

    assert set() == of_namespace(repo, namespace_id)
    assert 1 == len([event for event in events if event.action == "namespace_purged"])


def test_an_index_that_lags_is_looked_at_until_it_is_empty_twice(repo):
    """With a pause between; an empty first look proves nothing."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    repo.delete_namespace("team-a")
    lagging = another(repo, LaggingTable)

    lagging.purge_namespace(namespace_id)

    assert set() == of_namespace(repo, namespace_id)
    assert 4 == lagging.scope.table.looks


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=4), st.integers(0, 4), st.integers(1, 9))
def test_however_often_it_is_interrupted_it_ends(interruptions, entities, page):
    """At any item, in any page, any number of times; the neighbours never lose one."""
    with SyncRepository.open("memory://", clock=SettableClock(), random=Random(3)) as repo:
        fill(repo, entities)
        before = without_events(everything_in(repo))
        scoped, namespace_id = registered(repo, "team-a")
        fill(scoped, entities)
        repo.delete_namespace("team-a")
        usual, namespaces._KEYS_PER_PAGE = namespaces._KEYS_PER_PAGE, page
        try:
            purge_at_last(repo, namespace_id, interruptions)
        finally:
            namespaces._KEYS_PER_PAGE = usual

        assert before == without_events(everything_in(repo))


def purge_at_last(repo, namespace_id, interruptions):
    """Purge with interruptions after so many deletes each, then without."""
    for deletes in interruptions:
        broken = another(repo, InterruptedTable)
        broken.scope.table.deletes_left = deletes
        try:
            broken.purge_namespace(namespace_id)
        except RateLimiterUnavailable:
            continue
        return
    repo.purge_namespace(namespace_id)


def test_a_lease_that_outlives_its_namespace_leaves_nothing_behind(repo):
    """There is nobody left to charge."""
    repo.register_namespace("tenant")
    tenant = repo.namespace("tenant")
    limits = [Limit.per_minute("rpm", 10)]
    with SyncRateLimiter(tenant).acquire("user-1", "gpt-4", {"rpm": 1}, limits=limits) as lease:
        lease.adjust(rpm=5)
        gone = repo.delete_namespace("tenant")
        repo.purge_namespace(gone.id)

    assert [] == [key for key in everything_in(repo) if key[0].startswith(f"{gone.id}/")]


class PurgedBeforehand(Wrapped):
    """A table on which something happens right before the first transaction that creates a bucket."""

    def __init__(self, table):
        super().__init__(table)
        self.beforehand = None

    def transact(self, operations, token, *, until_s=None):
        if self.beforehand is not None:
            beforehand, self.beforehand = self.beforehand, None
            beforehand()
        return super().transact(operations, token, until_s=until_s)


@pytest.mark.parametrize("entity_id", ["user-9", "child"])
def test_a_bucket_is_not_created_in_a_namespace_that_is_purged_meanwhile(repo, entity_id):
    """Not for a child and its parent either, which are created together; what was remembered is forgotten."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    scoped.create_entity("child", parent_id="key-0", cascade=True)
    client = another(scoped, PurgedBeforehand)
    client.scope.table.beforehand = lambda: purge(repo, namespace_id)

    with pytest.raises(NamespaceNotFoundError, match="team-a"):
        take(SyncRateLimiter(client), {"rpm": 1}, entity_id=entity_id)
    assert set() == of_namespace(repo, namespace_id)
    assert 0 == client.get_cache_stats().size


def test_a_debit_creates_nothing_in_a_namespace_that_is_purged_meanwhile(repo):
    """Its bucket is gone, and nobody is left to be charged; leaving the lease is no error."""
    scoped, namespace_id = registered(repo, "team-a")
    fill(scoped)
    client = another(scoped, PurgedBeforehand)
    with SyncRateLimiter(client).acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)
        scoped.delete_entity("key-1")
        client.scope.table.beforehand = lambda: purge(repo, namespace_id)

    assert None is client.scope.table.beforehand
    assert set() == of_namespace(repo, namespace_id)


def purge(repo, namespace_id):
    """Delete and purge a namespace."""
    repo.delete_namespace("team-a")
    repo.purge_namespace(namespace_id)
