"""Simulate how the number of shards of one hot bucket grows.

    python -m tests.simulation.growth [--seeds 1 2 3] [--clients 64] [--per-second 5000] [--seconds 12]
                                       [--group-commit]

Requests of each client arrive at random times, whether or not earlier ones were answered. Goals: a low rate never adds
shards. 5,000 writes/s from 64 clients, on partitions that accept 1,000 each, settle within 5 s, and then fewer than 1 %
of the writes are throttled.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from random import Random

from tests.simulation.table import Partitions, Tally
from tests.simulation.world import World, shard_counts, simulate
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded

LIMITS = [Limit.per_minute("rpm", 1_000_000)]


@dataclass(frozen=True, slots=True)
class Load:
    """The clients, their rate and the duration; ``throttled`` is the share of writes throttled for no reason."""

    clients: int = 64
    per_second: float = 5_000
    seconds: int = 12
    group_commit: bool = False
    throttled: float = 0.0
    partitions: Partitions = field(default_factory=Partitions)


@dataclass(slots=True)
class Second:
    """The events of one simulated second; ``latencies_ms`` are those of the requests admitted in it, sorted."""

    tally: Tally
    shards: int
    rejected: int = 0
    failed: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def throttled_share(self) -> float:
        """The share of writes and transactions that a partition throttled."""
        tally = self.tally
        throttled = tally.throttled + tally.transactions_throttled
        return throttled / max(1, tally.writes + tally.transactions)

    def latency_ms(self, part: float) -> float:
        """Return the latency that this share of the admitted requests did not exceed."""
        return self.latencies_ms[int(part * (len(self.latencies_ms) - 1))] if self.latencies_ms else 0.0


class _Fleet:
    """The clients, and what happened to their requests in the current second."""

    def __init__(self, limiters: Sequence[RateLimiter], random: Random) -> None:
        self._limiters = limiters
        self._random = random
        self._loop = asyncio.get_running_loop()
        self.now = Second(Tally(), 0)

    async def ask(self, limiter: RateLimiter, per_second: float, until_s: float) -> None:
        """Let the requests of one client arrive."""
        async with asyncio.TaskGroup() as requests:
            while True:
                await asyncio.sleep(self._random.expovariate(per_second))
                if self._loop.time() >= until_s:
                    return
                requests.create_task(self._request(limiter))

    async def run(self, load: Load, until_s: float) -> None:
        """Let the requests of all clients arrive."""
        async with asyncio.TaskGroup() as clients:
            for limiter in self._limiters:
                clients.create_task(self.ask(limiter, load.per_second / load.clients, until_s))

    async def _request(self, limiter: RateLimiter) -> None:
        started_s = self._loop.time()
        try:
            async with limiter.acquire("tenant", "api", {"rpm": 1}):
                self.now.latencies_ms.append((self._loop.time() - started_s) * 1000)
        except RateLimitExceeded:
            self.now.rejected += 1
        except RateLimiterUnavailable:
            self.now.failed += 1


async def grow(seed: int, load: Load) -> list[Second]:
    """Run a load on one bucket, and return the events of each second."""
    world = World(seed, load.partitions)
    world.table.spurious_throttles = load.throttled
    names = [f"client {number}" for number in range(load.clients)]
    limiters = [await world.limiter(name, group_commit=load.group_commit) for name in names]
    await limiters[0].set_system_defaults(LIMITS)
    fleet = _Fleet(limiters, Random(seed))
    before = astuple(world.table.tally)
    until_s = asyncio.get_running_loop().time() + load.seconds
    running = asyncio.create_task(fleet.run(load, until_s))
    seconds = []
    for _ in range(load.seconds):
        await asyncio.sleep(1)
        after = astuple(world.table.tally)
        tally = Tally(*(new - old for new, old in zip(after, before, strict=True)))
        second, fleet.now, before = fleet.now, Second(Tally(), 0), after
        second.latencies_ms.sort()
        second.tally, second.shards = tally, len(shard_counts(world.table))
        seconds.append(second)
    await running
    return seconds


def settled(seconds: Sequence[Second], after_s: int = 5) -> float:
    """Return the share of writes after the first seconds that were throttled."""
    late = seconds[after_s:]
    asked = sum(one.tally.writes + one.tally.transactions for one in late)
    return sum(one.throttled_share * (one.tally.writes + one.tally.transactions) for one in late) / max(1, asked)


def report(seed: int, load: Load) -> Iterator[str]:
    """Run a load, and yield its events as the lines of a table."""
    seconds = simulate(grow, seed, load)
    yield f"seed {seed}: {load.clients} clients, {load.per_second:g} requests/s"
    yield (
        "  s  shards  admitted  rejected  failed  writes  refused  throttled  share  transacts   reads  p50 ms  p99 ms"
    )
    for number, one in enumerate(seconds, 1):
        tally = one.tally
        yield (
            f" {number:2}  {one.shards:6}  {len(one.latencies_ms):8}  {one.rejected:8}  {one.failed:6}"
            f"  {tally.writes:6}  {tally.refused:7}  {tally.throttled + tally.transactions_throttled:9}"
            f"  {one.throttled_share:5.1%}  {tally.transactions:9}  {tally.reads:6}"
            f"  {one.latency_ms(0.5):6.1f}  {one.latency_ms(0.99):6.1f}"
        )
    yield f"  after 5 s: {settled(seconds):.3%} of the writes throttled"


def main() -> None:
    """Print the events of each second, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--per-second", type=float, default=5_000)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--group-commit", action="store_true")
    chosen = parser.parse_args()
    load = Load(chosen.clients, chosen.per_second, chosen.seconds, chosen.group_commit)
    for seed in chosen.seeds:
        for line in report(seed, load):
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
