"""A closed repository, with both APIs and on every table: it stays closed."""

import inspect
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb.engines import fresh_table_name, running
from tests.dynamodb.faults import Stall
from tests.dynamodb.ledgers import table_url
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import KINDS, session, tree
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    RepositoryClosedError,
    SyncRateLimiter,
    SyncRepository,
    ZAELimiterError,
)
from zae_limiter._sync.admin import ADMIN_VERBS

SLOW = [Limit.custom("rpm", 10, 1, 10 * 365 * 86_400)]
ARGUMENTS = {
    "entity_id": "user-1",
    "parent_id": "user-1",
    "resource": "gpt-4",
    "limit_name": "rpm",
    "limits": SLOW,
    "name": "tenant",
    "names": ["tenant"],
    "namespace_id": "a7x3kq00000",
    "bypass": True,
    "amounts": {"rpm": 1},
    "idempotency_key": "ticket-1",
}
IN_MEMORY_ONLY = ("invalidate_config_cache",)
"""Verbs that need no table."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "dynamodb":
        return table_url(fresh_table_name(), running().url)
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"


@pytest.fixture
def repo(kind: Any, url: str) -> Iterator[Any]:
    opened = kind.open(url, deadline_s=60.0)
    opened.set_system_defaults(SLOW)
    yield opened
    opened.close()


def take(limiter: Any, amount: int = 1) -> None:
    """Take and keep."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": amount}):
        pass


def arguments_of(verb: str) -> dict[str, Any]:
    """Return an argument for every required parameter of a method."""
    parameters = inspect.signature(getattr(SyncRepository, verb)).parameters.values()
    required = [one.name for one in parameters if one.default is one.empty and one.name != "self"]
    return {name: ARGUMENTS[name] for name in required or (["entity_id"] if "usage" in verb else [])}


def test_every_method_of_a_closed_repository_raises(kind: Any, repo: Any) -> None:
    """All tables and methods raise the same error, also if a cached view would reject the request."""
    limiter = kind.limiter(repo)
    take(limiter, 10)
    with pytest.raises(RateLimitExceeded):
        take(limiter)
    repo.close()

    for verb in (name for name in ADMIN_VERBS if name not in IN_MEMORY_ONLY):
        with pytest.raises(RepositoryClosedError, match="this repository is closed; open a new one"):
            getattr(repo, verb)(**arguments_of(verb))
    with pytest.raises(RepositoryClosedError):
        limiter.available("user-1", "gpt-4")
    with pytest.raises(RepositoryClosedError):
        limiter.time_until_available("user-1", "gpt-4", {"rpm": 1})
    with pytest.raises(RepositoryClosedError):
        take(limiter)
    for verb, arguments in (("namespace", ("default",)), ("ensure_infrastructure", ())):
        with pytest.raises(RepositoryClosedError):
            getattr(repo, verb)(*arguments)


def test_is_available_of_a_closed_repository_is_false(kind: Any, repo: Any) -> None:
    """It raises nothing, and closing again has no effect."""
    limiter = kind.limiter(repo)
    before = (repo.ping(), limiter.is_available(timeout=60.0))
    repo.close()
    limiter.close()

    assert (True, True) == before
    assert (False, False) == (repo.ping(), limiter.is_available(timeout=60.0))


def test_closing_a_view_keeps_the_table_open_and_closing_the_owner_closes_the_view(kind: Any, repo: Any) -> None:
    """Namespaces share one connection, which the opened repository owns."""
    repo.register_namespace("tenant")
    view = repo.namespace("tenant")
    view.close()
    view.set_system_defaults(SLOW)
    take(kind.limiter(view))
    repo.close()

    with pytest.raises(RepositoryClosedError):
        take(kind.limiter(view))


def test_leaving_nested_blocks_closes_once(kind: Any, url: str) -> None:
    """The blocks of a repository and its limiter may be nested."""
    with kind.open(url, deadline_s=60.0) as repo:
        repo.set_system_defaults(SLOW)
        with kind.limiter(repo) as limiter:
            take(limiter)
        with pytest.raises(RepositoryClosedError):
            take(limiter)


def test_close_ends_a_call_in_flight(kind: Any) -> None:
    """An unanswered call ends with the same error, long before its deadline."""
    with Proxy(running().url) as proxy:
        repo = kind.open(table_url(fresh_table_name(), proxy.url), deadline_s=3_600.0)
        repo.set_system_defaults(SLOW)
        limiter = kind.limiter(repo)
        take(limiter)
        proxy.forget()
        proxy.always(Stall(applied=False))
        caught: list[BaseException] = []

        def call() -> None:
            try:
                take(limiter)
            except ZAELimiterError as error:
                caught.append(error)

        calling = threading.Thread(target=call)
        calling.start()
        proxy.wait_for_stalls(1)
        repo.close()
        calling.join()

        assert [RepositoryClosedError] == [type(error) for error in caught]


@pytest.mark.parametrize("kinds", [(Repository, RateLimiter), (SyncRepository, SyncRateLimiter)])
def test_a_deprecated_repository_closed_before_opening_stays_closed(kinds: tuple[Any, Any]) -> None:
    """Deprecated constructors open on first use, but not after close()."""
    with tree("async") as loop, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)

        def done(result: Any) -> Any:
            return loop.run(result) if inspect.iscoroutine(result) else result

        repo = kinds[0](name="my-app", region="us-east-1", endpoint_url=running().url, session=session())
        limiter = kinds[1](repo)
        done(limiter.close())

        for verb in ("get_system_defaults", "ensure_infrastructure", "get_version_record"):
            with pytest.raises(RepositoryClosedError):
                done(getattr(repo, verb)())
        with pytest.raises(RepositoryClosedError):
            assert repo.capabilities
        with pytest.raises(RepositoryClosedError):
            done(limiter.available("user-1", "gpt-4"))
        assert not done(limiter.is_available())
        assert not done(repo.ping())
