"""A cascade acquire beside a plain one, on memory: CPU time, alternating, as a ratio.

    python bench/cascade.py [--rounds 15] [--calls 3000]

Goal: at most 2.2 times a plain acquire (it is two takes), sync and async.
"""

import argparse
import asyncio
import time

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

LIMITS = [Limit.per_minute("rpm", 10_000_000), Limit.per_minute("tpm", 1_000_000_000)]
REQUEST = {"rpm": 1, "tpm": 500}
GOAL = 2.2


def sync_runs(calls: int):
    """Return a run of plain and one of cascading acquires."""
    repository = SyncRepository.open("memory://")
    limiter = SyncRateLimiter(repository)
    repository.set_system_defaults(LIMITS)
    for entity, parent in (("plain", None), ("project", None), ("key", "project")):
        repository.create_entity(entity, parent_id=parent, cascade=parent is not None)

    def run(entity: str) -> None:
        for _ in range(calls):
            with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                pass

    return lambda: run("plain"), lambda: run("key")


def async_runs(calls: int):
    """Return the same, async."""
    loop = asyncio.new_event_loop()

    async def make() -> RateLimiter:
        repository = await Repository.open("memory://")
        await repository.set_system_defaults(LIMITS)
        for entity, parent in (("plain", None), ("project", None), ("key", "project")):
            await repository.create_entity(entity, parent_id=parent, cascade=parent is not None)
        return RateLimiter(repository)

    limiter = loop.run_until_complete(make())

    async def run(entity: str) -> None:
        for _ in range(calls):
            async with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                pass

    return lambda: loop.run_until_complete(run("plain")), lambda: loop.run_until_complete(run("key"))


def measure(call) -> int:
    """Return the CPU time of a call, in nanoseconds."""
    before = time.process_time_ns()
    call()
    return time.process_time_ns() - before


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=3_000)
    chosen = parser.parse_args()
    for title, runs in (("sync", sync_runs(chosen.calls)), ("async", async_runs(chosen.calls))):
        times = [[measure(run) for run in runs] for _ in range(chosen.rounds)]
        plain, cascade = (min(column) / chosen.calls / 1000 for column in zip(*times, strict=True))
        reached = "reached" if cascade <= GOAL * plain else f"missed by {cascade / plain / GOAL - 1:.0%}"
        print(f"{title:5}  plain {plain:6.2f} us  cascade {cascade:6.2f} us  ratio {cascade / plain:.2f}  {reached}")


if __name__ == "__main__":
    main()
