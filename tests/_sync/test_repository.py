"""SyncRepository: what a URL opens, what may be chosen, namespaces, and closing."""  # generated from _async by tools/mirror.py; do not edit

import sqlite3
from pathlib import Path
from random import Random

import pytest

from zae_limiter import (
    IncompatibleSchemaError,
    InvalidNameError,
    Limit,
    NamespaceNotFoundError,
    SyncRateLimiter,
    SyncRepository,
    StorageError,
    ValidationError,
)

from .clients import SettableClock, take

LIMITS = [Limit.per_minute("rpm", 60)]


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch, tmp_path):
    """No URL in the environment, and a data directory that is the test's own."""
    monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def opened_at(url=None):
    """Where the table is that a URL opens."""
    with SyncRepository.open(url) as repo:
        return repo.name


def register(repo, name):
    """Make a namespace, as an admin would."""
    repo.register_namespace(name)


def test_memory_is_each_openers_own():
    """Two openings share nothing."""
    with SyncRepository.open("memory://") as one, SyncRepository.open("memory://") as two:
        one.set_system_defaults(LIMITS)

        assert ([], None) == two.get_system_defaults()
        assert "memory://" == one.name


def test_a_relative_path_is_below_the_working_directory(tmp_path):
    """Three slashes, then the path; directories are made."""
    name = opened_at("sqlite:///some/where/limiter.db")

    assert (tmp_path / "some/where/limiter.db").is_file()
    assert "sqlite:///some/where/limiter.db" == name


def test_an_absolute_path_has_four_slashes(tmp_path):
    """The fourth belongs to the path."""
    name = opened_at(f"sqlite:///{tmp_path}/absolute.db")

    assert (tmp_path / "absolute.db").is_file()
    assert f"sqlite:///{tmp_path}/absolute.db" == name
    assert name.startswith("sqlite:////")


def test_a_path_may_hold_escaped_characters(tmp_path):
    """As in any URL."""
    opened_at("sqlite:///with%20space%3F.db")

    assert (tmp_path / "with space?.db").is_file()


def test_the_name_of_a_repository_opens_it_again(tmp_path):
    """It is a URL, whatever characters are in the path."""
    name = opened_at("sqlite:///plain.db")

    assert name == opened_at(name)


@pytest.mark.parametrize("escaped", ["100%2525.db", "a%3Fb.db", "a%23b.db"])
def test_the_name_of_a_repository_with_odd_characters_opens_it_again(escaped):
    """It is a URL, whatever characters are in the path."""
    name = opened_at(f"sqlite:///{escaped}")

    assert name == opened_at(name)


def test_without_a_url_the_environment_chooses(monkeypatch, tmp_path):
    """``ZAE_LIMITER_URL`` is used where nothing is passed."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    opened_at()

    assert (tmp_path / "from-environment.db").is_file()


def test_a_url_outranks_the_environment(monkeypatch):
    """What is passed counts."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    assert "memory://" == opened_at("memory://")


