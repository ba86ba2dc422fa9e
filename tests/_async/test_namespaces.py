"""Namespaces: registered once, found by name, deleted softly, recovered; whoever is at work in one is told."""

import pytest

from zae_limiter import (
    InvalidNameError,
    Limit,
    Namespace,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    ValidationError,
)

from .clients import FailingTable, Wrapped, another, counted, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60)]
CACHE_MS = 60_000


class MeddlingTable(Wrapped):
    """A table on which something else happens just before a transaction, once."""

    def __init__(self, table):
        super().__init__(table)
        self.meddle = None

    async def transact(self, operations, token, *, until_s=None):
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        return await super().transact(operations, token, until_s=until_s)


def meddled(repo, meddle):
    """Return a client of the same table, before whose next transaction something happens."""
    other = another(repo, MeddlingTable)
    other.scope.table.meddle = meddle
    return other


async def names_in(repo):
    return [one.name for one in await repo.list_namespaces()]


async def told(repo, name):
    """Return what the audit says of a namespace, the oldest first."""
    events = await repo.get_audit_events(f"$NAMESPACE:{name}")
    return [(str(event.action), event.principal, event.details["namespace_id"]) for event in reversed(events)]


async def test_a_namespace_is_registered_once(repo):
    """Whoever comes second gets the same id."""
    first = await repo.register_namespace("team-a")
    again = await repo.register_namespace("team-a")

    assert first == again
    assert 11 == len(first)
    assert ["default", "team-a"] == await names_in(repo)


async def test_a_namespace_is_shown_as_it_is(repo):
    """Its name, its id, and since when it is there."""
    namespace_id = await repo.register_namespace("team-a")

    expected = Namespace(namespace_id, "team-a", "active", "2023-11-14T22:13:20.123Z")

    assert expected == await repo.get_namespace("team-a")
    assert expected in await repo.list_namespaces()


async def test_limiter_and_repository_have_the_same_verbs(repo, limiter):
    """They are the table's, whichever way one looks at it."""
    namespace_id = await limiter.register_namespace("team-a")
    scoped = await repo.namespace("team-a")

    assert namespace_id == await scoped.register_namespace("team-a")
    assert ["default", "team-a"] == await names_in(scoped)


async def test_many_are_registered_at_once(repo):
    """More than one transaction holds, some of them twice, some there already."""
    known = await repo.register_namespace("team-007")
    names = [f"team-{number:03}" for number in range(250)]

    ids = await repo.register_namespaces([*names, "team-001"])

    assert names == list(ids)
    assert known == ids["team-007"]
    assert 250 == len(set(ids.values()))
    assert ["default", *names] == await names_in(repo)
    assert ids == await repo.register_namespaces(iter(names))


async def test_registering_none_is_nothing(repo):
    """It is not an error either."""
    assert {} == await repo.register_namespaces([])


async def test_of_many_with_a_bad_name_none_is_registered(repo):
    """All names are looked at first."""
    with pytest.raises(InvalidNameError):
        await repo.register_namespaces(["team-a", "team b"])

    assert ["default"] == await names_in(repo)


@pytest.mark.parametrize("names", ["team-a", None, 5])
async def test_what_is_no_list_of_names_is_refused(repo, names):
    """A string is one name, not a list of its letters."""
    with pytest.raises(ValidationError, match="names"):
        await repo.register_namespaces(names)


@pytest.mark.parametrize("name", ["", "_", "-a", "a b", "a/b", "a#b", "x" * 65, None, 5, ["a"]])
async def test_a_bad_name_is_refused_by_every_verb(repo, name):
    """Nothing is read or written for it."""
    before = everything_in(repo)
    for verb in (repo.register_namespace, repo.get_namespace, repo.delete_namespace):
        with pytest.raises(InvalidNameError):
            await verb(name)

    assert before == everything_in(repo)


