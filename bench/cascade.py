"""Compare an acquire of several levels with one of a single level, embedded: CPU time, alternating, as a ratio.

    python bench/cascade.py [--rounds 15] [--calls 3000] [--store sqlite]

Goals in memory: 2 levels at most 2.2 times one level, and 3 levels at most 2.4 times, sync and async. An acquire of N
levels is N takes. The last figure compares it with as many acquires of one level, each of another bucket, because one
bucket alone stays in the processor's caches.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

LIMITS = [Limit.per_minute("rpm", 10_000_000), Limit.per_minute("tpm", 1_000_000_000)]
REQUEST = {"rpm": 1, "tpm": 500}
LEVELS = (1, 2, 3, 5)
GOALS = {2: 2.2, 3: 2.4}
"""The most times of one level that an acquire of some levels may cost, in memory."""

Runs = dict[str, Callable[[], object]]


def chain(levels: int) -> list[str]:
    """Return the entities of a chain, the lowest first."""
    return [f"level-{number}-of-{levels}" for number in range(levels)]


def singles(levels: int) -> list[str]:
    """Return as many entities without a parent."""
    return [f"single-{number}" for number in range(levels)]


def parents() -> dict[str, str | None]:
    """Return the parent of each entity, None if it has none; parents come first."""
    found: dict[str, str | None] = dict.fromkeys(singles(max(LEVELS)))
    for levels in LEVELS:
        above = None
        for entity in reversed(chain(levels)):
            found[entity] = above
            above = entity
    return found


def entities_of(levels: int) -> dict[str, list[str]]:
    """Return the entities that one measurement takes from in turn, by its name."""
    return {f"levels {levels}": chain(levels)[:1], f"singles {levels}": singles(levels)}


def sync_runs(url: str, calls: int) -> Runs:
    """Return runs of acquires, by their names."""
    repository = SyncRepository.open(url)
    limiter = SyncRateLimiter(repository)
    repository.set_system_defaults(LIMITS)
    for entity, parent in parents().items():
        repository.create_entity(entity, parent_id=parent, cascade=parent is not None)

    def run(entities: list[str]) -> None:
        for _ in range(calls):
            for entity in entities:
                with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                    pass

    named = {name: entities for levels in LEVELS for name, entities in entities_of(levels).items()}
    return {name: lambda entities=entities: run(entities) for name, entities in named.items()}


def async_runs(url: str, calls: int) -> Runs:
    """Return the same for the async limiter."""
    loop = asyncio.new_event_loop()

    async def make() -> RateLimiter:
        repository = await Repository.open(url)
        await repository.set_system_defaults(LIMITS)
        for entity, parent in parents().items():
            await repository.create_entity(entity, parent_id=parent, cascade=parent is not None)
        return RateLimiter(repository)

    limiter = loop.run_until_complete(make())

    async def run(entities: list[str]) -> None:
        for _ in range(calls):
            for entity in entities:
                async with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                    pass

    named = {name: entities for levels in LEVELS for name, entities in entities_of(levels).items()}
    return {name: lambda entities=entities: loop.run_until_complete(run(entities)) for name, entities in named.items()}


def measure(call: Callable[[], object]) -> int:
    """Return the CPU time of a call, in nanoseconds."""
    before = time.process_time_ns()
    call()
    return time.process_time_ns() - before


def report(title: str, runs: Runs, rounds: int, calls: int) -> None:
    """Measure the runs in turn, and print the best of each."""
    for run in runs.values():
        run()
    times = {name: min(column) for name, column in _columns(runs, rounds).items()}
    for levels in LEVELS:
        taken, apart = times[f"levels {levels}"], times[f"singles {levels}"]
        goal = f" (goal {GOALS[levels]})" if levels in GOALS and title.startswith("memory") else ""
        print(
            f"{title:12} {levels} levels: {taken / calls / 1000:7.2f} us, "
            f"{taken / times['levels 1']:.2f} times one level{goal}, {taken / apart:.2f} times {levels} acquires"
        )


def _columns(runs: Runs, rounds: int) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            columns[name].append(measure(run))
    return columns


def main() -> None:
    """Print the times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each case (15)")
    parser.add_argument("--calls", type=int, default=3_000, help="calls per measurement (3000)")
    parser.add_argument("--store", choices=("memory", "sqlite"), help="one store (both)")
    chosen = parser.parse_args()
    for store in [chosen.store] if chosen.store else ["memory", "sqlite"]:
        # SQLite is several times slower, and its ratios are less noisy.
        calls = chosen.calls if store == "memory" else max(1, chosen.calls // 5)
        for title, runs_of in (("sync", sync_runs), ("async", async_runs)):
            with tempfile.TemporaryDirectory() as folder:
                url = "memory://" if store == "memory" else f"sqlite:///{Path(folder) / 'limits.db'}"
                report(f"{store} {title}", runs_of(url, calls), chosen.rounds, calls)


if __name__ == "__main__":
    main()