@pytest.mark.parametrize("variable", [None, ""])
def test_without_anything_a_file_in_the_data_directory_is_used(monkeypatch, tmp_path, variable):
    """An empty variable is none; what was kept there is there the next time."""
    if variable is not None:
        monkeypatch.setenv("ZAE_LIMITER_URL", variable)
    with SyncRepository.open() as repo:
        repo.set_system_defaults(LIMITS)
        name = repo.name
    with SyncRepository.open() as again:
        found = again.get_system_defaults()

    assert (LIMITS, None) == found
    assert Path(name.removeprefix("sqlite:///")).is_relative_to(tmp_path / "data")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "memory://name",
        "sqlite://",
        "sqlite:///",
        "sqlite://file.db",
        "sqlite:///file.db?mode=ro",
        "sqlite:///file.db#part",
        "file.db",
        "/tmp/file.db",
        "redis://localhost",
        "dynamodb://",
        "dynamodb:///table",
        "dynamodb://table?unknown=1",
        "dynamodb://table?create=maybe",
        5,
        b"memory://",
        True,
        Path("file.db"),
        ["memory://"],
    ],
    ids=str,
)
def test_a_url_is_one_of_three_forms(url, tmp_path):
    """Anything else is refused before a file is made."""
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(url)

    assert ("url", url) == (caught.value.field, caught.value.value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("url", ["sqlite://[/file.db", "dynamodb://[", "sqlite:///a%00b.db"])
def test_a_url_that_cannot_be_taken_apart_is_refused_by_name(url):
    """A broken host or a NUL in the path is a bad URL like others."""
    with pytest.raises(ValidationError):
        SyncRepository.open(url)


def test_a_bad_url_in_the_environment_is_refused(monkeypatch):
    """And not replaced by the default."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "redis://localhost")

    with pytest.raises(ValidationError):
        SyncRepository.open()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("config_cache_ttl", -1),
        ("config_cache_ttl", float("nan")),
        ("config_cache_ttl", float("inf")),
        ("config_cache_ttl", None),
        ("config_cache_ttl", "60"),
        ("config_cache_ttl", True),
        ("on_unavailable", "deny"),
        ("on_unavailable", 1),
        ("bucket_ttl_multiplier", 1),
        ("bucket_ttl_multiplier", -7),
        ("bucket_ttl_multiplier", 7.0),
        ("bucket_ttl_multiplier", True),
        ("bucket_ttl_multiplier", None),
        ("bucket_ttl_multiplier", 10**12),
        ("deadline_s", 0),
        ("deadline_s", -1),
        ("deadline_s", float("nan")),
        ("deadline_s", None),
        ("reject_locally_s", -0.1),
        ("reject_locally_s", 61),
        ("reject_locally_s", float("nan")),
        ("reject_locally_s", "1"),
        ("remembered_buckets", 0),
        ("remembered_buckets", 1.5),
        ("parallel_mode", "threads"),
        ("parallel_mode", None),
        ("parallel_mode", 2),
    ],
)
def test_a_bad_option_is_refused_before_a_file_is_made(tmp_path, option, value):
    """The error names it."""
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open("sqlite:///limiter.db", **{option: value})

    assert (option, True) == (caught.value.field, caught.value.value is value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["", "a#b", "_", "x" * 65, "größe", None, 5, ["default"]], ids=str)
def test_a_bad_namespace_is_refused(name):
    """By name, wherever it is named."""
    with pytest.raises(InvalidNameError) as caught:
        SyncRepository.open("memory://", namespace=name)
    with SyncRepository.open("memory://") as repo:
        with pytest.raises(InvalidNameError):
            repo.namespace(name)

    assert ("namespace", name) == (caught.value.field, caught.value.value)


def test_a_namespace_that_is_not_there_is_not_made():
    """A typing error must not start from nothing."""
    with pytest.raises(NamespaceNotFoundError) as caught:
        SyncRepository.open("memory://", namespace="other")
    with SyncRepository.open("memory://") as repo:
        with pytest.raises(NamespaceNotFoundError):
            repo.namespace("other")

    assert "other" == caught.value.namespace


def test_a_repository_opens_in_a_namespace_that_is_there():
    """By name; the default one is always there."""
    with SyncRepository.open("sqlite:///limiter.db") as repo:
        register(repo, "team-a")
    with SyncRepository.open("sqlite:///limiter.db", namespace="team-a") as scoped:
        assert "team-a" == scoped.scope.namespace


def test_namespaces_share_nothing_but_the_connection(url):
    """Neither limits nor buckets, though entities and resources bear the same names."""
    with SyncRepository.open(url, clock=SettableClock(), random=Random(1)) as repo:
        register(repo, "team-a")
        scoped = repo.namespace("team-a")
        ours, theirs = SyncRateLimiter(repo), SyncRateLimiter(scoped)
        ours.set_system_defaults(LIMITS)
        with pytest.raises(ValidationError):
            take(theirs, {"rpm": 1})
        theirs.set_system_defaults([Limit.per_minute("rpm", 30)])
        take(ours, {"rpm": 5})
        take(theirs, {"rpm": 7})

        assert {"rpm": 55} == ours.available("user-1", "gpt-4")
        assert {"rpm": 23} == theirs.available("user-1", "gpt-4")
        assert repo.scope.table is scoped.scope.table


def test_two_views_of_one_namespace_share_their_memory():
    """A change through one is seen by the other at once."""
    with SyncRepository.open("memory://") as repo:
        again = repo.namespace("default")
        repo.resolve_limits("user-1", "gpt-4")
        again.set_system_defaults(LIMITS)

        assert LIMITS == (repo.resolve_limits("user-1", "gpt-4")).limits


def test_closing_a_scoped_repository_leaves_the_table_open():
    """It belongs to the one that opened it."""
    with SyncRepository.open("memory://") as repo:
        repo.set_system_defaults(LIMITS)
        with repo.namespace("default"):
            pass

        assert (LIMITS, None) == repo.get_system_defaults()


def test_closing_twice_is_closing_once(url):
    """A second time does nothing."""
    repo = SyncRepository.open(url)

    repo.close()
    repo.close()


def test_a_limiter_closes_its_repository():
    """As a context manager, too."""
    with SyncRateLimiter(SyncRepository.open("sqlite:///limiter.db")) as limiter:
        limiter.set_system_defaults(LIMITS)

    with pytest.raises(StorageError, match="closed"):
        limiter.available("user-1", "gpt-4")


def test_a_limiter_knows_its_repository():
    """And where it keeps its data."""
    with SyncRepository.open("memory://") as repo:
        limiter = SyncRateLimiter(repo)

        assert (repo, "memory://") == (limiter.repository, limiter.name)


def test_a_repository_says_that_it_answers(url):
    """``ping`` and ``is_available``."""
    with SyncRepository.open(url) as repo:
        assert (True, True) == (repo.ping(), SyncRateLimiter(repo).is_available(timeout=60))


def test_embedded_tables_have_no_infrastructure_and_no_bound_on_writes(url):
    """Their capabilities say so."""
    with SyncRepository.open(url) as repo:
        capabilities = repo.capabilities

    assert (False, None) == (capabilities.supports_infrastructure_management, capabilities.partition_writes_per_second)


def test_a_file_of_another_program_is_not_touched(tmp_path):
    """A clear error, and the file stays as it was."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than its header would be " * 20)

    with pytest.raises(StorageError, match="not a SQLite file"):
        SyncRepository.open("sqlite:///notes.txt")

    assert path.read_text().startswith("not a database")


def test_a_directory_is_no_file(tmp_path):
    """The error proposes a file in it."""
    (tmp_path / "folder").mkdir()

    with pytest.raises(StorageError, match=r"folder/limiter\.db"):
        SyncRepository.open("sqlite:///folder")


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    """What cannot be understood is not written to."""
    opened_at("sqlite:///limiter.db")
    raise_version(tmp_path / "limiter.db")

    with pytest.raises(IncompatibleSchemaError):
        SyncRepository.open("sqlite:///limiter.db")


def raise_version(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_parallel_modes_that_never_warn(mode):
    """Either limits as the other does."""
    with SyncRepository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        repo.set_system_defaults(LIMITS)
        take(SyncRateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == SyncRateLimiter(repo).available("user-1", "gpt-4")


@pytest.mark.filterwarnings("ignore:parallel_mode")
@pytest.mark.parametrize("mode", ["gevent", "threadpool"])
def test_parallel_modes_that_may_warn_where_they_do_little_good(mode):
    """They work all the same."""
    with SyncRepository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        repo.set_system_defaults(LIMITS)
        take(SyncRateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == SyncRateLimiter(repo).available("user-1", "gpt-4")
