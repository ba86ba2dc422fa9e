"""SyncRepository: URLs, options, namespaces and closing."""  # generated from _async by tools/mirror.py; do not edit

import logging
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
def _clean_environment(monkeypatch, tmp_path):
    """No URL in the environment, and a data directory of the test's own."""
    for name in ("ZAE_LIMITER_URL", "ZAEL_STACK", "ZAEL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def opened_at(url=None):
    """Open a URL and return the name of the repository."""
    with SyncRepository.open(url) as repo:
        return repo.name


def register(repo, name):
    """Register a namespace, as an administrator would."""
    repo.register_namespace(name)


def test_two_memory_repositories_share_nothing():
    """Each opening creates a new table."""
    with SyncRepository.open("memory://") as one, SyncRepository.open("memory://") as two:
        one.set_system_defaults(LIMITS)

        assert ([], None) == two.get_system_defaults()
        assert "memory://" == one.name


def test_sqlite_url_with_three_slashes_is_relative_to_the_working_directory(tmp_path):
    """Missing directories are created."""
    name = opened_at("sqlite:///some/where/limiter.db")

    assert (tmp_path / "some/where/limiter.db").is_file()
    assert "sqlite:///some/where/limiter.db" == name


def test_sqlite_url_with_four_slashes_is_an_absolute_path(tmp_path):
    """The fourth slash belongs to the path."""
    name = opened_at(f"sqlite:///{tmp_path}/absolute.db")

    assert (tmp_path / "absolute.db").is_file()
    assert f"sqlite:///{tmp_path}/absolute.db" == name
    assert name.startswith("sqlite:////")


def test_sqlite_url_may_contain_percent_encoded_characters(tmp_path):
    """They are decoded as in any URL."""
    opened_at("sqlite:///with%20space%3F.db")

    assert (tmp_path / "with space?.db").is_file()


def test_the_name_of_a_repository_opens_it_again(tmp_path):
    """The name is a URL."""
    name = opened_at("sqlite:///plain.db")

    assert name == opened_at(name)


@pytest.mark.parametrize("escaped", ["100%2525.db", "a%3Fb.db", "a%23b.db"])
def test_the_name_of_a_repository_with_special_characters_opens_it_again(escaped):
    """The name is a URL, whatever characters the path contains."""
    name = opened_at(f"sqlite:///{escaped}")

    assert name == opened_at(name)


def test_open_without_a_url_uses_the_environment_variable(monkeypatch, tmp_path):
    """``ZAE_LIMITER_URL`` is used if no URL is passed."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    opened_at()

    assert (tmp_path / "from-environment.db").is_file()


def test_open_with_a_url_ignores_the_environment_variable(monkeypatch):
    """The argument takes precedence."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    assert "memory://" == opened_at("memory://")


@pytest.mark.parametrize(
    ("passed", "variable", "reason"),
    [
        ("memory://", "sqlite:///from-environment.db", "it was passed as url"),
        (None, "memory://", "ZAE_LIMITER_URL is set"),
        (None, "", "no url was passed, and ZAE_LIMITER_URL is not set"),
    ],
)
def test_open_logs_once_what_it_opened_and_why(monkeypatch, caplog, passed, variable, reason):
    """A program that limits by the wrong store can be diagnosed from its log."""
    monkeypatch.setenv("ZAE_LIMITER_URL", variable)
    with caplog.at_level(logging.INFO, "zae_limiter"):
        with SyncRepository.open(passed) as repo:
            shown = repr(repo)

    assert [(f"Opened {shown}, because {reason}", "INFO")] == [
        (record.getMessage(), record.levelname) for record in caplog.records if record.name == "zae_limiter"
    ]


@pytest.mark.parametrize("variable", ["ZAEL_STACK", "ZAEL_NAMESPACE"])
def test_open_without_url_in_the_environment_of_a_stack_raises_and_opens_nothing(monkeypatch, tmp_path, variable):
    """A file would not share the limits of the stack."""
    monkeypatch.setenv(variable, "my-app")
    with pytest.raises(ValidationError, match=rf"{variable} is set, .*dynamodb://"):
        SyncRepository.open()

    assert "memory://" == opened_at("memory://")
    assert [] == list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize("variable", [None, ""])
def test_open_without_url_and_variable_uses_a_file_in_the_data_directory(monkeypatch, tmp_path, variable):
    """An empty variable counts as unset, and the data is there at the next opening."""
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
def test_open_with_an_invalid_url_raises_before_a_file_is_created(url, tmp_path):
    """Three URL schemes are supported."""
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open(url)

    assert ("url", url) == (caught.value.field, caught.value.value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("url", ["sqlite://[/file.db", "dynamodb://[", "sqlite:///a%00b.db"])
def test_open_with_a_url_that_cannot_be_parsed_raises_validation_error(url):
    """An invalid host, or a NUL in the path, is an invalid URL like others."""
    with pytest.raises(ValidationError):
        SyncRepository.open(url)


def test_invalid_url_in_the_environment_raises(monkeypatch):
    """It is not replaced by the default."""
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
def test_open_with_an_invalid_option_raises_before_a_file_is_created(tmp_path, option, value):
    """The error names the option."""
    with pytest.raises(ValidationError) as caught:
        SyncRepository.open("sqlite:///limiter.db", **{option: value})

    assert (option, True) == (caught.value.field, caught.value.value is value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["", "a#b", "_", "x" * 65, "größe", None, 5, ["default"]], ids=str)
def test_invalid_namespace_name_raises_on_open_and_namespace(name):
    """Both calls check the name."""
    with pytest.raises(InvalidNameError) as caught:
        SyncRepository.open("memory://", namespace=name)
    with SyncRepository.open("memory://") as repo:
        with pytest.raises(InvalidNameError):
            repo.namespace(name)

    assert ("namespace", name) == (caught.value.field, caught.value.value)


def test_opening_a_missing_namespace_raises_and_does_not_create_it():
    """A misspelt name must not start with an empty namespace."""
    with pytest.raises(NamespaceNotFoundError) as caught:
        SyncRepository.open("memory://", namespace="other")
    with SyncRepository.open("memory://") as repo:
        with pytest.raises(NamespaceNotFoundError):
            repo.namespace("other")

    assert "other" == caught.value.namespace


def test_open_with_an_existing_namespace_is_scoped_to_it():
    """The default namespace always exists."""
    with SyncRepository.open("sqlite:///limiter.db") as repo:
        register(repo, "team-a")
    with SyncRepository.open("sqlite:///limiter.db", namespace="team-a") as scoped:
        assert "team-a" == scoped.scope.namespace


def test_namespaces_share_the_connection_but_no_limits_or_buckets(url):
    """Entities and resources with the same names stay separate."""
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


def test_two_repositories_of_one_namespace_share_their_cache():
    """A change through one is immediately seen by the other."""
    with SyncRepository.open("memory://") as repo:
        again = repo.namespace("default")
        repo.resolve_limits("user-1", "gpt-4")
        again.set_system_defaults(LIMITS)

        assert LIMITS == (repo.resolve_limits("user-1", "gpt-4")).limits


def test_closing_a_scoped_repository_leaves_the_table_open():
    """The table belongs to the repository that opened it."""
    with SyncRepository.open("memory://") as repo:
        repo.set_system_defaults(LIMITS)
        with repo.namespace("default"):
            pass

        assert (LIMITS, None) == repo.get_system_defaults()


def test_closing_a_repository_twice_has_no_effect(url):
    """The second call does nothing."""
    repo = SyncRepository.open(url)

    repo.close()
    repo.close()


def test_limiter_as_context_manager_closes_its_repository():
    """Calls after the block raise."""
    with SyncRateLimiter(SyncRepository.open("sqlite:///limiter.db")) as limiter:
        limiter.set_system_defaults(LIMITS)

    with pytest.raises(StorageError, match="closed"):
        limiter.available("user-1", "gpt-4")


def test_limiter_has_the_repository_and_its_name():
    """Both are public attributes."""
    with SyncRepository.open("memory://") as repo:
        limiter = SyncRateLimiter(repo)

        assert (repo, "memory://") == (limiter.repository, limiter.name)


def test_ping_and_is_available_of_an_open_repository_return_true(url):
    """Both check that the table responds."""
    with SyncRepository.open(url) as repo:
        assert (True, True) == (repo.ping(), SyncRateLimiter(repo).is_available(timeout=60))


def test_embedded_tables_report_no_infrastructure_and_no_write_limit(url):
    """``capabilities`` contains both facts."""
    with SyncRepository.open(url) as repo:
        capabilities = repo.capabilities

    assert (False, None) == (capabilities.supports_infrastructure_management, capabilities.partition_writes_per_second)


def test_opening_a_file_that_is_no_database_raises_and_keeps_it(tmp_path):
    """The error says that it is not a SQLite file."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than its header would be " * 20)

    with pytest.raises(StorageError, match="not a SQLite file"):
        SyncRepository.open("sqlite:///notes.txt")

    assert path.read_text().startswith("not a database")


def test_opening_a_directory_raises_and_suggests_a_file_in_it(tmp_path):
    """A SQLite URL must name a file."""
    (tmp_path / "folder").mkdir()

    with pytest.raises(StorageError, match=r"folder/limiter\.db"):
        SyncRepository.open("sqlite:///folder")


def test_opening_a_file_of_a_newer_version_raises(tmp_path):
    """An unknown format is not written to."""
    opened_at("sqlite:///limiter.db")
    raise_version(tmp_path / "limiter.db")

    with pytest.raises(IncompatibleSchemaError):
        SyncRepository.open("sqlite:///limiter.db")


def raise_version(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_parallel_modes_auto_and_serial_limit_without_a_warning(mode):
    """Both modes have the same results."""
    with SyncRepository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        repo.set_system_defaults(LIMITS)
        take(SyncRateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == SyncRateLimiter(repo).available("user-1", "gpt-4")


@pytest.mark.filterwarnings("ignore:parallel_mode")
@pytest.mark.parametrize("mode", ["gevent", "threadpool"])
def test_parallel_modes_gevent_and_threadpool_limit_correctly(mode):
    """They may warn if they have no benefit, but they work."""
    with SyncRepository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        repo.set_system_defaults(LIMITS)
        take(SyncRateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == SyncRateLimiter(repo).available("user-1", "gpt-4")
