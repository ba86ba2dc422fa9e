"""One process of a soak of slots: it holds slots for random times, and records when it relied on them.

    python -m tests.soak.slot_worker '{"url": ..., "journal": ..., "kind": "async", "hold_s": 5, "seed": ...}'

It works until it is killed. Async workers sometimes block their loop for longer than the hold.
"""

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from tests.dynamodb.trees import session_for
from tests.soak.worker import end_with_parent
from zae_limiter import (
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)
from zae_limiter.clock import SystemClock

ENTITY, RESOURCE = "user-1", "gpt-4"
LEASES_AT_A_TIME = 2
LOOK_EVERY_S = 0.05
FAST_CLOCK = "fast-clock"
AHEAD_MS = 60_000


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The work of a process."""

    url: str
    journal: str
    kind: str
    hold_s: int
    seed: str
    mutation: str | None = None

    def command(self) -> list[str]:
        """Return the command that starts the process."""
        return [sys.executable, "-m", "tests.soak.slot_worker", json.dumps(asdict(self))]


class FastClock(SystemClock):
    """A clock that is a minute ahead of all others."""

    def now_ms(self) -> int:
        """Return the wrong time."""
        return super().now_ms() + AHEAD_MS


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """One lease."""

    slots: int
    held_s: float
    blocks_s: float
    changes: str | None
    fails: bool


def draw(random: Random, hold_s: int) -> SlotPlan:
    """Return a random lease: most are short, and some are held for several times the hold."""
    held_s = random.choice([0.0, random.random(), random.random() * hold_s, random.random() * 3 * hold_s])
    blocks_s = random.random() * 2 * hold_s if random.random() < 0.03 else 0.0
    changes = random.choice([None, None, "more", "less"])
    return SlotPlan(2 if changes == "less" else 1, held_s, blocks_s, changes, random.random() < 0.2)


class SlotLog:
    """The journal of a process. Each line is one write, so a kill leaves whole lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._numbers = itertools.count()
        self._mutex = threading.Lock()
        self._open: dict[int, tuple[Any, int]] = {}

    def say(self, event: str, **values: Any) -> None:
        """Record an event that happened now, if it has no time."""
        line = json.dumps({"event": event, "at_ns": time.time_ns(), **values})
        os.write(self._file, f"{line}\n".encode())

    def take(self, lease: Any, slots: int) -> int:
        """Record a take."""
        number, at_ns, end_ms = next(self._numbers), time.time_ns(), end_of(lease)
        # Recorded under the mutex, so that no renewal of it is recorded before.
        with self._mutex:
            self.say("take", number=number, at_ns=at_ns, slots=slots, end_ms=end_ms)
            self._open[number] = lease, end_ms
        return number

    def change(self, event: str, number: int, at_ns: int, slots: int) -> None:
        """Record that a lease has more or fewer slots from this time."""
        with self._mutex:
            lease, _ = self._open[number]
            end_ms = end_of(lease)
            self._open[number] = lease, end_ms
            self.say(event, number=number, at_ns=at_ns, slots=slots, end_ms=end_ms)

    def leave(self, number: int) -> None:
        """Record that a lease returns its slots from now on."""
        with self._mutex:
            lease, _ = self._open.pop(number)
            at_ns, end_ms = time.time_ns(), end_of(lease)
            # Read last: a lease that is lost later is lost too.
            self.say("exit", number=number, at_ns=at_ns, end_ms=end_ms, lost=lease.lost)

    def watch(self) -> None:
        """Record each renewal soon after it was confirmed."""
        while True:
            time.sleep(LOOK_EVERY_S)
            with self._mutex:
                for number, (lease, known_ms) in self._open.items():
                    end_ms = end_of(lease)
                    if end_ms > known_ms:
                        self._open[number] = lease, end_ms
                        self.say("renewed", number=number, end_ms=end_ms)


def end_of(lease: Any) -> int:
    """Return when the first slots of a lease end, 0 if it has none."""
    return min((hold.end_ms or 0 for hold in lease._slots.values()), default=0)


