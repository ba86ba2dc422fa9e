"""Measure the CPU time of acquire and exit with a quota, relative to the same with rate limits only.

    .venv/bin/python bench/quotas.py [--rounds 20] [--calls 5000] [--only memory]

Each round measures every case in turn, so the ratios of a round are comparable on a loaded machine. The goal on memory
is at most 1.25 times a request of three rate limits.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

GOAL = 1.25
RATES = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 1_000_000_000)]
THIRD = Limit.per_minute("xpm", 1_000_000_000)
SPEND = Limit.quota("spend", 10**15, every="month", tz="Europe/Berlin")
SOFT = Limit.quota("spend", 10**15, every="month", tz="Europe/Berlin", enforce=False)
BASE = "three rate limits"
CASES: dict[str, tuple[list[Limit], dict[str, int]]] = {
    BASE: ([*RATES, THIRD], {"rpm": 1, "tpm": 500, "xpm": 12_500}),
    "a quota": ([*RATES, SPEND], {"rpm": 1, "tpm": 500, "spend": 12_500}),
    "a soft quota": ([*RATES, SOFT], {"rpm": 1, "tpm": 500, "spend": 12_500}),
    "quota not requested": ([*RATES, SPEND], {"rpm": 1, "tpm": 500}),
}
WARM_UP = 200


def cpu_us(work: Callable[[int], Any], calls: int) -> float:
    """Return the CPU microseconds of one call, of the whole process, so that other threads count."""
    work(WARM_UP)
    gc.collect()
    began_ns = time.process_time_ns()
    work(calls)
    return (time.process_time_ns() - began_ns) / calls / 1_000


def measured_sync(url: str, limits: list[Limit], consume: dict[str, int], calls: int) -> float:
    """Measure one case of the sync tree."""
    with SyncRepository.open(url) as repo:
        repo.set_system_defaults(limits)
        limiter = SyncRateLimiter(repo)

        def work(count: int) -> None:
            for _ in range(count):
                with limiter.acquire("user-1", "gpt-4", consume):
                    pass

        return cpu_us(work, calls)


def measured_async(url: str, limits: list[Limit], consume: dict[str, int], calls: int) -> float:
    """Measure one case of the async tree."""
    loop = asyncio.new_event_loop()
    repo = loop.run_until_complete(Repository.open(url))
    loop.run_until_complete(repo.set_system_defaults(limits))
    limiter = RateLimiter(repo)

    async def work(count: int) -> None:
        for _ in range(count):
            async with limiter.acquire("user-1", "gpt-4", consume):
                pass

    try:
        return cpu_us(lambda count: loop.run_until_complete(work(count)), calls)
    finally:
        loop.run_until_complete(repo.close())
        loop.close()


TREES = {"async": measured_async, "sync": measured_sync}


def round_of(store: str, tree: str, calls: int) -> dict[str, float]:
    """Return the CPU microseconds of each case, on new stores."""
    found = {}
    for name, (limits, consume) in CASES.items():
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            url = "memory://" if store == "memory" else f"sqlite:///{Path(folder) / 'limiter.db'}"
            found[name] = TREES[tree](url, limits, consume, calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--only", choices=["memory", "sqlite"], default=None)
    options = parser.parse_args()
    missed = []
    for store in [options.only] if options.only else ["memory", "sqlite"]:
        for tree in TREES:
            rounds = [round_of(store, tree, options.calls) for _ in range(options.rounds)]
            print(f"{store}, {tree}: CPU us per acquire and exit, and its ratio (median of {options.rounds} rounds)")
            for name in CASES:
                us = statistics.median(one[name] for one in rounds)
                ratio = statistics.median(one[name] / one[BASE] for one in rounds)
                print(f"  {name:<22} {us:>8.2f} {ratio:>8.2f}")
                if name == "a quota" and store == "memory" and ratio > GOAL:
                    missed.append(f"{tree} {ratio:.2f}")
    print(f"goal on memory, at most {GOAL}: " + (f"MISSED: {', '.join(missed)}" if missed else "reached"))


if __name__ == "__main__":
    main()
