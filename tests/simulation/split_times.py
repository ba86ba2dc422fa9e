"""Simulate how long a bucket is hot before it is split, with batches of the stream as Lambda forms them.

    python -m tests.simulation.split_times [--seeds 40] [--rates 850 950 1500]

A bucket is written now and then, and suddenly at a high rate. Clients that live for more than a second measure the rate
and split as well. Clients that live shorter split only if they are throttled, which begins at 1,000 writes a second.
Stacks have the settings *before* until the interval became an option. Batches of 6 MB, the most that Lambda delivers,
are a control.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from itertools import count as numbers_from
from itertools import product
from random import Random
from typing import Any, NamedTuple

from tests.aggregator.stream_batches import BEFORE, Batching, deployed
from tests.simulation.growth import LIMITS
from tests.simulation.stream import Row
from tests.simulation.world import World, simulate
from zae_limiter import RateLimiter
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import BackendCapabilities
from zae_limiter.infra.options import StackOptions
from zae_limiter.schema.operations import Key
from zae_limiter_aggregator.apply import ApplyContext, Pause, Read, TableDialogue, Transaction, count, split
from zae_limiter_aggregator.plan import Memories, Rules, plan
from zae_limiter_aggregator.records import read_all

LARGEST = Batching(60.0, 2_250)
"""Batches of 6 MB, of records with 2.8 KB."""
SETTINGS = {
    "before": BEFORE,
    "default": deployed(StackOptions().usage_interval_seconds),
    "batches of 6 MB": LARGEST,
}

_STATE = "#STATE"
_CALM_PER_S = (0.1, 1.0, 10.0)
_LONGEST_CALM_S = 60.0
_LONGEST_HOT_S = 15
_CLIENTS = 16
_UNLIMITED = 10**9


class Heat(NamedTuple):
    """The rate of a bucket that becomes hot, and whether its clients live long enough to measure it."""

    per_s: float
    measured: bool


class Hot(NamedTuple):
    """How long a bucket was hot before its split, in seconds, and how many writes were throttled until then."""

    split_s: float
    throttled: int


class LambdaStream:
    """The stream of a table with one shard, and the aggregator on it."""

    def __init__(self, world: World, batching: Batching) -> None:
        self._world = world
        self._batching = batching
        self.split = asyncio.Event()
        self._rows: list[Row] = []
        self._numbers = numbers_from(10**20)
        self._loop = asyncio.get_running_loop()
        self._opened_s = 0.0
        self._context = ApplyContext(numbers_from(1), self._world.table.now)
        self._rules = Rules(window_types=("hourly", "daily"), interval_s=int(self._batching.window_s))
        self._memories = Memories()
        self._world.table.on_change = self._append

    def _append(self, key: Key, old: Item | None, new: Item | None) -> None:
        if key.sk == _STATE:
            if new is not None and new["shard_count"] > 1:
                self.split.set()
            if not self._rows:
                self._opened_s = self._loop.time()
            self._rows.append(Row(next(self._numbers), self._world.clock.now_ms() // 1000, key, old, new))

    async def work(self) -> None:
        """Deliver batches one after the other, until it is cancelled."""
        while True:
            await asyncio.sleep(0.01)
            ended = self._rows and self._loop.time() >= self._opened_s + self._batching.window_s
            if ended or len(self._rows) >= self._batching.records:
                some, self._rows = self._rows[: self._batching.records], self._rows[self._batching.records :]
                self._opened_s = self._loop.time()
                await self._deliver(some)

    async def _deliver(self, rows: Sequence[Row]) -> None:
        batch = read_all([row.record() for row in rows])
        planned = plan(batch, self._memories, self._rules, self._world.table.now()[1])
        for one in planned.splits:
            await self._carry_out(split(one, self._context))
        for group in planned.counts:
            counted = await self._carry_out(count(group, planned.rules, self._context))
            assert not counted.left, counted.cause

    async def _carry_out(self, dialogue: TableDialogue[Any]) -> Any:
        table, answer = self._world.table, None
        while True:
            try:
                ask = dialogue.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(ask, Read):
                answer = await table.batch_get(ask.keys, consistent=ask.consistent)
            elif isinstance(ask, Transaction):
                answer = await table.transact(ask.operations, ask.token)
            elif isinstance(ask, Pause):
                answer = await asyncio.sleep(ask.seconds)
            else:
                answer = await table.write(ask)


async def hot(seed: int, heat: Heat, batching: Batching) -> Hot:
    """Let a bucket become hot at a time drawn from the seed, until it is split.

    Raises:
        TimeoutError: It was never split.
    """
    random = Random(f"hot {seed}")
    world = World(seed)
    if not heat.measured:
        # No rate that a client could measure is too high.
        world.table.capabilities = BackendCapabilities(partition_writes_per_second=_UNLIMITED)
    loop = asyncio.get_running_loop()
    limiters = [await world.limiter(f"client {number}", group_commit=False) for number in range(_CLIENTS)]
    await limiters[0].set_system_defaults(LIMITS)
    stream = LambdaStream(world, batching)
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(stream.work())
        calm_until_s = loop.time() + random.random() * _LONGEST_CALM_S
        await _ask(tasks, limiters, random, (random.choice(_CALM_PER_S), calm_until_s))
        began_s, before = loop.time(), world.table.tally.throttled
        asking = tasks.create_task(_ask(tasks, limiters, random, (heat.per_s, began_s + _LONGEST_HOT_S)))
        await asyncio.wait_for(stream.split.wait(), _LONGEST_HOT_S)
        split_s = loop.time() - began_s
        asking.cancel()
        working.cancel()
    return Hot(split_s, world.table.tally.throttled - before)


async def _ask(
    tasks: asyncio.TaskGroup, limiters: Sequence[RateLimiter], random: Random, load: tuple[float, float]
) -> None:
    """Let requests arrive at a rate, until a time."""
    per_s, until_s = load
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    while (next_s := next_s + random.expovariate(per_s)) < until_s:
        await asyncio.sleep(next_s - loop.time())
        tasks.create_task(_request(random.choice(limiters)))


async def _request(limiter: RateLimiter) -> None:
    async with limiter.acquire("tenant", "api", {"rpm": 1}):
        pass


def runs(seeds: Sequence[int], heat: Heat, batching: Batching) -> list[Hot]:
    """Run all seeds, and return the results ordered by the time of the split."""
    return sorted(simulate(hot, seed, heat, batching) for seed in seeds)


def mean_s(results: Sequence[Hot]) -> float:
    """Return the mean time of the split."""
    return sum(one.split_s for one in results) / len(results)


def report(seeds: Sequence[int], rates: Sequence[float]) -> Iterator[str]:
    """Run all rates with all settings, and yield the lines of a table."""
    yield "| writes/s | clients live | settings | window | batch | mean s | p90 s | longest s | throttled, mean |"
    yield "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for per_s, measured in product(rates, (False, True)):
        for name, batching in SETTINGS.items():
            results = runs(seeds, Heat(per_s, measured), batching)
            throttled = sum(one.throttled for one in results) / len(results)
            yield (
                f"| {per_s:g} | {'long' if measured else 'briefly'} | {name} | {batching.window_s:g} s "
                f"| {batching.records} | {mean_s(results):.2f} | {results[len(results) * 9 // 10].split_s:.2f} "
                f"| {results[-1].split_s:.2f} | {throttled:.0f} |"
            )


def main() -> None:
    """Print the times of splits, for each rate and each of the settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rates", type=float, nargs="+", default=[850, 950, 1_500])
    chosen = parser.parse_args()
    for line in report(range(1, chosen.seeds + 1), chosen.rates):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
