"""Simulate requests that wait, and check the invariants of their queues after every step.

What runs: the limiter's own async code on a memory table, in simulated time. Each run is drawn from one number, the
seed. Entities under one parent take from its bucket and from their own. Requests come with random amounts, priorities
and patience. Some are cancelled at a random await, some take without waiting. Tokens are released, given back, and
taken by another process. Limits are raised, and the repository may be closed.

What is checked:

- *order*: the request that asks is the first of its queue, by a slow reference. An entity's requests of one priority
  that wait in the same queue are admitted in their order of arrival. Requests with a reserve go after the others.
- *asks*: at most one store call is in flight per queue. There is at most one ask per admission and one per change.
- *forgotten*: every request ends within its patience, and the first of a queue asks when its tokens are expected.
- *leaked*: at the end no queue is left, and the buckets lack what the admitted requests hold.

    python -m tests.simulation.waiting --seeds 10000 [--first 0]
    python -m tests.simulation.waiting --seed 7 [--mutation NAME]
    python -m tests.simulation.waiting --mutations
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests._async.clients import Wrapped, another
from tests.limiter_async.every_await import CancelledAt
from tests.simulation.waiting_mutations import MUTATIONS, applied
from tests.simulation.world import LoopClock, simulate
from zae_limiter import Limit, Queue, RateLimiter, RateLimitExceeded, Repository, ZAELimiterError
from zae_limiter.caches.waiting import LATE_S

_LATENCY_S = 0.01
_ENTITIES = "abc"
_RESOURCE = "api"
_END_S = 120.0
_LIVELY_S = 0.0537
"""No multiple of any wait, so that a request is not looked at just before it asks, twice in a row."""


@dataclass
class Call:
    """One request, and what became of it."""

    number: int
    entity: str
    amount: int
    priority: int
    patience_s: float
    at_s: float = 0.0
    ended_s: float = 0.0
    lease: Any = None
    outcome: str = ""


@dataclass
class Watched:
    """What a run has seen: the requests, and the number of asks, of admissions and of changes."""

    calls: list[Call] = field(default_factory=list)
    by_task: dict[Any, Call] = field(default_factory=dict)
    in_flight: Counter = field(default_factory=Counter)
    tally: Counter = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def fail(self, *words: object) -> None:
        """Note a violation."""
        self.violations.append(" ".join(map(str, words)))


class WatchedTable(Wrapped):
    """A table whose writes take a random time, and which notes who asks."""

    def __init__(self, table: Any, random: Random, watched: Watched) -> None:
        super().__init__(table)
        self._random = random
        self._watched = watched

    async def write(self, operation, until_s=None):
        watched, queue = self._watched, self._queue()
        if queue is not None:
            watched.in_flight[queue] += 1
            if watched.in_flight[queue] > 1:
                watched.fail("asks: two calls in flight for", queue)
        try:
            await asyncio.sleep(self._random.random() * _LATENCY_S)
            return await super().write(operation, until_s)
        finally:
            if queue is not None:
                watched.in_flight[queue] -= 1

    def _queue(self) -> Any:
        """Return the queue that the calling request waits in, None if it does not wait."""
        call = self._watched.by_task.get(asyncio.current_task())
        waiter = None if call is None or call.lease is None else call.lease._wait
        return None if waiter is None or waiter.queue is None else waiter.queue.bucket


class Run:
    """One simulated run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.watched = Watched()
        self.closed = False
        # The numbers of the requests that waited in the same queue when a request asked last.
        self.beside: dict[int, set[int]] = {}

    async def main(self) -> Watched:
        """Run to the end, and check what is left."""
        random = self.random
        clock = LoopClock(asyncio.get_running_loop())
        self.repo = await Repository.open("memory://", clock=clock, random=Random(1), config_cache_ttl=5)
        await self._set_up()
        table_random = Random(random.random())
        slow = another(self.repo, lambda table: WatchedTable(table, table_random, self.watched))
        slow.scope.table.inline = random.random() < 0.7
        self.inline = slow.scope.table.inline
        queue = Queue(random.choice([3, 1000]), random.choice(["entity", None]), {"a": random.choice([1, 3])})
        # Separate random numbers, so that the rest of a seed is the same without reserves.
        reserve = Random(f"reserve {self.seed}").choice([None, None, {-1: 0.5}, {0: 0.2, -1: 0.6}])
        self.limiter = RateLimiter(slow, queue=queue, priority_reserve=reserve)
        self.other = RateLimiter(another(self.repo))
        self.queues = self.limiter._client.queues()
        self._watch_turns()
        # In a calm run nothing but the waiting requests changes the buckets, so every ask is an admission.
        self.calm = random.random() < 0.3
        tasks = [asyncio.create_task(self._request(number)) for number in range(random.randrange(2, 14))]
        changes = [asyncio.create_task(self._change()) for _ in range(0 if self.calm else random.randrange(4))]
        monitor = asyncio.create_task(self._monitor())
        if random.random() < 0.05 and not self.calm:
            tasks.append(asyncio.create_task(self._close(slow)))
        done, pending = await asyncio.wait([*tasks, *changes], timeout=_END_S)
        for one in done:
            one.result()
        if pending:
            self.watched.fail("forgotten:", len(pending), "requests after", _END_S, "s")
            for one in pending:
                one.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(1)
        monitor.cancel()
        await self._check_end()
        return self.watched

    async def _set_up(self) -> None:
        random = self.random
        rate = random.choice([2, 5, 20])
        self.limits = [Limit.per_second("rps", rate, burst=rate * random.choice([1, 2]))]
        self.together = random.random() < 0.5
        await self.repo.set_system_defaults(self.limits)
        if self.together:
            await self.repo.create_entity("team")
            for child in _ENTITIES:
                await self.repo.create_entity(child, parent_id="team", cascade=True)

    def _watch_turns(self) -> None:
        """Check every turn, and count asks."""
        queues, turn_in = self.queues, self.queues.turn_in

        def watched_turn_in(waiter):
            found = turn_in(waiter)
            if found == 0.0 and not queues.closed:
                self._check_turn(waiter)
            return found

        queues.turn_in = watched_turn_in  # type: ignore[method-assign] # it calls the method that it replaces

    def _check_turn(self, waiter: Any) -> None:
        self.watched.tally["turns"] += 1
        queue = waiter.queue
        if queue is None:
            self.watched.fail("order: a request asks that does not wait")
            return
        everyone = list(queue.line)
        least = min(one.reserved for one in everyone)
        waiting = [one for one in everyone if one.reserved == least]
        top = max(one.priority for one in waiting)
        same = [one for one in waiting if one.priority == top]
        self.beside[waiter.number] = {one.number for one in everyone}
        best = min(same, key=lambda one: (one.tag, one.number))
        for priority in sorted({one.priority for one in waiting} - {top}, reverse=True):
            oldest = min((one for one in waiting if one.priority == priority), key=lambda one: one.number)
            best = oldest if oldest.rank < best.rank else best
        if best is not waiter:
            self.watched.fail("order: request", waiter.number, "asks before", best.number)

    async def _monitor(self) -> None:
        """Check that the first request of each queue asks when its tokens are expected."""
        before: dict[Any, int] = {}
        while True:
            await asyncio.sleep(_LIVELY_S)
            now_s = asyncio.get_running_loop().time()
            firsts = [(queue, queue.line.first()) for queue in self.queues._queues.values() if queue.asking is None]
            ready = {
                (queue.bucket, first.number): 1 for queue, first in firsts if first and not queue.ready_in(first, now_s)
            }
            for bucket, number in ready.keys() & before.keys():
                if not self.closed:
                    self.watched.fail("forgotten: request", number, "is the first for", bucket, "and does not ask")
            before = ready

    async def _request(self, number: int) -> None:
        random, loop = self.random, asyncio.get_running_loop()
        capacity = self.limits[0].capacity
        await asyncio.sleep(random.choice([0, 0, random.random() * 3]))
        call = Call(
            number,
            random.choice(_ENTITIES) if self.together else "a",
            random.choice([1, 1, 2, capacity, capacity + random.randrange(2)]),
            random.choice([0, 0, 0, 1, -1]),
            random.choice([0.1, 1.0, 5.0, 60.0]),
        )
        waits = self.calm or random.random() < 0.8
        call.at_s = loop.time()
        cancelled_at = random.randrange(1, 12) if random.random() < 0.2 and not self.calm else 10_000
        self.watched.calls.append(call)
        kept, held_s = self.calm or random.random() < 0.6, random.random()
        buckets = [(call.entity, _RESOURCE), ("team", _RESOURCE)]
        reserves = self.limiter._reserves
        reserve = None if reserves is None else reserves.of(call.priority)
        reserved = 0.0 if reserve is None else reserve.fraction
        found = [queue for queue in map(self.queues._queues.get, buckets) if waits and queue is not None]
        occupied = any(one.reserved <= reserved for queue in found for one in queue.line)

        async def program() -> None:
            self.watched.by_task[asyncio.current_task()] = call
            consume = {"rps": call.amount}
            options = {"max_wait": call.patience_s, "priority": call.priority} if waits else {}
            lease = self.limiter.acquire(call.entity, _RESOURCE, consume, **options)
            call.lease = lease if waits else None
            with suppress(KeyError):
                async with lease:
                    if occupied and lease._wait.waited_for is None:
                        self.watched.fail("order: request", number, "did not wait behind others")
                    self._admitted(call, waits=waits)
                    await asyncio.sleep(held_s)
                    if not kept:
                        raise KeyError
                    call.outcome = "kept"

        task = asyncio.create_task(_cancellable(program(), cancelled_at))
        await asyncio.wait((task,))
        self._ended(call, task)

    def _admitted(self, call: Call, *, waits: bool) -> None:
        call.outcome = "admitted"
        call.ended_s = asyncio.get_running_loop().time()
        self.watched.tally["admitted" if waits else "admitted at once"] += 1
        if not waits or call.lease._wait.waited_for is None:
            # It was in flight when the first request began to wait.
            self.watched.tally["changes"] += len(self.queues) if waits else 0
            return
        self.watched.tally["admitted after a wait"] += 1
        if call.ended_s > call.at_s + call.patience_s + LATE_S + 20 * _LATENCY_S:
            self.watched.fail("forgotten: request", call.number, "was admitted after its patience")
        for other in self.watched.calls:
            waiter = None if other.lease is None or other.outcome else other.lease._wait
            if waiter is None or waiter.queue is None or waiter.waited_for != call.lease._wait.waited_for:
                continue
            admitted = call.lease._wait.number
            # One that has joined the queue since the request asked is too late.
            older = waiter.number < admitted and waiter.number in self.beside[admitted]
            if older and (other.entity, other.priority) == (call.entity, call.priority):
                self.watched.fail("order: request", call.number, "was admitted before", other.number)

    def _ended(self, call: Call, task: "asyncio.Task[None]") -> None:
        tally, now_s = self.watched.tally, asyncio.get_running_loop().time()
        if task.cancelled():
            call.outcome = call.outcome or "cancelled"
            tally["cancelled"] += 1
            tally["changes"] += 1
        elif isinstance(task.exception(), RateLimitExceeded):
            call.outcome = "rejected"
            tally["rejected"] += 1
            limit_s = call.at_s + call.patience_s + LATE_S + 20 * _LATENCY_S
            if now_s > limit_s:
                self.watched.fail("forgotten: request", call.number, "was rejected", now_s - limit_s, "s too late")
        elif task.exception() is not None:
            if not self.closed:
                raise task.exception() or AssertionError
            call.outcome = "closed"
        if call.outcome == "admitted" or call.lease is None:
            # It gave its tokens back to each of its buckets, or took them without waiting.
            tally["changes"] += 2 if self.together else 1

    async def _change(self) -> None:
        """Change the buckets: by another process, or by a raised limit."""
        random = self.random
        await asyncio.sleep(random.random() * 3)
        entity = "team" if self.together else "a"
        with suppress(ZAELimiterError):
            if random.random() < 0.5:
                async with self.other.acquire(entity, _RESOURCE, {"rps": 1}):
                    self.watched.tally["taken elsewhere"] += 1
                    self.watched.tally["changes"] += 1
            else:
                # It concerns each queue, when it is made and when it is read.
                self.watched.tally["changes"] += 2 * (1 + len(self.queues))
                rate = random.choice([10, 50])
                await self.limiter.set_system_defaults([Limit.per_second("rps", rate, burst=2 * rate)])

    async def _close(self, repo: Repository) -> None:
        await asyncio.sleep(self.random.random() * 3)
        self.closed = True
        await repo.scope.client._close_table()
        self.watched.tally["closed"] += 1

    async def _check_end(self) -> None:
        watched, tally = self.watched, self.watched.tally
        if len(self.queues):
            watched.fail("leaked:", len(self.queues), "queues")
        moves = sum(1 for call in watched.calls if call.lease is not None) if self.together else 0
        allowed = tally["admitted after a wait"] + tally["changes"] + moves
        if self.inline and tally["turns"] > allowed and not self.closed:
            admissions = tally["admitted after a wait"]
            watched.fail("asks:", tally["turns"], "for", admissions, "admissions and", tally["changes"], "changes")
        if not self.closed:
            held = sum(call.amount for call in watched.calls if call.outcome == "kept") + tally["taken elsewhere"]
            buckets = await self.repo.get_buckets("team" if self.together else "a")
            taken = sum(bucket.total_consumed_milli for bucket in buckets) // 1000
            if taken != held:
                watched.fail("leaked: the bucket was charged", taken, "and", held, "are held")
        await self.repo.close()


