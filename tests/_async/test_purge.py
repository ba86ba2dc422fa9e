"""A purge removes every item of a namespace and no other, interrupted and repeated included."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import (
    Limit,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
)
from zae_limiter._async.store import namespaces

from .clients import SettableClock, Wrapped, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60)]


class InterruptedTable(Wrapped):
    """A table that goes away after so many items were deleted, in the middle of a batch."""

    def __init__(self, table):
        super().__init__(table)
        self.deletes_left = 0

    async def batch_delete(self, keys):
        some = keys[: self.deletes_left]
        self.deletes_left -= len(some)
        await super().batch_delete(some)
        if len(some) < len(keys):
            raise RateLimiterUnavailable(ConnectionError("the store is away"))


class LaggingTable(Wrapped):
    """A table whose index shows an item only at the second look after a pause."""

    def __init__(self, table):
        super().__init__(table)
        self.index_lag_s = 0.001
        self.looks = 0

    async def query(self, query):
        page = await super().query(query)
        if query.index != "GSI4":
            return page
        self.looks += 1
        return type(page)([], None) if self.looks == 1 else page


async def fill(repo, entities=3):
    """Put something of every kind into a namespace."""
    await repo.set_system_defaults(LIMITS)
    await repo.set_resource_defaults("gpt-4", LIMITS)
    limiter = RateLimiter(repo)
    for number in range(entities):
        await repo.set_limits(f"user-{number}", LIMITS, "gpt-4")
        await take(limiter, {"rpm": 1}, entity_id=f"user-{number}")
        await repo.delete_limits(f"user-{number}", "gpt-4")
        await repo.create_entity(f"key-{number}", parent_id=None)


async def registered(repo, name):
    """Return a namespace's repository, its id, and the table's items before it held anything."""
    namespace_id = await repo.register_namespace(name)
    return await repo.namespace(name), namespace_id


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


async def test_nothing_of_it_is_left_and_all_else_is(repo):
    """The table is as if it had never been registered, but for the audit of the registry."""
    await fill(repo)
    other, _ = await registered(repo, "team-b")
    await fill(other)
    before = without_events(everything_in(repo))
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    items = len(of_namespace(repo, namespace_id)) - 1
    await repo.delete_namespace("team-a")

    assert items == await repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)
    assert before == without_events(everything_in(repo))
    assert [] == await repo.list_orphan_namespaces()


async def test_every_item_is_found_by_its_namespace(repo):
    """An item without the mark would survive a purge."""
    await fill(repo)

    assert {key[0].partition("/")[0] for key in everything_in(repo)} == {"_", repo.scope.namespace_id}
    assert [] == [key for key, item in everything_in(repo).items() if item.get("GSI4PK") != key[0].partition("/")[0]]


async def test_a_namespace_larger_than_a_page_is_purged(repo, monkeypatch):
    """Page by page."""
    monkeypatch.setattr(namespaces, "_KEYS_PER_PAGE", 7)
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped, entities=20)
    await repo.delete_namespace("team-a")

    assert 60 < await repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)


async def test_an_empty_namespace_is_purged(repo):
    """Only its record goes."""
    _, namespace_id = await registered(repo, "team-a")
    await repo.delete_namespace("team-a")

    assert 0 == await repo.purge_namespace(namespace_id)
    assert [] == await repo.list_orphan_namespaces()


async def test_an_active_namespace_is_not_purged(repo):
    """Nothing of it is touched; it must be deleted first."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    before = everything_in(repo)

    with pytest.raises(NamespaceStateError, match="it is active"):
        await repo.purge_namespace(namespace_id)
    with pytest.raises(NamespaceStateError, match="it is active"):
        await repo.purge_namespace(repo.scope.namespace_id)
    assert before == everything_in(repo)


async def test_what_was_purged_is_gone(repo):
    """It can be neither purged again nor recovered."""
    _, namespace_id = await registered(repo, "team-a")
    await repo.delete_namespace("team-a")
    await repo.purge_namespace(namespace_id)

    for verb in (repo.purge_namespace, repo.recover_namespace):
        with pytest.raises(NamespaceNotFoundError):
            await verb(namespace_id)


async def test_the_new_holder_of_a_name_is_spared(repo):
    """It has the name, not the id."""
    first, first_id = await registered(repo, "team-a")
    await fill(first)
    await repo.delete_namespace("team-a")
    second, second_id = await registered(repo, "team-a")
    await fill(second)
    before = of_namespace(repo, second_id)
    await repo.purge_namespace(first_id)

    assert set() == of_namespace(repo, first_id)
    assert before == of_namespace(repo, second_id)
    assert {"rpm": 59} == await RateLimiter(second).available("user-1", "gpt-4")


@pytest.mark.parametrize("deletes", [0, 1, 5, 16])
async def test_a_purge_that_was_interrupted_is_finished_by_the_next(repo, deletes):
    """Meanwhile it is listed as being purged, and cannot be recovered."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await repo.delete_namespace("team-a")
    items = len(of_namespace(repo, namespace_id)) - 1
    broken = another(repo, InterruptedTable)
    broken.scope.table.deletes_left = deletes

    with pytest.raises(RateLimiterUnavailable):
        await broken.purge_namespace(namespace_id)
    assert [(namespace_id, "purging")] == [(one.id, one.status) for one in await repo.list_orphan_namespaces()]
    with pytest.raises(NamespaceStateError, match="it is purging"):
        await repo.recover_namespace(namespace_id)
    assert items - deletes == await repo.purge_namespace(namespace_id)
    assert set() == of_namespace(repo, namespace_id)


async def test_a_purge_that_was_interrupted_is_told_as_begun_and_as_done(repo):
    """Once each, however many tries it took, with whoever made them."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await repo.delete_namespace("team-a")
    for principal in ("alice", "bob"):
        with pytest.raises(RateLimiterUnavailable):
            await another(repo, InterruptedTable).purge_namespace(namespace_id, principal=principal)
    await repo.purge_namespace(namespace_id, principal="carol")
    newest = (await repo.get_audit_events("$NAMESPACE:team-a"))[:2]

    assert [("namespace_purged", "carol"), ("namespace_purge_begun", "alice")] == [
        (str(event.action), event.principal) for event in newest
    ]


