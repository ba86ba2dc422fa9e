"""Measure how long acquires wait while a report runs, on memory and on a SQLite file. Asserts nothing.

An acquire is due every 10 ms. Its latency counts from the time it was due. So a blocked event loop
delays every acquire that came due meanwhile. Each report alternates with a control of the same
length without a report.

On a loaded machine the latency mostly shows other processes. So *CPU excess* compares the CPU time
that this process used between two acquires, on all its threads. If the event loop is blocked, this
process computes meanwhile. If another process runs, it does not.

Four columns show what else may have delayed an acquire. The longest garbage collection is of any
generation. The longest CPU wait is how long the event loop was ready to run while other processes
ran. The time that the hypervisor has stolen from this machine is a sum over all cores. These two
require Linux. Full garbage collections are those beside the reports of all rounds, then those
beside the controls. Each report and each control starts after one.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from zae_limiter import Limit, RateLimiter, Repository

_LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
_RESOURCE = "gpt-4"
_TAKEN = {"rpm": 1, "tpm": 500}
_DUE_EVERY_S = 0.01
_SHORTEST_CONTROL_S = 1.0
_GOAL_MS = 50.0
_FULL = len(gc.get_threshold()) - 1

Report = Callable[[], Awaitable[object]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--buckets", type=int, default=60_000, help="entities that use the resource (60000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each report, alternating with a control (3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only lines with this text in their title")
    return parser.parse_args()


class Traffic:
    """Acquires that are due every 10 ms, one after the other, and their latencies from the time they were due."""

    def __init__(self, limiter: RateLimiter, buckets: int) -> None:
        self._limiter = limiter
        self._buckets = buckets
        self._number = 0
        self.longest_wait_ms = 0.0
        self.cpu_delay_ms = 0.0

    async def beside(self, report: Report) -> tuple[float, list[float]]:
        """Run a report during the traffic; return its seconds and the latencies in milliseconds."""
        latencies_ms: list[float] = []
        driver = asyncio.create_task(self._drive(latencies_ms))
        await asyncio.sleep(5 * _DUE_EVERY_S)
        began_s = time.perf_counter()
        await report()
        spent_s = time.perf_counter() - began_s
        await asyncio.sleep(5 * _DUE_EVERY_S)
        driver.cancel()
        return spent_s, latencies_ms

    async def _drive(self, latencies_ms: list[float]) -> None:
        due_s = time.perf_counter()
        waited_ms = _cpu_wait_ms()
        self.longest_wait_ms = self.cpu_delay_ms = 0.0
        spent_ms = time.process_time() * 1000
        while True:
            due_s += _DUE_EVERY_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            await self.acquire(self._number % self._buckets)
            self._number += 7
            latencies_ms.append((time.perf_counter() - due_s) * 1000)
            before_ms, waited_ms = waited_ms, _cpu_wait_ms()
            self.longest_wait_ms = max(self.longest_wait_ms, waited_ms - before_ms)
            before_ms, spent_ms = spent_ms, time.process_time() * 1000
            self.cpu_delay_ms = max(self.cpu_delay_ms, spent_ms - before_ms)

    async def acquire(self, number: int) -> None:
        async with self._limiter.acquire(f"user-{number:06}", _RESOURCE, _TAKEN):
            pass

    async def touch_all(self) -> None:
        """Acquire once from every bucket, so that there is usage to count."""
        for number in range(self._buckets):
            await self.acquire(number)
            if not number % 100:
                await asyncio.sleep(0)


@dataclass
class Line:
    """The latencies of all rounds of one report, and of its controls, in milliseconds."""

    title: str
    spent_s: list[float] = field(default_factory=list)
    collections: list["Collections"] = field(default_factory=list)
    control_collections: list["Collections"] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)
    stolen_ms: list[float] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    control: list[list[float]] = field(default_factory=list)
    cpu_excess_ms: list[float] = field(default_factory=list)

    def print(self) -> None:
        excess_ms = [max(ours) - max(control) for ours, control in zip(self.beside, self.control, strict=True)]
        pauses_ms = [pause_ms for one in self.collections for pause_ms in one.pauses_ms]
        noise = (max(pauses_ms, default=0.0), max(self.waits_ms), max(self.stolen_ms))
        found = (
            _highest(self.control),
            _highest(self.beside),
            min(excess_ms),
            max(excess_ms),
            max(self.cpu_excess_ms),
            *noise,
        )
        full = f"{sum(one.full for one in self.collections)}, {sum(one.full for one in self.control_collections)}"
        if max(excess_ms) <= _GOAL_MS:
            verdict = "met"
        else:
            verdict = "met by CPU" if max(self.cpu_excess_ms) <= _GOAL_MS else "MISSED"
        texts = " ".join(f"{ms:>12.1f}" for ms in found)
        print(f"{self.title:<34} {max(self.spent_s):>7.1f} {texts} {full:>8}", verdict)


class Collections:
    """Record the garbage collections inside the block: the milliseconds of each, and how many were full."""

    def __init__(self) -> None:
        self.pauses_ms: list[float] = []
        self.full = 0

    def __enter__(self) -> "Collections":
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, collection: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            self.pauses_ms.append((time.perf_counter() - self._began_s) * 1000)
            self.full += collection["generation"] == _FULL


def _cpu_wait_ms() -> float:
    """Return how long this thread was ready but did not run so far; 0 if the kernel does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e6
    return 0.0


