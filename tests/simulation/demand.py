"""Demand that never ends: how much of what a limit offers is admitted, where nothing goes wrong.

    python -m tests.simulation.demand [--seeds 50]

Users ask, wait for as long as a rejection tells them to, and ask again. Of all that is earned, at least 98 % must be
admitted, by any number of clients, on one shard or several, with group commit or without. It is counted from a few
seconds on, when the bucket is drained and every client has found out the time.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from random import Random

from tests.simulation.books import Violation
from tests.simulation.fleet import RESOURCE, Fleet, Process, prepare
from tests.simulation.loop import Timeline
from tests.simulation.plan import Plan, Scenario
from tests.simulation.server import Lags, Server
from tests.simulation.table import Partitions
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.settings import make_settings

LEAST = 0.98

_NAME = "rpm"
_ENTITY = "user-1"
_USERS = 3
_WARMING_S = 5.0
_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Who asks for what."""

    seed: int
    clients: int
    limit: Limit
    amount: int
    shards: int

    @classmethod
    def of(cls, seed: int) -> "Demand":
        """Return what a seed stands for."""
        random = Random(f"demand {seed}")
        per_s = random.choice((10, 20, 50, 100, 200))
        capacity = per_s * random.choice((1, 2, 5))
        amount = random.choice((1, 1, 2, 5))
        limit = Limit(_NAME, capacity, per_s, 1)
        return cls(seed, random.choice((1, 2, 4, 8, 16, 32)), limit, amount, random.choice((1, 1, 2, 4)))


@dataclass(frozen=True, slots=True)
class Supply:
    """What was offered, and what was admitted, in tokens."""

    demand: Demand
    offered: float
    admitted: float
    asked: int
    contended: int

    @property
    def share(self) -> float:
        """The part of what was offered that was admitted."""
        return self.admitted / self.offered


def supply(demand: Demand) -> Supply:
    """Let users ask without end for a while, and return what they got.

    Raises:
        Violation: Something else that is promised did not hold.
    """
    timeline = Timeline()
    plan = Plan(demand.seed, demand.clients, 0, frozenset())
    scenario = Scenario((_ENTITY,), {}, (demand.limit,), _SECONDS, {}, 60, 1, 1, 0, 1_000, 0.0)
    server = Server(timeline, plan.part("server"), Partitions(), Lags())
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.books.step)
    run = _Run(fleet, demand)
    try:
        timeline.run(run.live())
    finally:
        timeline.close()
    tally = fleet.tally
    return Supply(
        demand, demand.limit.refill_amount * _SECONDS, run.admitted / 1000, tally["acquires"], tally["contended"]
    )


class _Run:
    """The clients of one bucket, all of them in want."""

    def __init__(self, fleet: Fleet, demand: Demand) -> None:
        self._fleet = fleet
        self._demand = demand
        self._until_s = 0.0
        self.admitted = 0

    async def live(self) -> None:
        """Let users ask for a while."""
        fleet = self._fleet
        first = Process(fleet, "preparation", fleet.calm)
        first.start(prepare)
        await first.ended
        self._until_s = fleet.timeline.now_s + _WARMING_S + _SECONDS
        clients = [Process(fleet, f"client {number}", fleet.calm) for number in range(self._demand.clients)]
        for client in clients:
            client.start(self._ask)
        await asyncio.sleep(_WARMING_S)
        account = fleet.holdings.accounts[(_ENTITY, RESOURCE), _NAME]
        before = account.total
        await asyncio.sleep(_SECONDS)
        self.admitted = account.total - before
        for client in clients:
            await client.ended

    async def _ask(self, process: Process) -> None:
        limiter = await process.open(make_settings())
        if process.name == "client 0":
            await split(self._fleet, limiter, self._demand.shards)
        async with asyncio.TaskGroup() as users:
            for _ in range(_USERS):
                users.create_task(self._want(limiter))

    async def _want(self, limiter: RateLimiter) -> None:
        fleet, demand = self._fleet, self._demand
        while fleet.timeline.now_s < self._until_s:
            fleet.tally["acquires"] += 1
            fleet.holdings.may_take((_ENTITY, RESOURCE), {_NAME: demand.amount})
            try:
                async with limiter.acquire(_ENTITY, RESOURCE, {_NAME: demand.amount}):
                    pass
            except RateLimitExceeded as exceeded:
                await asyncio.sleep(exceeded.retry_after_seconds)
            except RateLimiterUnavailable:
                # Others kept changing the bucket: nothing was taken.
                fleet.tally["contended"] += 1


async def split(fleet: Fleet, limiter: RateLimiter, count: int) -> None:
    """Make a bucket of so many shards."""
    client = limiter._client
    bucket = (_ENTITY, RESOURCE)
    fleet.holdings.may_take(bucket, {_NAME: 0})
    async with limiter.acquire(*bucket, {_NAME: 0}):
        pass
    while (there := len(fleet.books.buckets[bucket].shards)) < count:
        for number in range(there):
            view = await client.buckets.look((bucket, number), None, client.until_s())
            assert view is not None, "nothing expires here"
            await client.shards.split((bucket, number), view, client.until_s())


def check(seed: int) -> Supply:
    """Run a seed.

    Raises:
        Violation: Too little was admitted, or something else that is promised did not hold.
    """
    found = supply(Demand.of(seed))
    if found.share < LEAST:
        raise Violation("starved", f"{found.share:.1%} admitted", found, "repeat with --first", seed, "--seeds 1")
    return found


def main() -> int:
    """Print what was admitted, seed by seed; 1 if it was too little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    starved = 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        found = supply(Demand.of(seed))
        starved += found.share < LEAST
        told = f"{found.share:7.2%} of {found.offered:6.0f}, {found.asked:6} asked, {found.contended} in vain"
        sys.stdout.write(f"{seed:5} {told}: {found.demand}\n")
    return int(starved > 0)


if __name__ == "__main__":
    sys.exit(main())
