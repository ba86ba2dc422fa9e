"""A repository that is wrapped outside the package: the limiter works with it and calls its methods."""  # generated from _async by tools/mirror.py; do not edit

from unittest.mock import MagicMock

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, RepositoryClosedError, SyncRepositoryProtocol, ValidationError
from zae_limiter._sync.admin import ADMIN_VERBS

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

    def set_limits(self, entity_id, limits, *rest, **named):
        self._log.append(f"set_limits {entity_id}")
        self.wrapped.set_limits(entity_id, limits, *rest, **named)

    def ensure_infrastructure(self):
        self.wrapped.ensure_infrastructure()

    def ping(self):
        return self.wrapped.ping()

    def close(self):
        self._log.append("close")
        self.wrapped.close()


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

    def _answer(self):
        return "answer"


class IncompleteRepository:
    """Wraps a repository, and has no method of the protocol."""

    def __init__(self, wrapped):
        self.wrapped = wrapped


@pytest.fixture
def log():
    return []


def test_limiter_of_a_wrapped_repository_calls_the_wrapper(repo, log):
    """The wrapper sees changes of limits and the closing; everything else works as without it."""
    with SyncRateLimiter(LoggingRepository(repo, log)) as limiter:
        limiter.set_limits("user-1", [RPM], resource="gpt-4")
        with limiter.acquire("user-1", "gpt-4", {"rpm": 40}):
            pass
        assert 60 == (limiter.available("user-1", "gpt-4"))["rpm"]
        assert limiter.is_available(timeout=60.0)
        assert (repo.name, repo.capabilities) == (limiter.name, limiter.repository.capabilities)

    assert ["set_limits user-1", "close"] == log
    with pytest.raises(RepositoryClosedError):
        repo.get_limits("user-1")


def test_method_that_the_wrapper_lacks_is_called_on_the_wrapped_repository(repo, log):
    """This works through any number of wrappers."""
    limiter = SyncRateLimiter(LoggingRepository(LoggingRepository(repo, log), log))
    limiter.set_limits("user-1", [RPM])

    assert [RPM] == limiter.get_limits("user-1") == repo.get_limits("user-1")
    assert repo.get_cache_stats() == limiter.get_cache_stats()
    assert ["set_limits user-1"] * 2 == log


def test_every_admin_method_of_the_limiter_is_called_on_the_wrapper(repo):
    """None of them bypasses it."""
    wrapper = ForwardingRepository(repo)
    limiter = SyncRateLimiter(wrapper)
    answers = [getattr(limiter, verb)() for verb in ADMIN_VERBS]

    assert ["answer"] * len(ADMIN_VERBS) == answers
    assert repo.get_cache_stats() == limiter.get_cache_stats()
    assert {*ADMIN_VERBS, "get_cache_stats"} == set(wrapper.called)


def test_repository_protocol_is_checked_at_runtime(repo, log):
    """An implementation needs only the public methods."""
    public = {"name", "capabilities", "ensure_infrastructure", "ping", "close"}

    assert isinstance(repo, SyncRepositoryProtocol)
    assert isinstance(LoggingRepository(repo, log), SyncRepositoryProtocol)
    assert not isinstance(IncompleteRepository(repo), SyncRepositoryProtocol)
    assert public == {name for name in vars(SyncRepositoryProtocol) if not name.startswith("_")}


def test_limiter_of_anything_but_a_repository_raises_with_the_fix(repo, log):
    """It may wrap nothing, something else or itself, or lack methods."""
    others = LoggingRepository(None, log), MagicMock(), IncompleteRepository(repo), SyncRateLimiter(repo)
    for other in others:
        with pytest.raises(ValidationError, match=r"must come from.*RepositoryProtocol that exposes .* as `wrapped`"):
            SyncRateLimiter(other)


def test_wrapped_deprecated_repository_is_opened_by_any_method(log):
    """Methods of the wrapper and of the limiter both open it; the error is that of the opening."""
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        repo = SyncRepository(name="my-app", region="us-east-1", session=object())
    limiter = SyncRateLimiter(LoggingRepository(repo, log))

    with pytest.raises(ValidationError, match="session"):
        limiter.set_limits("user-1", [RPM])
    with pytest.raises(ValidationError, match="session"):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    assert ["set_limits user-1"] == log
