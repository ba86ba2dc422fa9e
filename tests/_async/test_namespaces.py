"""Namespaces: registration, lookup by name, soft deletion and recovery, and the clients that use them."""

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


class InterveningTable(Wrapped):
    """A table where another client acts just before the next transaction."""

    def __init__(self, table):
        super().__init__(table)
        self.intervene = None

    async def transact(self, operations, token, *, until_s=None):
        intervene, self.intervene = self.intervene, None
        if intervene is not None:
            await intervene()
        return await super().transact(operations, token, until_s=until_s)


def with_intervention(repo, intervene):
    """Return a client of the same table; another client acts before its next transaction."""
    other = another(repo, InterveningTable)
    other.scope.table.intervene = intervene
    return other


async def names_in(repo):
    return [one.name for one in await repo.list_namespaces()]


async def audit_trail(repo, name):
    """Return the audit events of a namespace, oldest first."""
    events = await repo.get_audit_events(f"$NAMESPACE:{name}")
    return [(str(event.action), event.principal, event.details["namespace_id"]) for event in reversed(events)]


async def test_registering_a_namespace_twice_returns_the_same_id(repo):
    """The second registration changes nothing."""
    first = await repo.register_namespace("team-a")
    again = await repo.register_namespace("team-a")

    assert first == again
    assert 11 == len(first)
    assert ["default", "team-a"] == await names_in(repo)


async def test_get_namespace_returns_name_id_status_and_creation_time(repo):
    """The list contains the same value."""
    namespace_id = await repo.register_namespace("team-a")

    expected = Namespace(namespace_id, "team-a", "active", "2023-11-14T22:13:20.123Z")

    assert expected == await repo.get_namespace("team-a")
    assert expected in await repo.list_namespaces()


async def test_namespace_methods_work_on_limiter_and_any_repository(repo, limiter):
    """They concern the whole table, not one namespace."""
    namespace_id = await limiter.register_namespace("team-a")
    scoped = await repo.namespace("team-a")

    assert namespace_id == await scoped.register_namespace("team-a")
    assert ["default", "team-a"] == await names_in(scoped)


async def test_register_namespaces_handles_duplicates_and_existing_names(repo):
    """There are more names than fit one transaction."""
    known = await repo.register_namespace("team-007")
    names = [f"team-{number:03}" for number in range(250)]

    ids = await repo.register_namespaces([*names, "team-001"])

    assert names == list(ids)
    assert known == ids["team-007"]
    assert 250 == len(set(ids.values()))
    assert ["default", *names] == await names_in(repo)
    assert ids == await repo.register_namespaces(iter(names))


async def test_register_namespaces_of_an_empty_list_returns_an_empty_dict(repo):
    """An empty list is not an error."""
    assert {} == await repo.register_namespaces([])


async def test_register_namespaces_with_one_invalid_name_registers_none(repo):
    """All names are checked first."""
    with pytest.raises(InvalidNameError):
        await repo.register_namespaces(["team-a", "team b"])

    assert ["default"] == await names_in(repo)


@pytest.mark.parametrize("names", ["team-a", None, 5])
async def test_register_namespaces_of_no_list_raises(repo, names):
    """A string is one name, not a list of letters."""
    with pytest.raises(ValidationError, match="names"):
        await repo.register_namespaces(names)


@pytest.mark.parametrize("name", ["", "_", "-a", "a b", "a/b", "a#b", "x" * 65, None, 5, ["a"]])
async def test_invalid_namespace_name_is_refused_by_every_method(repo, name):
    """Nothing is written."""
    before = everything_in(repo)
    for verb in (repo.register_namespace, repo.get_namespace, repo.delete_namespace):
        with pytest.raises(InvalidNameError):
            await verb(name)

    assert before == everything_in(repo)


@pytest.mark.parametrize("namespace_id", ["", "_", "short", "x" * 12, "-1234567890", "a/345678901", None, 5])
async def test_invalid_namespace_id_is_refused_by_every_method(repo, namespace_id):
    """The id of the registry, ``_``, is invalid too."""
    for verb in (repo.recover_namespace, repo.purge_namespace):
        with pytest.raises(ValidationError, match="namespace_id"):
            await verb(namespace_id)


async def test_invalid_principal_is_refused_by_every_namespace_method(repo):
    """It is checked even if nothing would change."""
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