@pytest.mark.parametrize("namespace_id", ["", "_", "short", "x" * 12, "-1234567890", "a/345678901", None, 5])
async def test_a_bad_id_is_refused_by_every_verb(repo, namespace_id):
    """The registry's own id, ``_``, is one of them."""
    for verb in (repo.recover_namespace, repo.purge_namespace):
        with pytest.raises(ValidationError, match="namespace_id"):
            await verb(namespace_id)


async def test_a_bad_principal_is_refused_by_every_verb(repo):
    """Even where nothing would be changed."""
    namespace_id = await repo.register_namespace("team-a")
    before = everything_in(repo)
    for verb, argument in (
        (repo.register_namespace, "team-a"),
        (repo.register_namespaces, ["team-b"]),
        (repo.delete_namespace, "team-a"),
        (repo.recover_namespace, namespace_id),
        (repo.purge_namespace, namespace_id),
    ):
        with pytest.raises(ValidationError, match="principal"):
            await verb(argument, principal="x" * 257)

    assert before == everything_in(repo)


async def test_two_that_register_one_name_at_once_get_one_id(repo):
    """The one that comes too late finds the other's."""
    ids = []

    async def be_faster():
        ids.append(await another(repo).register_namespace("team-a"))

    late = await meddled(repo, be_faster).register_namespace("team-a")

    assert [late] == ids
    assert 1 == len(await told(repo, "team-a"))


async def test_two_that_register_many_at_once_agree(repo):
    """On every name both asked for."""
    theirs = {}

    async def be_faster():
        theirs.update(await another(repo).register_namespaces(["b", "c"]))

    ours = await meddled(repo, be_faster).register_namespaces(["a", "b"])

    assert ours["b"] == theirs["b"]
    assert ["a", "b", "c", "default"] == await names_in(repo)


async def test_a_deleted_namespace_is_hidden_and_kept(repo):
    """It is no longer found by name, and is listed with the orphans."""
    namespace_id = await repo.register_namespace("team-a")
    deleted = await repo.delete_namespace("team-a")

    assert (namespace_id, "deleted", "2023-11-14T22:13:20.123Z") == (deleted.id, deleted.status, deleted.deleted_at)
    assert ["default"] == await names_in(repo)
    assert [deleted] == await repo.list_orphan_namespaces()
    for verb in (repo.get_namespace, repo.delete_namespace, repo.namespace):
        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await verb("team-a")


async def test_orphans_are_listed_in_the_order_of_their_deletion(repo, clock):
    """The first candidate for a purge comes first."""
    await repo.register_namespaces(["a", "b", "c"])
    for name in ("b", "c", "a"):
        await repo.delete_namespace(name)
        clock.advance(1)

    assert ["b", "c", "a"] == [one.name for one in await repo.list_orphan_namespaces()]


async def test_a_name_is_free_again_once_its_namespace_is_deleted(repo):
    """The new one has an id of its own, and nothing of the old one's data."""
    first = await repo.register_namespace("team-a")
    await (await repo.namespace("team-a")).set_system_defaults(LIMITS)
    await repo.delete_namespace("team-a")
    second = await repo.register_namespace("team-a")

    assert first != second
    assert ([], None) == await (await repo.namespace("team-a")).get_system_defaults()


async def test_a_recovered_namespace_has_all_its_data(repo):
    """As if it had never been deleted."""
    namespace_id = await repo.register_namespace("team-a")
    await (await repo.namespace("team-a")).set_system_defaults(LIMITS)
    before = await repo.get_namespace("team-a")
    await repo.delete_namespace("team-a")

    assert before == await repo.recover_namespace(namespace_id)
    assert before == await repo.get_namespace("team-a")
    assert [] == await repo.list_orphan_namespaces()
    assert (LIMITS, None) == await (await repo.namespace("team-a")).get_system_defaults()


