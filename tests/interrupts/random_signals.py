"""Interrupt a sync client thousands of times, with real signals and exceptions set from other threads.

    python -m tests.interrupts.random_signals --interrupts 20000 --url memory://

The tests run a short one. It prints the counts, and fails if a thread hangs, if the limiter does not work afterwards,
or if too much was admitted.

The main thread is interrupted by a timer whose handler raises. Worker threads are interrupted by
``PyThreadState_SetAsyncExc``.
"""

import argparse
import ctypes
import itertools
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from tests.dynamodb.trees import session_for
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter, SyncRepository

CAPACITY = 10**6
TEN_YEARS_S = 10 * 365 * 86_400
RESOURCE = "gpt-4"
ENTITIES = ("user-1", "user-2", "child-1")
"""Few entities, so that callers share buckets; the last one also takes from its parent."""
_EVERY_S = {"dynamodb": 0.02}
"""The longest pause between two interrupts in seconds, by kind of store: some calls must succeed in between."""
_TRIES = 20


class RandomInterrupt(BaseException):
    """Raised by the signal handler, and set in worker threads."""


class WorkFailedError(Exception):
    """The work that tokens were taken for has failed."""


@dataclass(slots=True)
class Counts:
    """The results of one thread: tokens that were certainly admitted, and calls by how they ended."""

    admitted: int = 0
    interrupted: int = 0
    unavailable: int = 0
    slowest_s: float = 0.0


@dataclass(slots=True)
class RandomSignals:
    """One limiter and the threads that are interrupted."""

    limiter: Any
    deadline_s: float
    interrupts: int
    every_s: float = 0.002
    workers: int = 4
    seed: int = 1
    sent: "itertools.count[int]" = field(default_factory=itertools.count)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> list[Counts]:
        """Interrupt this often, then let every thread end, and return their counts."""
        counts = [Counts() for _ in range(self.workers + 1)]
        threads = [
            threading.Thread(target=self._survive, args=(counts[number], number), daemon=True)
            for number in range(1, self.workers + 1)
        ]
        for thread in threads:
            thread.start()
        interrupter = threading.Thread(
            target=self._interrupt_workers, args=([thread.ident for thread in threads],), daemon=True
        )
        interrupter.start()
        self._work_under_signals(counts[0])
        for thread in (interrupter, *threads):
            thread.join(60 * self.deadline_s)
            if thread.is_alive():
                raise AssertionError(f"a thread hangs: {thread}")
        return counts

    def _interrupt_workers(self, idents: list[int | None]) -> None:
        """Interrupt worker threads at random times."""
        chance = random.Random(self.seed)
        while next(self.sent) < self.interrupts:
            time.sleep(chance.random() * self.every_s)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(chance.choice(idents) or 0), ctypes.py_object(RandomInterrupt)
            )
        self.ended.set()

    def _work_under_signals(self, counts: Counts) -> None:
        """Work in the main thread, which a timer interrupts at random times."""
        chance = random.Random(self.seed + 1)

        def interrupt(_: int, frame: FrameType | None) -> None:
            # Only a call is interrupted, not the loop that repeats it.
            while frame is not None and frame.f_code is not RandomSignals._take.__code__:
                frame = frame.f_back
            if frame is not None:
                next(self.sent)
                raise RandomInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            while not self.ended.is_set():
                with suppress(RandomInterrupt):
                    first_s, then_s = (0.0005 + 2 * chance.random() * self.every_s for _ in range(2))
                    signal.setitimer(signal.ITIMER_REAL, first_s, then_s)
                    self._work(counts, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _survive(self, counts: Counts, number: int) -> None:
        """Work in a worker thread, which may also be interrupted between two calls."""
        while not self.ended.is_set():
            try:
                self._work(counts, number)
            except RandomInterrupt:
                continue

    def _work(self, counts: Counts, number: int) -> None:
        """Take again and again until all interrupts were sent."""
        chance = random.Random((self.seed, number).__hash__())
        while not self.ended.is_set():
            started_s = time.monotonic()
            try:
                self._take(counts, chance)
            except RandomInterrupt:
                counts.interrupted += 1
            except RateLimiterUnavailable:
                counts.unavailable += 1
            except (RateLimitExceeded, WorkFailedError):
                pass
            counts.slowest_s = max(counts.slowest_s, time.monotonic() - started_s)

    def _take(self, counts: Counts, chance: random.Random) -> None:
        entity = chance.choice(ENTITIES)
        with self.limiter.acquire(entity, RESOURCE, {"rpm": 1}) as lease:
            if chance.random() < 0.2:
                lease.adjust(rpm=1)
            elif chance.random() < 0.2:
                lease.release(rpm=1)
                return
            elif chance.random() < 0.1:
                raise WorkFailedError
        counts.admitted += 1


def check(limiter: Any, counts: list[Counts], deadline_s: float) -> dict[str, int]:
    """Require that the limiter works for every thread, and that the table has charged what was admitted.

    Raises:
        AssertionError: It does not.
    """
    done: list[str] = []

    def take() -> None:
        for entity in ENTITIES:
            take_once(entity)

    def take_once(entity: str) -> None:
        # An engine may be busy for a while with requests of interrupted callers.
        for _ in range(_TRIES):
            with suppress(RateLimiterUnavailable), limiter.acquire(entity, RESOURCE, {"rpm": 1}):
                done.append(entity)
                return

    threads = [threading.Thread(target=take, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * deadline_s)
    assert len(done) == 8 * len(ENTITIES), "the limiter does not work any more"
    charged = {entity: CAPACITY - limiter.available(entity, RESOURCE)["rpm"] for entity in ENTITIES}
    admitted = sum(one.admitted for one in counts) + len(done)
    assert sum(charged.values()) >= admitted, f"{admitted} admitted, {charged} charged"
    return charged


def run_signals(url: str, interrupts: int, deadline_s: float, seed: int = 1) -> str:
    """Interrupt a limiter on a store, and return a line with the counts.

    Raises:
        AssertionError: A promise was broken.
    """
    limit = Limit.custom("rpm", CAPACITY, 1, TEN_YEARS_S)
    with SyncRepository.open(url, deadline_s=deadline_s, session=session_for(url)) as repo:
        repo.set_system_defaults([limit])
        repo.create_entity("parent-1")
        repo.create_entity("child-1", parent_id="parent-1", cascade=True)
        limiter = SyncRateLimiter(repo)
        for entity in ENTITIES:
            with limiter.acquire(entity, RESOURCE, {"rpm": 1}):
                pass
        run = RandomSignals(limiter, deadline_s, interrupts, _EVERY_S.get(url.split(":")[0], 0.002), seed=seed)
        counts = [*run.run(), Counts(admitted=len(ENTITIES))]
        # All interrupted calls have reached their deadline by then.
        time.sleep(deadline_s + 1)
        charged = check(limiter, counts, deadline_s)
    interrupted, admitted = sum(one.interrupted for one in counts), sum(one.admitted for one in counts)
    unavailable = sum(one.unavailable for one in counts)
    slowest_s = max(one.slowest_s for one in counts)
    return (
        f"{url.split(':')[0]}: {interrupts} interrupts, {interrupted} calls interrupted, {admitted} admitted, "
        f"{sum(charged.values())} charged, {unavailable} unavailable, slowest call {slowest_s:.2f} s "
        f"(deadline {deadline_s} s); all threads ended"
    )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interrupts", type=int, default=20_000)
    parser.add_argument("--deadline", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", default="memory://")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    sys.stdout.write(f"{run_signals(options.url, options.interrupts, options.deadline, options.seed)}\n")


if __name__ == "__main__":
    main()
