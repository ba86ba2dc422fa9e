"""Requests that wait for the next period of a quota, in simulated time."""

import asyncio
from typing import Any

from tests.simulation.world import START_MS, World, simulate
from zae_limiter import Limit, RateLimiter, RateLimitExceeded

EDGE_S = 1_700_006_400 - START_MS / 1000
"""The seconds from the start of the simulation to midnight."""


async def limited(*limits: Limit) -> RateLimiter:
    limiter = await World(7).limiter("client")
    await limiter.set_system_defaults(list(limits))
    return limiter


async def take(limiter: RateLimiter, amount: int, **options: Any) -> float:
    """Take from a quota, and return the time of the admission."""
    async with limiter.acquire("user-1", "gpt-4", {"spend": amount}, **options):
        return asyncio.get_running_loop().time()


def test_request_waits_exactly_until_the_edge_of_its_quota() -> None:
    """The wait of a rejection is exact, and nothing is asked before."""

    async def scenario() -> list[float]:
        limiter = await limited(Limit.quota("spend", 3, every="day"))
        await take(limiter, 3)
        return list(await asyncio.gather(*[take(limiter, 1, max_wait=60) for _ in range(3)]))

    admitted = simulate(scenario)

    assert all(EDGE_S <= at_s < EDGE_S + 1.2 for at_s in admitted), (EDGE_S, admitted)


def test_request_whose_edge_is_too_far_is_rejected_immediately() -> None:
    """A wait that cannot end in time does not begin."""

    async def scenario() -> tuple[float, float]:
        limiter = await limited(Limit.quota("spend", 3, every="month"))
        await take(limiter, 3)
        before = asyncio.get_running_loop().time()
        try:
            await take(limiter, 1, max_wait=60)
        except RateLimitExceeded as error:
            return asyncio.get_running_loop().time() - before, error.retry_after_seconds
        raise AssertionError("the quota is used up")

    took_s, wait_s = simulate(scenario)

    assert took_s < 0.1
    assert wait_s > 86_400


def test_request_that_a_soft_limit_would_reject_does_not_wait_for_it() -> None:
    """Only the enforced limit is waited for."""

    async def scenario() -> float:
        hard, soft = Limit.per_second("rps", 1), Limit.quota("spend", 1, every="month", enforce=False)
        limiter = await limited(hard, soft)
        await take(limiter, 5)
        async with limiter.acquire("user-1", "gpt-4", {"rps": 1}):
            pass
        async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "spend": 5}, max_wait=10) as lease:
            return lease.waited

    assert 0.5 < simulate(scenario) < 2.5
