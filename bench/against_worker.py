"""Measure every case of the installed zae-limiter once, and print the CPU microseconds per call as JSON.

With ``--opcodes``, count the bytecode instructions of this thread per call instead. The count does
not depend on the load of the machine.

``against.py`` runs it in the environments of two revisions, so it only uses the public API.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import canned
import ours
import responder
import transport
from measure import HOT, MANY, REFUSED, Traffic

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

Run = Callable[[int], object]
Opened = Callable[[], AbstractContextManager[Run]]

REPEATS = 3
WARM_UP = 200
LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
CONSUME = {"rpm": 1, "tpm": 500}


def keyed(kind: Callable[[Traffic, Path], AbstractContextManager[ours.Run]], traffic: Traffic) -> Opened:
    """Return one of the cases of ``ours.py``."""

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, kind(traffic, Path(folder)) as run:
            run(traffic.keys(traffic.warm_up_calls))
            yield lambda calls: run(traffic.keys(calls))

    return opened


@contextmanager
def sync_lease(*, cascade: bool, adjust: bool) -> Iterator[Run]:
    """Make acquires on memory that cascade, or whose lease is adjusted."""
    with SyncRepository.open("memory://") as repository:
        repository.set_system_defaults(LIMITS)
        repository.create_entity("project")
        repository.create_entity("key", parent_id="project", cascade=cascade)
        acquire = SyncRateLimiter(repository).acquire

        def run(calls: int) -> None:
            for _ in range(calls):
                with acquire("key", "gpt-4", CONSUME) as lease:
                    if adjust:
                        lease.adjust(tpm=-100)

        yield run


@contextmanager
def async_lease(*, cascade: bool, adjust: bool) -> Iterator[Run]:
    """Make the same acquires with the async limiter."""
    with asyncio.Runner() as runner:

        async def opened() -> Repository:
            repository = await Repository.open("memory://")
            await repository.set_system_defaults(LIMITS)
            await repository.create_entity("project")
            await repository.create_entity("key", parent_id="project", cascade=cascade)
            return repository

        repository = runner.run(opened())
        acquire = RateLimiter(repository).acquire

        async def leases(calls: int) -> None:
            for _ in range(calls):
                async with acquire("key", "gpt-4", CONSUME) as lease:
                    if adjust:
                        await lease.adjust(tpm=-100)

        yield lambda calls: runner.run(leases(calls))
        runner.run(repository.close())


def cases(url: str) -> dict[str, tuple[Opened, int]]:
    """Return every case, and the divisor of its number of calls."""
    return {
        "memory sync, one entity": (keyed(ours.memory_sync, HOT), 1),
        "memory async, one entity": (keyed(ours.memory_async, HOT), 1),
        "memory sync, 1,000 entities": (keyed(ours.memory_sync, MANY), 1),
        "memory sync, refused": (keyed(ours.memory_sync, REFUSED), 1),
        "memory sync, adjusted": (lambda: sync_lease(cascade=False, adjust=True), 2),
        "memory async, adjusted": (lambda: async_lease(cascade=False, adjust=True), 2),
        "memory sync, cascade": (lambda: sync_lease(cascade=True, adjust=False), 2),
        "memory async, cascade": (lambda: async_lease(cascade=True, adjust=False), 2),
        "SQLite sync, one entity": (keyed(ours.sqlite_sync, HOT), 1),
        "SQLite async, one entity": (keyed(ours.sqlite_async, HOT), 1),
        "DynamoDB sync, canned": (lambda: transport.ours_sync(url), 8),
        "DynamoDB async, canned": (lambda: transport.ours_async(url), 8),
    }


def cpu_us(opened: Opened, calls: int) -> float:
    """Return the least CPU time per call of some repeats, each on an empty store after a warm-up."""
    found = []
    for _ in range(REPEATS):
        with opened() as run:
            run(WARM_UP)
            gc.collect()
            began_ns = time.process_time_ns()
            run(calls)
            found.append((time.process_time_ns() - began_ns) / calls / 1_000)
    return min(found)


class OpcodeCounter:
    """Counts the bytecode instructions of the calling thread."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[[FrameType, str, Any], Any]:
        """Count an instruction, and ask for those of every function that is called."""
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self.trace


def opcodes(opened: Opened, calls: int) -> float:
    """Return the bytecode instructions per call, on an empty store after a warm-up."""
    counter = OpcodeCounter()
    with opened() as run:
        run(WARM_UP)
        sys.settrace(counter.trace)
        try:
            run(calls)
        finally:
            sys.settrace(None)
    return counter.count / calls


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4_000, help="calls per measurement on memory (4000)")
    parser.add_argument("--order", type=int, default=1, help="seed of the order of the cases (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only cases with this text in their name")
    parser.add_argument("--opcodes", action="store_true", help="count bytecode instructions, not CPU time")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    measure = opcodes if options.opcodes else cpu_us
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    names = [name for name in cases("") if options.only in name]
    networked = any(name.startswith("DynamoDB") for name in names)
    with responder.running(canned.bodies()) if networked else nullcontext("") as url:
        chosen = {name: case for name, case in cases(url).items() if name in names}
        order = list(chosen)
        random.Random(options.order).shuffle(order)
        found = {}
        for name in order:
            opened, divisor = chosen[name]
            found[name] = measure(opened, max(1, options.calls // divisor))
    print(json.dumps({name: found[name] for name in chosen}))


if __name__ == "__main__":
    main()
