"""Requests that wait for a slot of a limit of concurrent use."""

import asyncio

from tests._async.clients import another
from tests.limiter_async.waiters import opened, queues
from tests.simulation.world import simulate
from zae_limiter import Limit, RateLimiter


def test_request_that_waits_for_a_slot_gets_it_when_it_is_returned():
    """A return in the same process wakes it at once. One of another process is found by asking again soon."""
    limits = [Limit.per_second("rps", 100), Limit.concurrent("slots", 1, hold_seconds=60)]

    async def main():
        repo = await opened(limits)
        here, elsewhere = RateLimiter(repo), RateLimiter(another(repo))
        waited = []
        for holder in (here, elsewhere):
            lease = holder.acquire("user", "api", {"rps": 1, "slots": 1})
            await lease.__aenter__()
            waiting = asyncio.create_task(_waited(here))
            await asyncio.sleep(1.1)
            await lease.__aexit__(None, None, None)
            waited.append(round(await waiting, 3))
        return waited, queues(here)

    (woken, found), left = simulate(main)

    assert (1.1, 0) == (woken, left)
    assert 1.1 <= found <= 1.35


async def _waited(limiter):
    async with limiter.acquire("user", "api", {"rps": 1, "slots": 1}, max_wait=5) as lease:
        return lease.waited
