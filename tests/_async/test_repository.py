"""Repository: URLs, options, namespaces and closing."""

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
    RateLimiter,
    Repository,
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


async def opened_at(url=None):
    """Open a URL and return the name of the repository."""
    async with await Repository.open(url) as repo:
        return repo.name


async def register(repo, name):
    """Register a namespace, as an administrator would."""
    await repo.register_namespace(name)


async def test_two_memory_repositories_share_nothing():
    """Each opening creates a new table."""
    async with await Repository.open("memory://") as one, await Repository.open("memory://") as two:
        await one.set_system_defaults(LIMITS)

        assert ([], None) == await two.get_system_defaults()
        assert "memory://" == one.name


async def test_sqlite_url_with_three_slashes_is_relative_to_the_working_directory(tmp_path):
    """Missing directories are created."""
    name = await opened_at("sqlite:///some/where/limiter.db")

    assert (tmp_path / "some/where/limiter.db").is_file()
    assert "sqlite:///some/where/limiter.db" == name


async def test_sqlite_url_with_four_slashes_is_an_absolute_path(tmp_path):
    """The fourth slash belongs to the path."""
    name = await opened_at(f"sqlite:///{tmp_path}/absolute.db")

    assert (tmp_path / "absolute.db").is_file()
    assert f"sqlite:///{tmp_path}/absolute.db" == name
    assert name.startswith("sqlite:////")


async def test_sqlite_url_may_contain_percent_encoded_characters(tmp_path):
    """They are decoded as in any URL."""
    await opened_at("sqlite:///with%20space%3F.db")

    assert (tmp_path / "with space?.db").is_file()


async def test_the_name_of_a_repository_opens_it_again(tmp_path):
    """The name is a URL."""
    name = await opened_at("sqlite:///plain.db")

    assert name == await opened_at(name)


@pytest.mark.parametrize("escaped", ["100%2525.db", "a%3Fb.db", "a%23b.db"])
async def test_the_name_of_a_repository_with_special_characters_opens_it_again(escaped):
    """The name is a URL, whatever characters the path contains."""
    name = await opened_at(f"sqlite:///{escaped}")

    assert name == await opened_at(name)


async def test_open_without_a_url_uses_the_environment_variable(monkeypatch, tmp_path):
    """``ZAE_LIMITER_URL`` is used if no URL is passed."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    await opened_at()

    assert (tmp_path / "from-environment.db").is_file()


async def test_open_with_a_url_ignores_the_environment_variable(monkeypatch):
    """The argument takes precedence."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "sqlite:///from-environment.db")

    assert "memory://" == await opened_at("memory://")


@pytest.mark.parametrize(
    ("passed", "variable", "reason"),
    [
        ("memory://", "sqlite:///from-environment.db", "it was passed as url"),
        (None, "memory://", "ZAE_LIMITER_URL is set"),
        (None, "", "no url was passed, and ZAE_LIMITER_URL is not set"),
    ],
)
async def test_open_logs_once_what_it_opened_and_why(monkeypatch, caplog, passed, variable, reason):
    """A program that limits by the wrong store can be diagnosed from its log."""
    monkeypatch.setenv("ZAE_LIMITER_URL", variable)
    with caplog.at_level(logging.INFO, "zae_limiter"):
        async with await Repository.open(passed) as repo:
            shown = repr(repo)

    assert [(f"Opened {shown}, because {reason}", "INFO")] == [
        (record.getMessage(), record.levelname) for record in caplog.records if record.name == "zae_limiter"
    ]


@pytest.mark.parametrize("variable", ["ZAEL_STACK", "ZAEL_NAMESPACE"])
async def test_open_without_url_in_the_environment_of_a_stack_raises_and_opens_nothing(monkeypatch, tmp_path, variable):
    """A file would not share the limits of the stack."""
    monkeypatch.setenv(variable, "my-app")
    with pytest.raises(ValidationError, match=rf"{variable} is set, .*dynamodb://"):
        await Repository.open()

    assert "memory://" == await opened_at("memory://")
    assert [] == list(tmp_path.rglob("*.db"))


