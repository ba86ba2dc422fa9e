"""A limiter of each kind in memory, with a clock that stands still, so that nothing refills."""

import pytest

from tests._async.clients import SettableClock
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

LIMITS = [Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)]


@pytest.fixture
async def limiter():
    async with await Repository.open("memory://", clock=SettableClock()) as repo:
        await repo.set_system_defaults(LIMITS)
        yield RateLimiter(repo)


@pytest.fixture
def sync_limiter():
    with SyncRepository.open("memory://", clock=SettableClock()) as repo:
        repo.set_system_defaults(LIMITS)
        yield SyncRateLimiter(repo)
