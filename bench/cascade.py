"""Compare a cascading acquire with a plain one, on memory: CPU time, alternating, as a ratio.

    python bench/cascade.py [--rounds 15] [--calls 3000]

Goal: at most 2.2 times a plain acquire (it is two takes), sync and async. Plain acquires are
measured on one bucket, which stays in the processor's caches, and on two buckets in turn, like
those of a cascade.
"""

import argparse
import asyncio
import time

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

LIMITS = [Limit.per_minute("rpm", 10_000_000), Limit.per_minute("tpm", 1_000_000_000)]
REQUEST = {"rpm": 1, "tpm": 500}
GOAL = 2.2
ENTITIES = (("plain", None), ("other", None), ("project", None), ("key", "project"))
PAIRS = (("plain", "plain"), ("plain", "other"), ("key", "key"))


def sync_runs(calls: int):
    """Return runs of plain and of cascading acquires."""
    repository = SyncRepository.open("memory://")
    limiter = SyncRateLimiter(repository)
    repository.set_system_defaults(LIMITS)
    for entity, parent in ENTITIES:
        repository.create_entity(entity, parent_id=parent, cascade=parent is not None)

    def run(first: str, second: str) -> None:
        for _ in range(calls // 2):
            for entity in (first, second):
                with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                    pass

    return [lambda pair=pair: run(*pair) for pair in PAIRS]


def async_runs(calls: int):
    """Return the same for the async limiter."""
    loop = asyncio.new_event_loop()

    async def make() -> RateLimiter:
        repository = await Repository.open("memory://")
        await repository.set_system_defaults(LIMITS)
        for entity, parent in ENTITIES:
            await repository.create_entity(entity, parent_id=parent, cascade=parent is not None)
        return RateLimiter(repository)

    limiter = loop.run_until_complete(make())

    async def run(first: str, second: str) -> None:
        for _ in range(calls // 2):
            for entity in (first, second):
                async with limiter.acquire(entity, "gpt-4", dict(REQUEST)):
                    pass

    return [lambda pair=pair: loop.run_until_complete(run(*pair)) for pair in PAIRS]


def measure(call) -> int:
    """Return the CPU time of a call, in nanoseconds."""
    before = time.process_time_ns()
    call()
    return time.process_time_ns() - before


def main() -> None:
    """Print the times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each case (15)")
    parser.add_argument("--calls", type=int, default=3_000, help="calls per measurement (3000)")
    chosen = parser.parse_args()
    for title, runs in (("sync", sync_runs(chosen.calls)), ("async", async_runs(chosen.calls))):
        times = [[measure(run) for run in runs] for _ in range(chosen.rounds)]
        one, two, cascade = (min(column) / chosen.calls / 1000 for column in zip(*times, strict=True))
        print(f"{title:5}  plain {one:.2f} us, of two buckets {two:.2f} us, cascade {cascade:.2f} us:", end=" ")
        print(f"{cascade / one:.2f} times one, {cascade / two:.2f} times one of two (goal {GOAL})")


if __name__ == "__main__":
    main()