async def test_a_namespace_whose_name_was_taken_is_not_recovered(repo):
    """Until the other one makes room."""
    first = await repo.register_namespace("team-a")
    await repo.delete_namespace("team-a")
    second = await repo.register_namespace("team-a")
    with pytest.raises(NamespaceStateError, match="another namespace has been registered under its name"):
        await repo.recover_namespace(first)
    await repo.delete_namespace("team-a")
    await repo.recover_namespace(first)

    assert first == (await repo.get_namespace("team-a")).id
    assert [second] == [one.id for one in await repo.list_orphan_namespaces()]


async def test_a_name_taken_in_the_middle_of_a_recovery_stays_taken(repo):
    """The recovery looks again, and finds it."""
    first = await repo.register_namespace("team-a")
    await repo.delete_namespace("team-a")
    second = []

    async def be_faster():
        second.append(await another(repo).register_namespace("team-a"))

    with pytest.raises(NamespaceStateError):
        await meddled(repo, be_faster).recover_namespace(first)

    assert second == [(await repo.get_namespace("team-a")).id]


async def test_two_that_delete_at_once_delete_once(repo):
    """The second learns that there is nothing of that name any more."""
    namespace_id = await repo.register_namespace("team-a")

    async def be_faster():
        await another(repo).delete_namespace("team-a")

    with pytest.raises(NamespaceNotFoundError):
        await meddled(repo, be_faster).delete_namespace("team-a")

    assert ["namespace_registered", "namespace_deleted"] == [action for action, _, _ in await told(repo, "team-a")]
    assert [namespace_id] == [one.id for one in await repo.list_orphan_namespaces()]


async def test_only_a_deleted_namespace_is_recovered(repo):
    """An active one needs none, and an unknown one has none."""
    namespace_id = await repo.register_namespace("team-a")

    with pytest.raises(NamespaceStateError, match="it is active"):
        await repo.recover_namespace(namespace_id)
    with pytest.raises(NamespaceNotFoundError):
        await repo.recover_namespace("a7x3kq00000")


async def test_the_default_namespace_is_not_deleted(repo):
    """Whoever opens a repository without naming one is in it."""
    with pytest.raises(ValidationError, match="default namespace is always there"):
        await repo.delete_namespace("default")

    assert ["default"] == await names_in(repo)


async def test_every_step_is_told_to_the_audit(repo):
    """With whoever took it, readable from any namespace, though this one be gone."""
    first = await repo.register_namespace("team-a", principal="alice")
    await repo.register_namespace("team-a", principal="nobody")
    await repo.delete_namespace("team-a", principal="bob")
    await repo.recover_namespace(first, principal="carol")
    await repo.delete_namespace("team-a", principal="dave")
    await repo.purge_namespace(first, principal="erin")
    second = (await repo.register_namespaces(["team-a"], principal="frank"))["team-a"]

    expected = [
        ("namespace_registered", "alice", first),
        ("namespace_deleted", "bob", first),
        ("namespace_recovered", "carol", first),
        ("namespace_deleted", "dave", first),
        ("namespace_purge_begun", "erin", first),
        ("namespace_purged", "erin", first),
        ("namespace_registered", "frank", second),
    ]

    assert expected == await told(repo, "team-a")
    assert expected == await told(await repo.namespace("team-a"), "team-a")


async def test_opening_registers_the_default_namespace_and_says_so(repo):
    """Once, however often the table is opened."""
    assert 1 == len(await told(repo, "default"))


@pytest.mark.parametrize("verb", ["register_namespace", "delete_namespace"])
async def test_a_store_that_is_away_is_an_error(repo, verb):
    """Nothing is half done."""
    await repo.register_namespace("team-a")
    before = everything_in(repo)
    other = another(repo, FailingTable)
    other.scope.table.away = True

    with pytest.raises(RateLimiterUnavailable):
        await getattr(other, verb)("team-a")
    assert before == everything_in(repo)


