"""A repository that is wrapped outside the package: the limiter works with it and calls its methods."""

from unittest.mock import MagicMock

import pytest

from zae_limiter import Limit, RateLimiter, Repository, RepositoryClosedError, RepositoryProtocol, ValidationError
from zae_limiter._async.admin import ADMIN_VERBS

RPM = Limit.per_minute("rpm", 100)


class LoggingRepository:
    """Logs changes of limits and the closing, and implements only what it must."""

    def __init__(self, wrapped, log):
        self.wrapped = wrapped
        self._log = log

    @property
    def name(self):
        return self.wrapped.name

    @property
    def capabilities(self):
        return self.wrapped.capabilities

    async def set_limits(self, entity_id, limits, *rest, **named):
        self._log.append(f"set_limits {entity_id}")
        await self.wrapped.set_limits(entity_id, limits, *rest, **named)

    async def ensure_infrastructure(self):
        await self.wrapped.ensure_infrastructure()

    async def ping(self):
        return await self.wrapped.ping()

    async def close(self):
        self._log.append("close")
        await self.wrapped.close()


class ForwardingRepository:
    """Forwards everything that it does not define, and records which methods were called."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        self.called = []

    def __getattr__(self, name):
        if name not in (*ADMIN_VERBS, "get_cache_stats"):
            return getattr(self.wrapped, name)
        self.called.append(name)
        return self._answer if name in ADMIN_VERBS else self.wrapped.get_cache_stats

    async def _answer(self):
        return "answer"


class IncompleteRepository:
    """Wraps a repository, and has no method of the protocol."""

    def __init__(self, wrapped):
        self.wrapped = wrapped


@pytest.fixture
def log():
    return []


async def test_limiter_of_a_wrapped_repository_calls_the_wrapper(repo, log):
    """The wrapper sees changes of limits and the closing; everything else works as without it."""
    async with RateLimiter(LoggingRepository(repo, log)) as limiter:
        await limiter.set_limits("user-1", [RPM], resource="gpt-4")
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 40}):
            pass
        assert 60 == (await limiter.available("user-1", "gpt-4"))["rpm"]
        assert await limiter.is_available(timeout=60.0)
        assert (repo.name, repo.capabilities) == (limiter.name, limiter.repository.capabilities)

    assert ["set_limits user-1", "close"] == log
    with pytest.raises(RepositoryClosedError):
        await repo.get_limits("user-1")


async def test_method_that_the_wrapper_lacks_is_called_on_the_wrapped_repository(repo, log):
    """This works through any number of wrappers."""
    limiter = RateLimiter(LoggingRepository(LoggingRepository(repo, log), log))
    await limiter.set_limits("user-1", [RPM])

    assert [RPM] == await limiter.get_limits("user-1") == await repo.get_limits("user-1")
    assert repo.get_cache_stats() == limiter.get_cache_stats()
    assert ["set_limits user-1"] * 2 == log


async def test_every_admin_method_of_the_limiter_is_called_on_the_wrapper(repo):
    """None of them bypasses it."""
    wrapper = ForwardingRepository(repo)
    limiter = RateLimiter(wrapper)
    answers = [await getattr(limiter, verb)() for verb in ADMIN_VERBS]

    assert ["answer"] * len(ADMIN_VERBS) == answers
    assert repo.get_cache_stats() == limiter.get_cache_stats()
    assert {*ADMIN_VERBS, "get_cache_stats"} == set(wrapper.called)


def test_repository_protocol_is_checked_at_runtime(repo, log):
    """An implementation needs only the public methods."""
    public = {"name", "capabilities", "ensure_infrastructure", "ping", "close"}

    assert isinstance(repo, RepositoryProtocol)
    assert isinstance(LoggingRepository(repo, log), RepositoryProtocol)
    assert not isinstance(IncompleteRepository(repo), RepositoryProtocol)
    assert public == {name for name in vars(RepositoryProtocol) if not name.startswith("_")}


def test_limiter_of_anything_but_a_repository_raises_with_the_fix(repo, log):
    """It may wrap nothing, something else or itself, or lack methods."""
    others = LoggingRepository(None, log), MagicMock(), IncompleteRepository(repo), RateLimiter(repo)
    for other in others:
        with pytest.raises(ValidationError, match=r"must come from.*RepositoryProtocol that exposes .* as `wrapped`"):
            RateLimiter(other)


async def test_wrapped_deprecated_repository_is_opened_by_any_method(log):
    """Methods of the wrapper and of the limiter both open it; the error is that of the opening."""
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repo = Repository(name="my-app", region="us-east-1", session=object())
    limiter = RateLimiter(LoggingRepository(repo, log))

    with pytest.raises(ValidationError, match="session"):
        await limiter.set_limits("user-1", [RPM])
    with pytest.raises(ValidationError, match="session"):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    assert ["set_limits user-1"] == log
