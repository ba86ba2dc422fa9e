"""One bucket and its clients without faults: measure what the limit offers in 15 seconds, and what they get of it.

The measurement begins after five seconds, when the bucket is drained and every client knows the server's time.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.simulation.fleet import Fleet, Process, prepare
from tests.simulation.levels import RESOURCE, Tree
from tests.simulation.loop import Timeline
from tests.simulation.plan import Plan, Scenario
from tests.simulation.server import Lags, Server
from tests.simulation.table import Partitions
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.settings import make_settings

LEAST = 0.98
NAME = "rpm"
LASTS_S = 20.0
"""The duration of the demand in seconds."""

_SECONDS = 15.0
BUCKET = ("user-1", RESOURCE)


@dataclass(frozen=True, slots=True)
class Clients:
    """The number of clients, their requests, and the limit and shards of the bucket."""

    seed: int
    clients: int
    limit: Limit
    amount: int
    shards: int


@dataclass(frozen=True, slots=True)
class Supply:
    """Tokens offered and admitted, the number of requests, and how many failed because the store was unavailable."""

    clients: Clients
    offered: float
    admitted: float
    asked: int
    unavailable: int

    @property
    def share(self) -> float:
        """The share of the offered tokens that was admitted."""
        return self.admitted / self.offered


class Users:
    """The users of one client."""

    def __init__(self, fleet: Fleet, limiter: RateLimiter, amount: int) -> None:
        self._fleet = fleet
        self._limiter = limiter
        self._amount = {NAME: amount}

    @property
    def now_s(self) -> float:
        """The simulated time in seconds."""
        return self._fleet.timeline.now_s

    async def ask(self) -> float:
        """UserRequest once, and return the seconds to wait before the next request."""
        self._fleet.tally["acquires"] += 1
        self._fleet.holdings.may_take(BUCKET, self._amount)
        try:
            async with self._limiter.acquire(*BUCKET, self._amount):
                return 0.0
        except RateLimitExceeded as exceeded:
            return exceeded.retry_after_seconds
        except RateLimiterUnavailable:
            self._fleet.tally["unavailable"] += 1
            return 0.0


def supply(clients: Clients, arrive: Callable[[Users], Awaitable[None]]) -> Supply:
    """Let users ask all clients for 20 seconds, and return what they got.

    Raises:
        Violation: An invariant was violated.
    """
    timeline = Timeline()
    plan = Plan(clients.seed, clients.clients, 0, frozenset())
    scenario = Scenario((BUCKET[0],), Tree(), (clients.limit,), _SECONDS, {}, 60, 1, 1, 0, 1_000, 0.0)
    server = Server(timeline, plan.part("server"), Partitions(), Lags())
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.invariants.step)
    run = _Run(fleet, clients, arrive)
    try:
        timeline.run(run.live())
    finally:
        timeline.close()
    offered = clients.limit.refill_amount * _SECONDS
    return Supply(clients, offered, run.admitted / 1000, fleet.tally["acquires"], fleet.tally["unavailable"])


class _Run:
    """The clients of one bucket."""

    def __init__(self, fleet: Fleet, clients: Clients, arrive: Callable[[Users], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._clients = clients
        self._arrive = arrive
        self.admitted = 0

    async def live(self) -> None:
        """Let users ask, and count what they get."""
        fleet = self._fleet
        first = Process(fleet, "preparation", fleet.reliable)
        first.start(prepare)
        await first.ended
        clients = [Process(fleet, f"client {number}", fleet.reliable) for number in range(self._clients.clients)]
        for client in clients:
            client.start(self._serve)
        await asyncio.sleep(LASTS_S - _SECONDS)
        account = fleet.holdings.accounts[BUCKET, NAME]
        before = account.total
        await asyncio.sleep(_SECONDS)
        self.admitted = account.total - before
        for client in clients:
            await client.ended

    async def _serve(self, process: Process) -> None:
        limiter = await process.open(make_settings())
        if process.name == "client 0":
            await self._split(limiter)
        await self._arrive(Users(self._fleet, limiter, self._clients.amount))

    async def _split(self, limiter: RateLimiter) -> None:
        """Split the bucket until it has the requested number of shards."""
        client = limiter._client
        self._fleet.holdings.may_take(BUCKET, {NAME: 0})
        async with limiter.acquire(*BUCKET, {NAME: 0}):
            pass
        while (count := len(self._fleet.invariants.buckets[BUCKET].shards)) < self._clients.shards:
            for number in range(count):
                view = await client.buckets.look((BUCKET, number), None, client.until_s())
                assert view is not None, "nothing expires here"
                await client.shards.split((BUCKET, number), view, client.until_s())


def print_each(description: str | None, run: Callable[[int], Supply]) -> int:
    """Print the result of each seed. Return 1 if too little was admitted, or a request failed as unavailable."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    bad = 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        found = run(seed)
        bad += found.unavailable > 0 or found.share < LEAST
        shown = f"{found.share:7.2%} of {found.offered:6.0f}, {found.asked:6} requests, {found.unavailable} unavailable"
        sys.stdout.write(f"{seed:5} {shown}: {found.clients}\n")
    return int(bad > 0)