def _stolen_ms() -> float:
    """Return how long the hypervisor ran others so far, summed over all cores; 0 if the kernel does not report it."""
    with suppress(OSError, ValueError, IndexError):
        ticks = int(Path("/proc/stat").read_text().splitlines()[0].split()[8])
        return ticks * 1000 / os.sysconf("SC_CLK_TCK")
    return 0.0


def _highest(rounds_ms: list[list[float]]) -> float:
    return max(max(one) for one in rounds_ms)


def _reports(repository: Repository) -> dict[str, tuple[Report, bool]]:
    """Return the reports by name, and whether each has usage to count first."""
    return {
        "get_resource_capacity": (lambda: repository.get_resource_capacity(_RESOURCE, "tpm"), False),
        "the same, parents_only": (lambda: repository.get_resource_capacity(_RESOURCE, "tpm", True), False),
        "get_usage_snapshots": (lambda: repository.get_usage_snapshots(resource=_RESOURCE, limit=10_000), True),
        "get_usage_summary": (lambda: repository.get_usage_summary(resource=_RESOURCE), True),
        "the same, all counted": (lambda: repository.get_usage_summary(resource=_RESOURCE), False),
        "get_status": (repository.get_status, False),
    }


async def _measure(store: str, url: str, options: argparse.Namespace) -> None:
    repository = await Repository.open(url, config_cache_ttl=3600)
    await repository.set_system_defaults(_LIMITS)
    traffic = Traffic(RateLimiter(repository), options.buckets)
    for name, (report, counts) in _reports(repository).items():
        line = Line(f"{store} {name}")
        if options.only not in line.title:
            continue
        for number in range(options.rounds):
            if counts or not number:
                await traffic.touch_all()
            # Collect now, so that garbage of the preparation burdens neither the report nor the
            # control.
            gc.collect()
            stolen_ms = _stolen_ms()
            with Collections() as collections:
                spent_s, beside = await traffic.beside(report)
            line.collections.append(collections)
            line.waits_ms.append(traffic.longest_wait_ms)
            cpu_delay_ms = traffic.cpu_delay_ms
            line.stolen_ms.append(_stolen_ms() - stolen_ms)
            # Nor is one that the report has made due the control's: it would hide what the report delays.
            gc.collect()
            with Collections() as collections:
                _, control = await traffic.beside(lambda s=spent_s: asyncio.sleep(max(_SHORTEST_CONTROL_S, s)))
            line.control_collections.append(collections)
            line.cpu_excess_ms.append(cpu_delay_ms - traffic.cpu_delay_ms)
            line.spent_s.append(spent_s)
            line.beside.append(beside)
            line.control.append(control)
            print(f"\r{line.title}: round {number + 1} of {options.rounds}   ", end="", file=sys.stderr, flush=True)
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
        line.print()
    await repository.close()


def main() -> None:
    options = _arguments()
    print(f"Acquires due every 10 ms beside reports on {options.buckets:,} buckets; latency from the due time, in ms")
    print(f"Goal: no acquire waits more than {_GOAL_MS:.0f} ms longer than in the control of the same round.")
    print("'met by CPU': only on the clock of this process. Other processes delayed the acquires further.")
    print()
    heads = (
        "control, max",
        "beside, max",
        "least excess",
        "most excess",
        "CPU excess",
        "longest GC",
        "CPU wait",
        "stolen",
    )
    print(f"{'':<34} {'s each':>7} {' '.join(f'{head:>12}' for head in heads)} {'full GCs':>8}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        asyncio.run(_measure("memory", "memory://", options))
        asyncio.run(_measure("SQLite", f"sqlite:///{Path(folder) / 'reports.db'}", options))


if __name__ == "__main__":
    main()
