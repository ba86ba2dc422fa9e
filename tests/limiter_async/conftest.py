from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.limiter_async.slow_table import SlowTable
from zae_limiter import Limit, RateLimiter, Repository

YEAR_S = 365 * 86_400
LIMITS = [Limit.custom("rpy", 1_000, 1, YEAR_S), Limit.custom("tpy", 1_000_000, 1, YEAR_S)]
"""Slow enough that a test sees no refill."""


@pytest.fixture(params=["memory", "sqlite"])
async def repo(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Repository]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"
    async with await Repository.open(url) as opened:
        await opened.set_system_defaults(LIMITS)
        yield opened


@pytest.fixture
def limiter(repo: Repository) -> RateLimiter:
    return RateLimiter(repo)


@pytest.fixture
def slow(repo: Repository) -> SlowTable:
    """The same table, with writes that can be held up."""
    return SlowTable(repo.scope.table)


@pytest.fixture
def remote(repo: Repository, slow: SlowTable) -> RateLimiter:
    """A limiter on the slow table."""
    return RateLimiter(slow.seen_from(repo))