class TestALiveClient:
    """A client at work in a namespace when it is deleted."""

    @pytest.fixture
    async def scoped(self, repo):
        await repo.register_namespace("team-a")
        scoped = await repo.namespace("team-a")
        await scoped.set_system_defaults(LIMITS)
        return scoped

    async def test_it_is_told_when_it_next_reads_its_limits(self, repo, scoped, clock):
        """Within the time it remembers limits; until then nothing is read."""
        limiter, table = counted(scoped)
        await take(limiter, {"rpm": 1})
        await repo.delete_namespace("team-a")
        await take(limiter, {"rpm": 1})
        clock.advance(CACHE_MS)

        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await take(limiter, {"rpm": 1})
        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await limiter.available("user-1", "gpt-4")
        assert ["batch_get", "transact", "write", "batch_get", "batch_get"] == table.drain()

    async def test_it_is_told_at_once_of_what_it_deleted_itself(self, repo, scoped):
        """Its own memory forgets."""
        limiter = RateLimiter(scoped)
        await take(limiter, {"rpm": 1})
        await repo.delete_namespace("team-a")

        with pytest.raises(NamespaceNotFoundError):
            await take(limiter, {"rpm": 1})

    async def test_it_is_told_at_once_where_its_buckets_are_gone(self, repo, scoped):
        """A purge leaves nothing to take from, and nothing is made anew behind it."""
        limiter = RateLimiter(another(scoped))
        await take(limiter, {"rpm": 1})
        await repo.purge_namespace((await repo.delete_namespace("team-a")).id)
        before = everything_in(repo)

        with pytest.raises(NamespaceNotFoundError):
            await take(limiter, {"rpm": 1})
        assert before == everything_in(repo)

    async def test_it_goes_on_once_the_namespace_is_recovered(self, repo, scoped, clock):
        """With the balances it left."""
        limiter = RateLimiter(another(scoped))
        await take(limiter, {"rpm": 60})
        deleted = await repo.delete_namespace("team-a")
        clock.advance(CACHE_MS)
        with pytest.raises(NamespaceNotFoundError):
            await take(limiter, {"rpm": 1})
        await repo.recover_namespace(deleted.id)

        assert {"rpm": 60} == await limiter.available("user-1", "gpt-4")
        await take(limiter, {"rpm": 60})
        assert {"rpm": 0} == await limiter.available("user-1", "gpt-4")

    async def test_it_asks_once_for_all_its_buckets(self, scoped):
        """All namespaces are registered in one partition, which must not be read for every bucket."""
        sizes = []

        class SizingTable(Wrapped):
            async def batch_get(self, keys, *, consistent=False, until_s=None):
                sizes.append(len(keys))
                return await super().batch_get(keys, consistent=consistent, until_s=until_s)

        limiter = RateLimiter(another(scoped, SizingTable))
        for number in range(3):
            await take(limiter, {"rpm": 1}, entity_id=f"user-{number}")

        assert [7, 6, 6] == sizes

    @pytest.mark.parametrize("purged", [False, True])
    async def test_it_changes_nothing_any_more(self, repo, scoped, purged):
        """A change requires the namespace to be there, in the same transaction."""
        other = another(scoped)
        deleted = await repo.delete_namespace("team-a")
        if purged:
            await repo.purge_namespace(deleted.id)
        before = everything_in(repo)

        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await other.set_system_defaults(LIMITS)
        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await other.set_limits("user-1", LIMITS)
        assert before == everything_in(repo)


async def test_a_namespace_is_there_for_whoever_opens_the_file_next(tmp_path):
    """And is not, once it was deleted."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    async with await Repository.open(url) as repo:
        namespace_id = await repo.register_namespace("team-a")
    async with await Repository.open(url, namespace="team-a") as repo:
        assert namespace_id == repo.scope.namespace_id
        await repo.delete_namespace("team-a")

    with pytest.raises(NamespaceNotFoundError):
        await Repository.open(url, namespace="team-a")