@pytest.mark.parametrize("variable", [None, ""])
async def test_open_without_url_and_variable_uses_a_file_in_the_data_directory(monkeypatch, tmp_path, variable):
    """An empty variable counts as unset, and the data is there at the next opening."""
    if variable is not None:
        monkeypatch.setenv("ZAE_LIMITER_URL", variable)
    async with await Repository.open() as repo:
        await repo.set_system_defaults(LIMITS)
        name = repo.name
    async with await Repository.open() as again:
        found = await again.get_system_defaults()

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
async def test_open_with_an_invalid_url_raises_before_a_file_is_created(url, tmp_path):
    """Three URL schemes are supported."""
    with pytest.raises(ValidationError) as caught:
        await Repository.open(url)

    assert ("url", url) == (caught.value.field, caught.value.value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("url", ["sqlite://[/file.db", "dynamodb://[", "sqlite:///a%00b.db"])
async def test_open_with_a_url_that_cannot_be_parsed_raises_validation_error(url):
    """An invalid host, or a NUL in the path, is an invalid URL like others."""
    with pytest.raises(ValidationError):
        await Repository.open(url)


async def test_invalid_url_in_the_environment_raises(monkeypatch):
    """It is not replaced by the default."""
    monkeypatch.setenv("ZAE_LIMITER_URL", "redis://localhost")

    with pytest.raises(ValidationError):
        await Repository.open()


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
async def test_open_with_an_invalid_option_raises_before_a_file_is_created(tmp_path, option, value):
    """The error names the option."""
    with pytest.raises(ValidationError) as caught:
        await Repository.open("sqlite:///limiter.db", **{option: value})

    assert (option, True) == (caught.value.field, caught.value.value is value)
    assert [] == list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["", "a#b", "_", "x" * 65, "größe", None, 5, ["default"]], ids=str)
async def test_invalid_namespace_name_raises_on_open_and_namespace(name):
    """Both calls check the name."""
    with pytest.raises(InvalidNameError) as caught:
        await Repository.open("memory://", namespace=name)
    async with await Repository.open("memory://") as repo:
        with pytest.raises(InvalidNameError):
            await repo.namespace(name)

    assert ("namespace", name) == (caught.value.field, caught.value.value)


async def test_opening_a_missing_namespace_raises_and_does_not_create_it():
    """A misspelt name must not start with an empty namespace."""
    with pytest.raises(NamespaceNotFoundError) as caught:
        await Repository.open("memory://", namespace="other")
    async with await Repository.open("memory://") as repo:
        with pytest.raises(NamespaceNotFoundError):
            await repo.namespace("other")

    assert "other" == caught.value.namespace


async def test_open_with_an_existing_namespace_is_scoped_to_it():
    """The default namespace always exists."""
    async with await Repository.open("sqlite:///limiter.db") as repo:
        await register(repo, "team-a")
    async with await Repository.open("sqlite:///limiter.db", namespace="team-a") as scoped:
        assert "team-a" == scoped.scope.namespace


async def test_namespaces_share_the_connection_but_no_limits_or_buckets(url):
    """Entities and resources with the same names stay separate."""
    async with await Repository.open(url, clock=SettableClock(), random=Random(1)) as repo:
        await register(repo, "team-a")
        scoped = await repo.namespace("team-a")
        ours, theirs = RateLimiter(repo), RateLimiter(scoped)
        await ours.set_system_defaults(LIMITS)
        with pytest.raises(ValidationError):
            await take(theirs, {"rpm": 1})
        await theirs.set_system_defaults([Limit.per_minute("rpm", 30)])
        await take(ours, {"rpm": 5})
        await take(theirs, {"rpm": 7})

        assert {"rpm": 55} == await ours.available("user-1", "gpt-4")
        assert {"rpm": 23} == await theirs.available("user-1", "gpt-4")
        assert repo.scope.table is scoped.scope.table


