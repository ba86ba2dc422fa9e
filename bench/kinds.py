"""Measure the CPU time of acquire and exit in several cases that differ by the kinds of their limits.

Each round measures every case in turn, so the ratios of a round are comparable on a loaded machine.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RATES = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 1_000_000_000)]

Case = tuple[list[Limit], dict[str, int]]
"""The limits in force, and what an acquire takes."""


@dataclass(frozen=True)
class Comparison:
    """Cases by name, the one that the others are compared with, and the goal of one of them on memory."""

    description: str | None
    cases: Mapping[str, Case]
    base: str
    judged: str
    goal: float


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


def round_of(cases: Mapping[str, Case], store: str, tree: str, calls: int) -> dict[str, float]:
    """Return the CPU microseconds of each case, on new stores."""
    found = {}
    for name, (limits, consume) in cases.items():
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            url = "memory://" if store == "memory" else f"sqlite:///{Path(folder) / 'limiter.db'}"
            found[name] = TREES[tree](url, limits, consume, calls)
    return found


def compare(of: Comparison) -> None:
    """Print the CPU time of each case, and whether the goal is reached."""
    parser = argparse.ArgumentParser(description=of.description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--only", choices=["memory", "sqlite"], default=None)
    options = parser.parse_args()
    missed = []
    for store in [options.only] if options.only else ["memory", "sqlite"]:
        for tree in TREES:
            rounds = [round_of(of.cases, store, tree, options.calls) for _ in range(options.rounds)]
            print(f"{store}, {tree}: CPU us per acquire and exit, and its ratio (median of {options.rounds} rounds)")
            for name in of.cases:
                us = statistics.median(one[name] for one in rounds)
                ratio = statistics.median(one[name] / one[of.base] for one in rounds)
                print(f"  {name:<22} {us:>8.2f} {ratio:>8.2f}")
                if name == of.judged and store == "memory" and ratio > of.goal:
                    missed.append(f"{tree} {ratio:.2f}")
    print(f"goal on memory, at most {of.goal}: " + (f"MISSED: {', '.join(missed)}" if missed else "reached"))
