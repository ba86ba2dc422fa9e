"""A flood: far more requests than a limit offers, which do not wait for each other.

    python -m tests.simulation.flood [--seeds 50]

Whoever comes too late is told so, and not that the store is away; at least 98 % of what is earned is admitted still.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from random import Random

from tests.simulation.demand import LEAST, split
from tests.simulation.fleet import RESOURCE, Fleet, Process, prepare
from tests.simulation.loop import Timeline
from tests.simulation.plan import Plan, Scenario
from tests.simulation.server import Lags, Server
from tests.simulation.table import Partitions
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.settings import make_settings

_NAME = "rpm"
_ENTITY = "user-1"
_WARMING_S = 5.0
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Flood:
    """How many come in a second, and for what."""

    seed: int
    limit: Limit
    amount: int
    per_s: int
    clients: int
    shards: int

    @classmethod
    def of(cls, seed: int) -> "Flood":
        """Return what a seed stands for."""
        random = Random(f"flood {seed}")
        offered = random.choice((5, 20, 50, 200, 400))
        amount = random.choice((1, 1, 2, 5))
        # Of a bucket that a request takes all of, whatever is earned between two requests is lost.
        capacity = max(5 * amount, round(offered * random.choice((0.1, 0.5, 1, 5))))
        per_s = round(offered / amount * random.choice((2, 4, 10)))
        limit = Limit(_NAME, capacity, offered, 1)
        return cls(seed, limit, amount, per_s, random.choice((1, 1, 4)), random.choice((1, 1, 4)))


@dataclass(frozen=True, slots=True)
class Ebb:
    """What came of it: tokens, and how many asked, and were told that the store is away."""

    flood: Flood
    offered: float
    admitted: float
    asked: int
    away: int

    @property
    def share(self) -> float:
        """The part of what was offered that was admitted, but for a request at either end of the time."""
        return self.admitted / (self.offered - 2 * self.flood.amount)


def ebb(flood: Flood) -> Ebb:
    """Let them come for a while, and return what they got.

    Raises:
        Violation: Something else that is promised did not hold.
    """
    timeline = Timeline()
    plan = Plan(flood.seed, flood.clients, 0, frozenset())
    scenario = Scenario((_ENTITY,), {}, (flood.limit,), _SECONDS, {}, 60, 1, 1, 0, 1_000, 0.0)
    server = Server(timeline, plan.part("server"), Partitions(), Lags())
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.books.step)
    run = _Run(fleet, flood)
    try:
        timeline.run(run.live())
    finally:
        timeline.close()
    offered = flood.limit.refill_amount * _SECONDS
    return Ebb(flood, offered, run.admitted / 1000, fleet.tally["acquires"], fleet.tally["away"])


class _Run:
    """Some clients, and all who come to them."""

    def __init__(self, fleet: Fleet, flood: Flood) -> None:
        self._fleet = fleet
        self._flood = flood
        self.admitted = 0

    async def live(self) -> None:
        """Let them come for a while."""
        fleet = self._fleet
        first = Process(fleet, "preparation", fleet.calm)
        first.start(prepare)
        await first.ended
        clients = [Process(fleet, f"client {number}", fleet.calm) for number in range(self._flood.clients)]
        for client in clients:
            client.start(self._serve)
        await asyncio.sleep(_WARMING_S)
        account = fleet.holdings.accounts[(_ENTITY, RESOURCE), _NAME]
        before = account.total
        await asyncio.sleep(_SECONDS)
        self.admitted = account.total - before
        for client in clients:
            await client.ended

    async def _serve(self, process: Process) -> None:
        limiter = await process.open(make_settings())
        flood = self._flood
        if process.name == "client 0":
            await split(self._fleet, limiter, flood.shards)
        each_per_s = flood.per_s / flood.clients
        async with asyncio.TaskGroup() as users:
            for _ in range(round((_WARMING_S + _SECONDS) * each_per_s)):
                users.create_task(self._ask(limiter))
                await asyncio.sleep(1 / each_per_s)

    async def _ask(self, limiter: RateLimiter) -> None:
        fleet, amount = self._fleet, self._flood.amount
        fleet.tally["acquires"] += 1
        fleet.holdings.may_take((_ENTITY, RESOURCE), {_NAME: amount})
        try:
            async with limiter.acquire(_ENTITY, RESOURCE, {_NAME: amount}):
                pass
        except RateLimitExceeded:
            fleet.tally["rejected"] += 1
        except RateLimiterUnavailable:
            fleet.tally["away"] += 1


def main() -> int:
    """Print what came of each flood; 1 if anybody was told that the store is away, or too little was admitted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    bad = 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        found = ebb(Flood.of(seed))
        bad += found.away > 0 or found.share < LEAST
        told = f"{found.share:7.2%} of {found.offered:6.0f}, {found.asked:6} asked, {found.away} told away"
        sys.stdout.write(f"{seed:5} {told}: {found.flood}\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