async def _cancellable(coroutine: Any, number: int) -> None:
    await CancelledAt(coroutine, number)


def run_seed(seed: int) -> Watched:
    """Run one seed."""
    return simulate(Run(seed).main)


def main() -> int:
    """Run the chosen seeds. Return 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="a rule to break")
    parser.add_argument("--mutations", action="store_true", help="look for a seed that notices each mutation")
    chosen = parser.parse_args()
    if chosen.mutations:
        return _notice_all(chosen.seeds)
    seeds = range(chosen.first, chosen.first + chosen.seeds) if chosen.seed is None else [chosen.seed]
    with applied(chosen.mutation) if chosen.mutation else nullcontext():
        return _run_all(seeds)


def _run_all(seeds: Any) -> int:
    began_s, tally, failed = time.monotonic(), Counter[str](), 0
    for seed in seeds:
        watched = run_seed(seed)
        tally.update(watched.tally)
        failed += bool(watched.violations)
        for violation in watched.violations[:1]:
            _print(f"VIOLATION: python -m tests.simulation.waiting --seed {seed}\n    {violation}")
    _print(f"{len(seeds)} seeds in {time.monotonic() - began_s:.0f} s, {failed} with violations")
    _print("  " + ", ".join(f"{name}: {count:,}" for name, count in sorted(tally.items())))
    return int(failed > 0)


def noticed_by(name: str, seeds: int) -> tuple[int, str] | None:
    """Return the first seed that notices a mutation, and its violation; None if none does."""
    with applied(name):
        for seed in range(seeds):
            violations = run_seed(seed).violations
            if violations:
                return seed, violations[0]
    return None


def _notice_all(seeds: int) -> int:
    found = {name: noticed_by(name, seeds) for name in MUTATIONS}
    for name, seed in found.items():
        _print(f"{name}: {seed or 'NOT NOTICED'}")
    return int(None in found.values())


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