async def test_concurrent_registrations_of_one_name_get_the_same_id(repo):
    """The slower client uses the id of the faster one."""
    ids = []

    async def be_faster():
        ids.append(await another(repo).register_namespace("team-a"))

    late = await with_intervention(repo, be_faster).register_namespace("team-a")

    assert [late] == ids
    assert 1 == len(await audit_trail(repo, "team-a"))


async def test_concurrent_registrations_of_overlapping_names_agree_on_the_ids(repo):
    """Each name has one id for both clients."""
    theirs = {}

    async def be_faster():
        theirs.update(await another(repo).register_namespaces(["b", "c"]))

    ours = await with_intervention(repo, be_faster).register_namespaces(["a", "b"])

    assert ours["b"] == theirs["b"]
    assert ["a", "b", "c", "default"] == await names_in(repo)


async def test_deleted_namespace_is_not_found_by_name_and_listed_as_orphan(repo):
    """Its data is kept."""
    namespace_id = await repo.register_namespace("team-a")
    deleted = await repo.delete_namespace("team-a")

    assert (namespace_id, "deleted", "2023-11-14T22:13:20.123Z") == (deleted.id, deleted.status, deleted.deleted_at)
    assert ["default"] == await names_in(repo)
    assert [deleted] == await repo.list_orphan_namespaces()
    for verb in (repo.get_namespace, repo.delete_namespace, repo.namespace):
        with pytest.raises(NamespaceNotFoundError, match="team-a"):
            await verb("team-a")


async def test_orphan_namespaces_are_listed_in_the_order_of_their_deletion(repo, clock):
    """The first candidate for a purge comes first."""
    await repo.register_namespaces(["a", "b", "c"])
    for name in ("b", "c", "a"):
        await repo.delete_namespace(name)
        clock.advance(1)

    assert ["b", "c", "a"] == [one.name for one in await repo.list_orphan_namespaces()]


async def test_name_of_a_deleted_namespace_can_be_registered_again(repo):
    """The new namespace has its own id and none of the old data."""
    first = await repo.register_namespace("team-a")
    await (await repo.namespace("team-a")).set_system_defaults(LIMITS)
    await repo.delete_namespace("team-a")
    second = await repo.register_namespace("team-a")

    assert first != second
    assert ([], None) == await (await repo.namespace("team-a")).get_system_defaults()


async def test_a_recovered_namespace_has_all_its_data(repo):
    """Recovery undoes the deletion completely."""
    namespace_id = await repo.register_namespace("team-a")
    await (await repo.namespace("team-a")).set_system_defaults(LIMITS)
    before = await repo.get_namespace("team-a")
    await repo.delete_namespace("team-a")

    assert before == await repo.recover_namespace(namespace_id)
    assert before == await repo.get_namespace("team-a")
    assert [] == await repo.list_orphan_namespaces()
    assert (LIMITS, None) == await (await repo.namespace("team-a")).get_system_defaults()


async def test_recovery_of_a_namespace_whose_name_is_in_use_raises(repo):
    """It succeeds once the other namespace is deleted."""
    first = await repo.register_namespace("team-a")
    await repo.delete_namespace("team-a")
    second = await repo.register_namespace("team-a")
    with pytest.raises(NamespaceStateError, match="another namespace has been registered under its name"):
        await repo.recover_namespace(first)
    await repo.delete_namespace("team-a")
    await repo.recover_namespace(first)

    assert first == (await repo.get_namespace("team-a")).id
    assert [second] == [one.id for one in await repo.list_orphan_namespaces()]


async def test_recovery_that_loses_its_name_to_a_concurrent_registration_raises(repo):
    """The retry finds the name in use."""
    first = await repo.register_namespace("team-a")
    await repo.delete_namespace("team-a")
    second = []

    async def be_faster():
        second.append(await another(repo).register_namespace("team-a"))

    with pytest.raises(NamespaceStateError):
        await with_intervention(repo, be_faster).recover_namespace(first)

    assert second == [(await repo.get_namespace("team-a")).id]


async def test_concurrent_deletion_of_a_namespace_raises_for_the_slower_client(repo):
    """The deletion is recorded once."""
    namespace_id = await repo.register_namespace("team-a")

    async def be_faster():
        await another(repo).delete_namespace("team-a")

    with pytest.raises(NamespaceNotFoundError):
        await with_intervention(repo, be_faster).delete_namespace("team-a")

    assert ["namespace_registered", "namespace_deleted"] == [
        action for action, _, _ in await audit_trail(repo, "team-a")
    ]
    assert [namespace_id] == [one.id for one in await repo.list_orphan_namespaces()]


