"""Every test runs on memory and on a SQLite file, with a clock that the test moves itself."""

from random import Random

import pytest

from zae_limiter import RateLimiter, Repository

from .clients import AsynchronousTable, SettableClock, another


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def random():
    return Random(7)


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"


@pytest.fixture
async def repo(url, clock, random):
    opened = await Repository.open(url, clock=clock, random=random)
    yield opened
    await opened.close()


@pytest.fixture
def limiter(repo):
    return RateLimiter(repo)


@pytest.fixture(params=["in place", "at the same time"])
def either_limiter(request, repo):
    """A limiter that writes in place, or one that sends writes at the same time."""
    return RateLimiter(repo if request.param == "in place" else another(repo, AsynchronousTable))
