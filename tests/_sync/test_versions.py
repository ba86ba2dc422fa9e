"""The version record: written with the table, changed one field at a time, and checked at every opening."""  # generated from _async by tools/mirror.py; do not edit

import importlib.metadata
from dataclasses import replace

import pytest

from zae_limiter import IncompatibleSchemaError, RateLimiterUnavailable, SyncRepository, VersionMismatchError
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.outcome import Throttled, Unavailable
from zae_limiter.core.version import SCHEMA_VERSION, VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Delete, Put

from .clients import Wrapped, another, everything_in


class BusyTable(Wrapped):
    """A table that throttles this many writes, or loses every write."""

    def __init__(self, table, throttles=0, lost=None):
        super().__init__(table)
        self.throttles = throttles
        self.lost = lost

    def write(self, operation, until_s=None):
        if self.lost is not None:
            return Unavailable(self.lost, ambiguous=True)
        if self.throttles:
            self.throttles -= 1
            return Throttled()
        return super().write(operation, until_s)


def store_of(repo, wrap=None):
    return VersionStore(another(repo, wrap).scope.client)


def set_version(repo, record, namespace_id="_"):
    """Replace the version record, as another program would."""
    repo.scope.table.write(Delete(version_item.key()))
    pk, sk = version_item.key(namespace_id)
    marks = {"PK": pk, "SK": sk, "GSI4PK": namespace_id, "GSI4SK": pk}
    repo.scope.table.write(Put(version_item.to_item(record) | marks))


def test_new_table_has_a_version_record_of_the_current_schema(repo, clock):
    """Opening creates it."""
    record = repo.get_version_record()

    assert VersionRecord(SCHEMA_VERSION, updated_at="2023-11-14T22:13:20.123Z") == record


def test_version_record_remains_after_a_namespace_is_purged(repo):
    """It belongs to the table."""
    namespace_id = repo.register_namespace("team-a")
    repo.delete_namespace("team-a")
    repo.purge_namespace(namespace_id)

    assert ("_/SYSTEM#", "#VERSION") in everything_in(repo)


def test_ensure_of_an_existing_version_record_changes_nothing(repo):
    """The existing record is returned."""
    before = everything_in(repo)
    store = store_of(repo)

    assert repo.get_version_record() == store.ensure("somebody")
    assert before == everything_in(repo)


def test_ensure_that_loses_a_race_returns_the_other_record(repo):
    """Both clients have read before either wrote."""

    class StaleTable(Wrapped):
        def batch_get(self, keys, *, consistent=False, until_s=None):
            return [None for _ in keys]

    record = repo.get_version_record()

    assert record == store_of(repo, StaleTable).ensure("somebody")


def test_concurrent_changes_of_different_version_fields_are_both_kept(repo):
    """A migration does not undo an update of the function."""
    store = store_of(repo)
    seen = store.read()

    assert store.replace(replace(seen, lambda_version="0.4.0"), seen)
    assert store.replace(replace(seen, schema_version="1.1.0"), seen)
    assert ("0.4.0", "1.1.0") == ((store.read()).lambda_version, (store.read()).schema_version)


def test_second_concurrent_change_of_the_schema_version_is_refused(repo):
    """``replace`` returns False."""
    store = store_of(repo)
    seen = store.read()

    assert store.replace(replace(seen, schema_version="1.1.0"), seen)
    assert not store.replace(replace(seen, schema_version="1.2.0"), seen)
    assert "1.1.0" == (store.read()).schema_version


def test_version_record_of_an_older_table_is_read_from_the_default_namespace(repo):
    """The first change writes it to the registry."""
    old = VersionRecord("1.0.0", lambda_version="0.3.0")
    set_version(repo, old, repo.scope.namespace_id)
    store = store_of(repo)
    found = store.read()
    changed = store.replace(replace(old, lambda_version="0.4.0"), old)

    assert (old, True) == (found, changed)
    assert replace(old, lambda_version="0.4.0") == store.read()
    assert "0.4.0" == everything_in(repo)[("_/SYSTEM#", "#VERSION")]["lambda_version"]


def test_throttled_write_of_the_version_record_is_retried_for_a_while(repo):
    """Then it raises."""
    seen = repo.get_version_record()
    changed = replace(seen, lambda_version="0.4.0")

    assert store_of(repo, lambda table: BusyTable(table, throttles=3)).replace(changed, seen)
    with pytest.raises(RateLimiterUnavailable, match="throttled"):
        store_of(repo, lambda table: BusyTable(table, throttles=10_000)).replace(changed, seen)


def test_lost_write_of_the_version_record_raises_with_the_cause(repo):
    """The cause is part of the message."""
    seen = repo.get_version_record()
    unavailable = store_of(repo, lambda table: BusyTable(table, lost=ConnectionError("cut off")))

    with pytest.raises(RateLimiterUnavailable, match="cut off"):
        unavailable.replace(replace(seen, lambda_version="0.4.0"), seen)


class TestOpening:
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'limiter.db'}"

    @pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "3.0.0"])
    def test_opening_a_table_of_an_older_or_newer_schema_raises(self, repo, url, version):
        """The error names the schema of the table."""
        set_version(repo, VersionRecord(version))

        with pytest.raises(IncompatibleSchemaError, match=rf"has schema {version}"):
            SyncRepository.open(url)

    def test_opening_a_table_that_requires_a_newer_client_raises(self, repo, url):
        """The error names the installed version."""
        set_version(repo, VersionRecord(SCHEMA_VERSION, client_min_version="999.0.0"))

        with pytest.raises(VersionMismatchError, match=importlib.metadata.version("zae-limiter")):
            SyncRepository.open(url)

    def test_opening_a_table_of_a_newer_minor_schema_succeeds(self, repo, url):
        """Minor versions are compatible."""
        set_version(repo, VersionRecord("2.9.0", client_min_version="0.0.1"))
        with SyncRepository.open(url) as opened:
            found = opened.get_version_record()

        assert "2.9.0" == found.schema_version

    def test_audit_retention_of_the_version_record_applies_to_every_client(self, repo, url):
        """It is set once, at deployment."""
        set_version(repo, VersionRecord(SCHEMA_VERSION, audit_retention_days=7))
        with SyncRepository.open(url) as opened:
            opened.create_entity("user-1")
            other = opened.namespace("default")
            now_s = opened.scope.now_ms() // 1000
            last_s = max(item["ttl"] for (_, sk), item in everything_in(opened).items() if sk.startswith("#AUDIT#"))

        assert 7 == other.scope.settings.audit_retention_days
        assert 7 == round((last_s - now_s) / 86_400)
