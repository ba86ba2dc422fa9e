"""Kinds of stored items: allowed before the first is written, and refused by clients that do not know them."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import (
    ALL_RESOURCES,
    EntityNotFoundError,
    KindNotAllowedError,
    Limit,
    SyncRateLimiter,
    SyncRepository,
    UnknownKindError,
    ValidationError,
)
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.outcome import Unavailable
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Update
from zae_limiter.tables.dynamodb.errors import AccessRefused

from .clients import Wrapped, another, buckets_in, take

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


class ReadOnlyRegistry(Wrapped):
    """A table whose version record this client may read but not write, like that of a tenant."""

    def write(self, operation, until_s=None):
        if operation.key == version_item.key():
            return Unavailable(AccessRefused("AccessDeniedException", "not authorized"), ambiguous=False)
        return super().write(operation, until_s)


class Networked(Wrapped):
    """A table whose clients may not allow a kind by an acquire."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


def allow_unknown_kind(repo):
    """Allow a kind that only a newer version knows, as its clients would."""
    record = VersionRecord("1.0.0", kinds={"yak": "9.1.0"})
    repo.scope.table.write(version_item.allow("yak", record))


def kinds_of(repo):
    return (repo.get_version_record()).kinds


def test_new_table_stores_no_later_kinds(repo):
    """Older clients of the same schema can use it."""
    assert {} == kinds_of(repo)


def test_first_inherited_limits_allow_their_kind(repo):
    """It is recorded with a version that knows it."""
    repo.set_limits("user-1", [RPM])
    before = kinds_of(repo)
    repo.set_limits("user-1", [RPM], inherit=True)

    assert {} == before
    assert ["inherit"] == list(kinds_of(repo))


def test_allowing_a_kind_twice_writes_once(repo):
    """The first change stays on record."""
    store = VersionStore(repo.scope.client)
    store.allow("inherit", "ops")
    first = repo.get_version_record()
    store.allow("inherit", "somebody else")

    assert "ops" == first.updated_by
    assert first == repo.get_version_record()


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("block_entity", ("user",)),
        ("set_bypass", ("user", True)),
        ("set_limits", ("user", [RPM], ALL_RESOURCES)),
        ("set_resource_defaults", (ALL_RESOURCES, [RPM])),
        ("set_parent", ("user", "team", True, ["gpt-4"])),
    ],
)
def test_invalid_principal_of_a_verb_that_needs_a_kind_changes_nothing(repo, verb, arguments):
    """The principal is stored with the kind, and no client could read a version record with an invalid one."""
    repo.create_entity("team")
    repo.create_entity("user")

    for principal in (5, "x" * 257):
        with pytest.raises(ValidationError, match="principal"):
            getattr(repo, verb)(*arguments, principal=principal)

    assert {} == kinds_of(repo)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("block_entity", ("nobody",)),
        ("set_bypass", ("nobody", True)),
        ("set_parent", ("nobody", "team", True, ["gpt-4"])),
        ("create_entity", ("user", None, "nobody", True, None, None, ["gpt-4"])),
    ],
)
def test_verb_that_is_refused_allows_no_kind(repo, verb, arguments):
    """A kind is never removed, so a wrong id must not lock out older clients."""
    with pytest.raises(EntityNotFoundError):
        getattr(repo, verb)(*arguments)

    assert {} == kinds_of(repo)


def test_client_that_may_not_allow_a_kind_names_the_command_and_writes_nothing(repo):
    """A tenant's policy does not include the version record."""
    tenant = another(repo, ReadOnlyRegistry)

    with pytest.raises(KindNotAllowedError, match="upgrade --allow inherit"):
        tenant.set_limits("user-1", [RPM], inherit=True)

    assert [] == repo.get_limits("user-1")


def test_client_that_may_not_write_the_record_uses_a_kind_that_is_allowed(repo):
    """An operator has allowed it."""
    VersionStore(repo.scope.client).allow("inherit")
    tenant = another(repo, ReadOnlyRegistry)
    tenant.set_limits("user-1", [RPM], inherit=True)

    assert [RPM] == repo.get_limits("user-1")


def test_table_with_an_unknown_kind_is_not_opened(repo, url):
    """The error names the version that is needed."""
    allow_unknown_kind(repo)
    if url == "memory://":
        pytest.skip("a table in memory cannot be opened twice")

    with pytest.raises(UnknownKindError, match=r"9\.1\.0 or later"):
        SyncRepository.open(url)


def test_running_client_refuses_a_table_once_it_reads_limits_again(repo, clock):
    """At the latest after the cache's time to live; until then it uses what it has cached."""
    repo.set_system_defaults([RPM])
    limiter = SyncRateLimiter(repo)
    take(limiter, {"rpm": 1})
    allow_unknown_kind(repo)
    take(limiter, {"rpm": 1})
    clock.advance(61_000)

    with pytest.raises(UnknownKindError):
        take(limiter, {"rpm": 1})

    assert 1 == len(buckets_in(repo))


class VanishingRecord(Wrapped):
    """A table whose version record is removed once, between a read and a write, as by a restore."""

    removed = False

    def write(self, operation, until_s=None):
        if operation.key == version_item.key() and isinstance(operation, Update) and not self.removed:
            self.removed = True
            self.table.batch_delete([operation.key])
        return super().write(operation, until_s)


def test_kind_is_allowed_even_if_the_record_vanishes_meanwhile(repo):
    """No item of a kind is written before its kind."""
    another(repo, VanishingRecord).set_limits("user-1", [RPM], inherit=True)

    assert ["inherit"] == list(kinds_of(repo))


def test_kind_is_allowed_in_a_table_without_a_version_record(repo):
    """The record is created."""
    repo.scope.table.batch_delete([version_item.key()])
    repo.set_limits("user-1", [RPM], inherit=True)

    assert ["inherit"] == list(kinds_of(repo))


def test_first_acquire_with_slots_of_a_cold_client_reads_whether_they_are_allowed(repo):
    """A client that has read no limits yet does not refuse what an operator has allowed."""
    slots = Limit.concurrent("slots", 1)

    def acquire():
        limiter = SyncRateLimiter(another(repo, Networked))
        with limiter.acquire("user-1", "gpt-4", {"slots": 1}, limits=[slots]):
            pass

    with pytest.raises(KindNotAllowedError):
        acquire()
    VersionStore(repo.scope.client).allow("slots")

    acquire()

    assert 1000 == buckets_in(repo)[0]["b_slots_tc"]