async def test_whoever_waits_is_told_how_far_it_is(repo):
    """What the steps removed adds up to what is returned."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await repo.delete_namespace("team-a")
    steps = []
    removed = await repo.purge_namespace(namespace_id, progress=steps.append)

    assert 0 < removed == sum(steps)


async def test_two_that_purge_at_once_both_come_to_the_end(repo):
    """Whatever one removes, the other need not, the last record included."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await repo.delete_namespace("team-a")

    class RacedTable(Wrapped):
        async def batch_delete(self, keys):
            if keys:
                await repo.purge_namespace(namespace_id)
            await super().batch_delete(keys)

    await another(repo, RacedTable).purge_namespace(namespace_id)

    events = await repo.get_audit_events("$NAMESPACE:team-a")

    assert set() == of_namespace(repo, namespace_id)
    assert 1 == len([event for event in events if event.action == "namespace_purged"])


async def test_an_index_that_lags_is_looked_at_until_it_is_empty_twice(repo):
    """With a pause between; an empty first look proves nothing."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await repo.delete_namespace("team-a")
    lagging = another(repo, LaggingTable)

    await lagging.purge_namespace(namespace_id)

    assert set() == of_namespace(repo, namespace_id)
    assert 4 == lagging.scope.table.looks


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=4), st.integers(0, 4), st.integers(1, 9))
async def test_however_often_it_is_interrupted_it_ends(interruptions, entities, page):
    """At any item, in any page, any number of times; the neighbours never lose one."""
    async with await Repository.open("memory://", clock=SettableClock(), random=Random(3)) as repo:
        await fill(repo, entities)
        before = without_events(everything_in(repo))
        scoped, namespace_id = await registered(repo, "team-a")
        await fill(scoped, entities)
        await repo.delete_namespace("team-a")
        usual, namespaces._KEYS_PER_PAGE = namespaces._KEYS_PER_PAGE, page
        try:
            await purge_at_last(repo, namespace_id, interruptions)
        finally:
            namespaces._KEYS_PER_PAGE = usual

        assert before == without_events(everything_in(repo))


async def purge_at_last(repo, namespace_id, interruptions):
    """Purge with interruptions after so many deletes each, then without."""
    for deletes in interruptions:
        broken = another(repo, InterruptedTable)
        broken.scope.table.deletes_left = deletes
        try:
            await broken.purge_namespace(namespace_id)
        except RateLimiterUnavailable:
            continue
        return
    await repo.purge_namespace(namespace_id)


async def test_a_lease_that_outlives_its_namespace_leaves_nothing_behind(repo):
    """There is nobody left to charge."""
    await repo.register_namespace("tenant")
    tenant = await repo.namespace("tenant")
    limits = [Limit.per_minute("rpm", 10)]
    async with RateLimiter(tenant).acquire("user-1", "gpt-4", {"rpm": 1}, limits=limits) as lease:
        await lease.adjust(rpm=5)
        gone = await repo.delete_namespace("tenant")
        await repo.purge_namespace(gone.id)

    assert [] == [key for key in everything_in(repo) if key[0].startswith(f"{gone.id}/")]


class PurgedBeforehand(Wrapped):
    """A table on which something happens right before the first transaction that creates a bucket."""

    def __init__(self, table):
        super().__init__(table)
        self.beforehand = None

    async def transact(self, operations, token, *, until_s=None):
        if self.beforehand is not None:
            beforehand, self.beforehand = self.beforehand, None
            await beforehand()
        return await super().transact(operations, token, until_s=until_s)


@pytest.mark.parametrize("entity_id", ["user-9", "child"])
async def test_a_bucket_is_not_created_in_a_namespace_that_is_purged_meanwhile(repo, entity_id):
    """Not for a child and its parent either, which are created together; what was remembered is forgotten."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    await scoped.create_entity("child", parent_id="key-0", cascade=True)
    client = another(scoped, PurgedBeforehand)
    client.scope.table.beforehand = lambda: purge(repo, namespace_id)

    with pytest.raises(NamespaceNotFoundError, match="team-a"):
        await take(RateLimiter(client), {"rpm": 1}, entity_id=entity_id)
    assert set() == of_namespace(repo, namespace_id)
    assert 0 == client.get_cache_stats().size


async def test_a_debit_creates_nothing_in_a_namespace_that_is_purged_meanwhile(repo):
    """Its bucket is gone, and nobody is left to be charged; leaving the lease is no error."""
    scoped, namespace_id = await registered(repo, "team-a")
    await fill(scoped)
    client = another(scoped, PurgedBeforehand)
    async with RateLimiter(client).acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
        await lease.adjust(rpm=1)
        await scoped.delete_entity("key-1")
        client.scope.table.beforehand = lambda: purge(repo, namespace_id)

    assert None is client.scope.table.beforehand
    assert set() == of_namespace(repo, namespace_id)


async def purge(repo, namespace_id):
    """Delete and purge a namespace."""
    await repo.delete_namespace("team-a")
    await repo.purge_namespace(namespace_id)
