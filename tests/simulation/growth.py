"""Simulate how the shards of hot buckets grow, and what they cost: one key, or many.

    python -m tests.simulation.growth [--seeds 1 2 3] [--clients 64] [--per-second 5000] [--seconds 12]
                                       [--group-commit] [--keys 1]
    python -m tests.simulation.growth --group-commit --seeds 1 --clients 64 --per-second 100000 --seconds 8
    python -m tests.simulation.growth --group-commit --seeds 1 --keys 1000000

Requests of each client arrive at random times, whether or not earlier ones were answered. With several keys, each
request takes from a random one. Goals: a low rate never adds shards. 5,000 writes/s from 64 clients, on partitions that
accept 1,000 each, settle within 5 s, and then fewer than 1 % of the writes are throttled. The same holds for 100,000
calls/s from 16 or 32 clients with group commit. 64 clients send more writes than 64 shards accept.

Prices are those of the units that DynamoDB would bill for items of at most 1 KB.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from random import Random

from tests.simulation.client_memory import cached_buckets, cached_bytes
from tests.simulation.table import Partitions, SimulatedTable, Tally
from tests.simulation.world import World, simulate
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.loadtest.costs import USD_PER_MILLION_READ_UNITS, USD_PER_MILLION_WRITE_UNITS

LIMITS = [Limit.per_minute("rpm", 1_000_000)]


@dataclass(frozen=True, slots=True)
class Load:
    """The clients, their rate and the duration; ``throttled`` is the share of writes throttled for no reason.

    Each request takes from a random one of ``keys`` buckets.
    """

    clients: int = 64
    per_second: float = 5_000
    seconds: int = 12
    group_commit: bool = False
    throttled: float = 0.0
    keys: int = 1
    partitions: Partitions = field(default_factory=Partitions)

    @property
    def limits(self) -> list[Limit]:
        """Limits of twice the rate, so that no request is rejected for good."""
        per_minute = int(self.per_second * 120)
        return LIMITS if per_minute <= LIMITS[0].capacity else [Limit.per_minute("rpm", per_minute)]


@dataclass(slots=True)
class Second:
    """The events of one simulated second; ``latencies_ms`` are those of the requests admitted in it, sorted.

    ``shards`` are those of all buckets.
    """

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

    @property
    def usd(self) -> float:
        """The price of its units."""
        written = self.tally.write_units * USD_PER_MILLION_WRITE_UNITS
        return (written + self.tally.read_units * USD_PER_MILLION_READ_UNITS) / 1_000_000

    def latency_ms(self, part: float) -> float:
        """Return the latency that this share of the admitted requests did not exceed."""
        return self.latencies_ms[int(part * (len(self.latencies_ms) - 1))] if self.latencies_ms else 0.0


@dataclass(frozen=True, slots=True)
class Cached:
    """What the client with the most buckets has cached at the end."""

    buckets: int
    size_bytes: int


class _Fleet:
    """The clients, and what happened to their requests in the current second."""

    def __init__(self, limiters: Sequence[RateLimiter], random: Random, keys: int) -> None:
        self._limiters = limiters
        self._random = random
        self._keys = keys
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
        key = "tenant" if self._keys == 1 else f"tenant-{self._random.randrange(self._keys)}"
        try:
            async with limiter.acquire(key, "api", {"rpm": 1}):
                self.now.latencies_ms.append((self._loop.time() - started_s) * 1000)
        except RateLimitExceeded:
            self.now.rejected += 1
        except RateLimiterUnavailable:
            self.now.failed += 1


async def grow(seed: int, load: Load) -> list[Second]:
    """Run a load, and return the events of each second."""
    return (await grow_and_measure(seed, load))[0]


async def grow_and_measure(seed: int, load: Load) -> tuple[list[Second], Cached]:
    """Run a load, and return the events of each second, and what a client has cached at the end."""
    world = World(seed, load.partitions)
    world.table.spurious_throttles = load.throttled
    names = [f"client {number}" for number in range(load.clients)]
    limiters = [await world.limiter(name, group_commit=load.group_commit) for name in names]
    await limiters[0].set_system_defaults(load.limits)
    fleet = _Fleet(limiters, Random(seed), load.keys)
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
        second.tally, second.shards = tally, _shards(world.table)
        seconds.append(second)
    await running
    fullest = max(limiters, key=cached_buckets)
    return seconds, Cached(cached_buckets(fullest), cached_bytes(fullest))


def _shards(table: SimulatedTable) -> int:
    return sum("/BUCKET#" in item["PK"] for item in table.items())


def settled(seconds: Sequence[Second], after_s: int = 5) -> float:
    """Return the share of writes after the first seconds that were throttled."""
    late = seconds[after_s:]
    asked = sum(one.tally.writes + one.tally.transactions for one in late)
    return sum(one.throttled_share * (one.tally.writes + one.tally.transactions) for one in late) / max(1, asked)


def report(seed: int, load: Load) -> Iterator[str]:
    """Run a load, and yield its events as the lines of a table."""
    seconds, cached = simulate(grow_and_measure, seed, load)
    yield f"seed {seed}: {load.clients} clients, {load.per_second:g} requests/s, {load.keys} keys"
    yield (
        "  s  shards  admitted  rejected  failed  writes  refused  throttled  share  transacts   reads  p50 ms  p99 ms"
        "  USD/M"
    )
    for number, one in enumerate(seconds, 1):
        tally = one.tally
        yield (
            f" {number:2}  {one.shards:6}  {len(one.latencies_ms):8}  {one.rejected:8}  {one.failed:6}"
            f"  {tally.writes:6}  {tally.refused:7}  {tally.throttled + tally.transactions_throttled:9}"
            f"  {one.throttled_share:5.1%}  {tally.transactions:9}  {tally.reads:6}"
            f"  {one.latency_ms(0.5):6.1f}  {one.latency_ms(0.99):6.1f}  {usd_per_million([one]):5.2f}"
        )
    late = seconds[5:] or seconds[-1:]
    yield (
        f"  after 5 s: {settled(seconds):.3%} of the writes throttled, "
        f"{sum(one.tally.writes for one in late) / len(late):.0f} writes/s, "
        f"USD {usd_per_million(late):.3f} per million calls, USD {_usd_per_hour(late):.2f} an hour"
    )
    each = cached.size_bytes / max(1, cached.buckets)
    yield f"  a client caches {cached.buckets} buckets in {cached.size_bytes / 1024:.0f} KiB, {each:.0f} bytes each"


def usd_per_million(seconds: Sequence[Second]) -> float:
    """Return the price of a million admitted calls."""
    admitted = sum(len(one.latencies_ms) for one in seconds)
    return sum(one.usd for one in seconds) / max(1, admitted) * 1_000_000


def _usd_per_hour(seconds: Sequence[Second]) -> float:
    return sum(one.usd for one in seconds) / len(seconds) * 3600


def main() -> None:
    """Print the events of each second, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--per-second", type=float, default=5_000)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--group-commit", action="store_true")
    parser.add_argument("--keys", type=int, default=1, help="buckets that requests take from at random (1)")
    chosen = parser.parse_args()
    load = Load(chosen.clients, chosen.per_second, chosen.seconds, chosen.group_commit, keys=chosen.keys)
    for seed in chosen.seeds:
        for line in report(seed, load):
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