async def test_recovery_of_an_active_or_unknown_namespace_raises(repo):
    """Only a deleted namespace can be recovered."""
    namespace_id = await repo.register_namespace("team-a")

    with pytest.raises(NamespaceStateError, match="it is active"):
        await repo.recover_namespace(namespace_id)
    with pytest.raises(NamespaceNotFoundError):
        await repo.recover_namespace("a7x3kq00000")


async def test_delete_of_the_default_namespace_raises(repo):
    """A repository opened without a namespace uses it."""
    with pytest.raises(ValidationError, match="default namespace always exists"):
        await repo.delete_namespace("default")

    assert ["default"] == await names_in(repo)


async def test_namespace_changes_record_audit_events_with_the_principal(repo):
    """They can be read from any namespace, even after the purge."""
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

    assert expected == await audit_trail(repo, "team-a")
    assert expected == await audit_trail(await repo.namespace("team-a"), "team-a")


async def test_opening_a_table_registers_the_default_namespace_once(repo):
    """The registration is audited."""
    assert 1 == len(await audit_trail(repo, "default"))


@pytest.mark.parametrize("verb", ["register_namespace", "delete_namespace"])
async def test_namespace_method_on_an_unavailable_store_raises_and_changes_nothing(repo, verb):
    """A change is complete or not made at all."""
    await repo.register_namespace("team-a")
    before = everything_in(repo)
    other = another(repo, FailingTable)
    other.scope.table.unavailable = True

    with pytest.raises(RateLimiterUnavailable):
        await getattr(other, verb)("team-a")
    assert before == everything_in(repo)


class TestRunningClient:
    """A client that uses a namespace while it is deleted."""

    @pytest.fixture
    async def scoped(self, repo):
        await repo.register_namespace("team-a")
        scoped = await repo.namespace("team-a")
        await scoped.set_system_defaults(LIMITS)
        return scoped

    async def test_client_of_a_deleted_namespace_raises_when_its_cache_expires(self, repo, scoped, clock):
        """Until then it reads nothing."""
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

    async def test_client_that_deleted_its_namespace_raises_immediately(self, repo, scoped):
        """Its own cache is invalidated."""
        limiter = RateLimiter(scoped)
        await take(limiter, {"rpm": 1})
        await repo.delete_namespace("team-a")

        with pytest.raises(NamespaceNotFoundError):
            await take(limiter, {"rpm": 1})

    async def test_client_of_a_purged_namespace_raises_without_creating_buckets(self, repo, scoped):
        """A purged namespace stays empty."""
        limiter = RateLimiter(another(scoped))
        await take(limiter, {"rpm": 1})
        await repo.purge_namespace((await repo.delete_namespace("team-a")).id)
        before = everything_in(repo)

        with pytest.raises(NamespaceNotFoundError):
            await take(limiter, {"rpm": 1})
        assert before == everything_in(repo)

    async def test_client_continues_after_its_namespace_is_recovered(self, repo, scoped, clock):
        """The buckets keep their balances."""
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

    async def test_client_reads_the_namespace_and_version_records_once_for_all_buckets(self, scoped):
        """All records are in one partition, which must not be read for every bucket."""
        sizes = []

        class SizingTable(Wrapped):
            async def batch_get(self, keys, *, consistent=False, until_s=None):
                sizes.append(len(keys))
                return await super().batch_get(keys, consistent=consistent, until_s=until_s)

        limiter = RateLimiter(another(scoped, SizingTable))
        for number in range(3):
            await take(limiter, {"rpm": 1}, entity_id=f"user-{number}")

        assert [8, 6, 6] == sizes

    @pytest.mark.parametrize("purged", [False, True])
    async def test_config_change_in_a_deleted_namespace_raises_and_writes_nothing(self, repo, scoped, purged):
        """The transaction checks that the namespace is active."""
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


async def test_sqlite_file_keeps_namespaces_after_close(tmp_path):
    """A deleted namespace cannot be opened."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    async with await Repository.open(url) as repo:
        namespace_id = await repo.register_namespace("team-a")
    async with await Repository.open(url, namespace="team-a") as repo:
        assert namespace_id == repo.scope.namespace_id
        await repo.delete_namespace("team-a")

    with pytest.raises(NamespaceNotFoundError):
        await Repository.open(url, namespace="team-a")
