"""Requests that wait for their tokens, each in a task of its own, and a repository in simulated time."""

import asyncio
from random import Random

from tests.simulation.world import LoopClock
from zae_limiter import Limit, Repository

PER_SECOND = [Limit.per_second("rps", 5)]


async def opened(limits=PER_SECOND, **settings):
    """Return a repository in simulated time, with these default limits."""
    clock = LoopClock(asyncio.get_running_loop())
    repo = await Repository.open("memory://", clock=clock, random=Random(1), **settings)
    await repo.set_system_defaults(limits)
    return repo


async def exhaust(limiter, amount=5, entity="user"):
    """Take tokens and keep them."""
    async with limiter.acquire(entity, "api", {"rps": amount}):
        pass


class Order:
    """Starts requests that wait, and notes when each was admitted."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.admitted = []
        self.tasks = []

    def start(self, name, amount=1, entity="user", **options):
        """Start a request in a task of its own, which waits up to a minute."""
        self.tasks.append(asyncio.create_task(self._take(name, amount, entity, {"max_wait": 60, **options})))
        return self.tasks[-1]

    async def _take(self, name, amount, entity, options):
        async with self.limiter.acquire(entity, "api", {"rps": amount}, **options) as lease:
            self.admitted.append((name, round(asyncio.get_running_loop().time(), 2)))
            return lease.waited

    async def names(self):
        """Wait for all, and return the order in which they were admitted."""
        await asyncio.gather(*self.tasks)
        return "".join(name for name, _ in self.admitted)


def queues(limiter):
    """Return how many queues there are."""
    return len(limiter._client.queues())
