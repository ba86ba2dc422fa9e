"""Soft limits in group commits: a batch counts and charges what its requests would, sent one after the other."""

import asyncio

import pytest

from tests._async.clients import AsynchronousTable, another
from zae_limiter import Limit, RateLimiter, Repository

SOFT = Limit.custom("tries", 20, 1, 10**8, enforce=False)


class Suspended(AsynchronousTable):
    """A table whose writes take several turns of the loop."""

    async def write(self, operation, until_s=None):
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().write(operation, until_s)


@pytest.mark.parametrize("limits", [[SOFT], [SOFT, Limit.quota("spend", 1_000)]], ids=["alone", "beside a quota"])
async def test_soft_limit_charges_a_batch_as_far_as_it_has_tokens(limits: list[Limit]) -> None:
    """Otherwise a limit on trial shows that it would reject all requests of a busy bucket, and stays full."""
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults(limits)
        limiter = RateLimiter(another(repo, Suspended))
        async with limiter.acquire("user", "api", {"tries": 0}):
            pass
        exceeded = []

        async def take() -> None:
            async with limiter.acquire("user", "api", {"tries": 1}) as lease:
                exceeded.append(any(status.exceeded for status in lease.statuses))

        await asyncio.gather(*[take() for _ in range(50)])

        assert 0 == (await limiter.available("user", "api"))["tries"]
        assert 30 == sum(exceeded)
