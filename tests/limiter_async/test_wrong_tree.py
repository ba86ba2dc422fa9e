"""A limiter that is given something of the other tree, or a lease that is entered as one of the other tree."""

import gc
import warnings

import pytest

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository, ValidationError


def test_forgotten_await_raises_one_error_and_no_warning():
    """The coroutine is closed, so Python does not warn about it as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValidationError, match=r"RateLimiter\(await Repository\.open\(\.\.\.\)\)"):
            RateLimiter(Repository.open("memory://"))
        with pytest.raises(ValidationError, match=r"SyncRateLimiter\(SyncRepository\.open\(\.\.\.\)\)"):
            SyncRateLimiter(Repository.open("memory://"))
        gc.collect()


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (RateLimiter, r"RateLimiter\(await Repository\.open\('sqlite:///x\.db'\)\)"),
        (SyncRateLimiter, r"SyncRateLimiter\(SyncRepository\.open\('sqlite:///x\.db'\)\)"),
    ],
)
def test_limiter_of_a_url_raises_with_the_line_that_opens_it(kind, line):
    """A URL is opened by a repository."""
    with pytest.raises(ValidationError, match=line):
        kind("sqlite:///x.db")


async def test_limiter_of_a_repository_of_the_other_tree_raises(repo):
    """The error names the kind of repository that the limiter needs."""
    with SyncRepository.open("memory://") as blocking, pytest.raises(ValidationError, match="needs a Repository"):
        RateLimiter(blocking)
    with pytest.raises(ValidationError, match="needs a SyncRepository"):
        SyncRateLimiter(repo)


async def test_async_lease_in_a_with_statement_raises_with_the_correct_line(limiter):
    """Nothing is taken."""
    line = r"Write: async with limiter\.acquire\(\.\.\.\) as lease:"
    with pytest.raises(TypeError, match=line), limiter.acquire("user-1", "gpt-4", {"rpy": 1}):
        pytest.fail("entered")

    assert 1_000 == (await limiter.available("user-1", "gpt-4"))["rpy"]


async def test_sync_lease_in_an_async_with_statement_raises_with_the_correct_line():
    """Nothing is taken."""
    with SyncRepository.open("memory://") as repo:
        limiter = SyncRateLimiter(repo)
        limits = [Limit.per_day("rpd", 10)]
        with pytest.raises(TypeError, match=r"Write: with limiter\.acquire\(\.\.\.\) as lease:"):
            async with limiter.acquire("user-1", "gpt-4", {"rpd": 1}, limits):
                pytest.fail("entered")

        assert 10 == limiter.available("user-1", "gpt-4", limits)["rpd"]