async def test_two_repositories_of_one_namespace_share_their_cache():
    """A change through one is immediately seen by the other."""
    async with await Repository.open("memory://") as repo:
        again = await repo.namespace("default")
        await repo.resolve_limits("user-1", "gpt-4")
        await again.set_system_defaults(LIMITS)

        assert LIMITS == (await repo.resolve_limits("user-1", "gpt-4")).limits


async def test_closing_a_scoped_repository_leaves_the_table_open():
    """The table belongs to the repository that opened it."""
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults(LIMITS)
        async with await repo.namespace("default"):
            pass

        assert (LIMITS, None) == await repo.get_system_defaults()


async def test_closing_a_repository_twice_has_no_effect(url):
    """The second call does nothing."""
    repo = await Repository.open(url)

    await repo.close()
    await repo.close()


async def test_limiter_as_context_manager_closes_its_repository():
    """Calls after the block raise."""
    async with RateLimiter(await Repository.open("sqlite:///limiter.db")) as limiter:
        await limiter.set_system_defaults(LIMITS)

    with pytest.raises(StorageError, match="closed"):
        await limiter.available("user-1", "gpt-4")


async def test_limiter_has_the_repository_and_its_name():
    """Both are public attributes."""
    async with await Repository.open("memory://") as repo:
        limiter = RateLimiter(repo)

        assert (repo, "memory://") == (limiter.repository, limiter.name)


async def test_ping_and_is_available_of_an_open_repository_return_true(url):
    """Both check that the table responds."""
    async with await Repository.open(url) as repo:
        assert (True, True) == (await repo.ping(), await RateLimiter(repo).is_available(timeout=60))


async def test_embedded_tables_report_no_infrastructure_and_no_write_limit(url):
    """``capabilities`` contains both facts."""
    async with await Repository.open(url) as repo:
        capabilities = repo.capabilities

    assert (False, None) == (capabilities.supports_infrastructure_management, capabilities.partition_writes_per_second)


async def test_opening_a_file_that_is_no_database_raises_and_keeps_it(tmp_path):
    """The error says that it is not a SQLite file."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than its header would be " * 20)

    with pytest.raises(StorageError, match="not a SQLite file"):
        await Repository.open("sqlite:///notes.txt")

    assert path.read_text().startswith("not a database")


async def test_opening_a_directory_raises_and_suggests_a_file_in_it(tmp_path):
    """A SQLite URL must name a file."""
    (tmp_path / "folder").mkdir()

    with pytest.raises(StorageError, match=r"folder/limiter\.db"):
        await Repository.open("sqlite:///folder")


async def test_opening_a_file_of_a_newer_version_raises(tmp_path):
    """An unknown format is not written to."""
    await opened_at("sqlite:///limiter.db")
    raise_version(tmp_path / "limiter.db")

    with pytest.raises(IncompatibleSchemaError):
        await Repository.open("sqlite:///limiter.db")


def raise_version(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("mode", ["auto", "serial"])
async def test_parallel_modes_auto_and_serial_limit_without_a_warning(mode):
    """Both modes have the same results."""
    async with await Repository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        await repo.set_system_defaults(LIMITS)
        await take(RateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == await RateLimiter(repo).available("user-1", "gpt-4")


@pytest.mark.filterwarnings("ignore:parallel_mode")
@pytest.mark.parametrize("mode", ["gevent", "threadpool"])
async def test_parallel_modes_gevent_and_threadpool_limit_correctly(mode):
    """They may warn if they have no benefit, but they work."""
    async with await Repository.open("memory://", parallel_mode=mode, clock=SettableClock()) as repo:
        await repo.set_system_defaults(LIMITS)
        await take(RateLimiter(repo), {"rpm": 1})

        assert {"rpm": 59} == await RateLimiter(repo).available("user-1", "gpt-4")