class SlotWork:
    """Leases of one thread or task; the sync tree passes through ``run``."""

    def __init__(self, limiter: Any, log: SlotLog, seed: str, hold_s: int) -> None:
        self._limiter = limiter
        self._log = log
        self._random = Random(seed)
        self._hold_s = hold_s

    async def forever(self) -> None:
        """Lease in one task, forever."""
        while True:
            plan = draw(self._random, self._hold_s)
            try:
                async with self._lease(plan) as lease:
                    number = self._log.take(lease, plan.slots)
                    try:
                        await self._use(lease, number, plan)
                    finally:
                        self._log.leave(number)
            except (RateLimitExceeded, RateLimiterUnavailable, LookupError) as error:
                self._log.say(type(error).__name__)
            await asyncio.sleep(self._pause_s())

    def forever_sync(self) -> None:
        """Lease in one thread, forever."""
        while True:
            plan = draw(self._random, self._hold_s)
            try:
                with self._lease(plan) as lease:
                    number = self._log.take(lease, plan.slots)
                    try:
                        self._use_sync(lease, number, plan)
                    finally:
                        self._log.leave(number)
            except (RateLimitExceeded, RateLimiterUnavailable, LookupError) as error:
                self._log.say(type(error).__name__)
            time.sleep(self._pause_s())

    def _lease(self, plan: SlotPlan) -> Any:
        consume = {"rpm": 1, "slots": plan.slots}
        return self._limiter.acquire(ENTITY, RESOURCE, consume, on_lost=lambda lease: self._log.say("on_lost"))

    def _pause_s(self) -> float:
        return self._random.random() * 0.3

    async def _use(self, lease: Any, number: int, plan: SlotPlan) -> None:
        await asyncio.sleep(plan.held_s / 2)
        if plan.changes == "more":
            with suppress(RateLimitExceeded):
                await lease.consume(slots=1)
                self._log.change("more", number, time.time_ns(), plan.slots + 1)
        elif plan.changes == "less":
            self._log.change("less", number, time.time_ns(), plan.slots - 1)
            await lease.release(slots=1)
        # Blocks the loop on purpose, for longer than the hold at times.
        time.sleep(plan.blocks_s)  # noqa: ASYNC251 - a blocked loop is what is tested
        await asyncio.sleep(plan.held_s / 2)
        if plan.fails:
            raise LookupError

    def _use_sync(self, lease: Any, number: int, plan: SlotPlan) -> None:
        time.sleep(plan.held_s / 2 + plan.blocks_s)
        if plan.changes == "more":
            with suppress(RateLimitExceeded):
                lease.consume(slots=1)
                self._log.change("more", number, time.time_ns(), plan.slots + 1)
        elif plan.changes == "less":
            self._log.change("less", number, time.time_ns(), plan.slots - 1)
            lease.release(slots=1)
        time.sleep(plan.held_s / 2)
        if plan.fails:
            raise LookupError


def works(assignment: SlotAssignment, limiter: Any, log: SlotLog) -> list[SlotWork]:
    """Return the work of all threads or tasks."""
    seeds = [f"{assignment.seed}-{number}" for number in range(LEASES_AT_A_TIME)]
    return [SlotWork(limiter, log, seed, assignment.hold_s) for seed in seeds]


async def work(assignment: SlotAssignment, log: SlotLog, settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Lease in tasks."""
    async with await Repository.open(assignment.url, **settings) as repo:
        ready()
        await asyncio.gather(*[one.forever() for one in works(assignment, RateLimiter(repo), log)])


def work_sync(assignment: SlotAssignment, log: SlotLog, settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Lease in threads."""
    with SyncRepository.open(assignment.url, **settings) as repo:
        limiter = SyncRateLimiter(repo)
        ready()
        threads = [threading.Thread(target=one.forever_sync) for one in works(assignment, limiter, log)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def ready() -> None:
    """Report that the work begins."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    end_with_parent()
    assignment = SlotAssignment(**json.loads(sys.argv[1]))
    log = SlotLog(assignment.journal)
    settings: dict[str, Any] = {"session": session_for(assignment.url), "deadline_s": 2.0}
    if assignment.mutation == FAST_CLOCK:
        settings["clock"] = FastClock()
    threading.Thread(target=log.watch, daemon=True).start()
    if assignment.kind == "async":
        asyncio.run(work(assignment, log, settings, ready))
    else:
        work_sync(assignment, log, settings, ready)


if __name__ == "__main__":
    main()
