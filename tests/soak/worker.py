"""One process of a soak: threads that lease from random entities, and record what they do in a journal.

    python -m tests.soak.worker '{"url": ..., "journal": ..., "role": "async", "together": true, "seed": ..., ...}'

It prints ``ready``, waits for the time to stop at (ns since the epoch) on stdin, works, and exits with 0. The role
``admin`` changes limits, splits and merges shards, and reads usage instead.
"""

import ctypes
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests._sync.shards import merge
from tests.dynamodb.trees import AsyncTree, Blocking, SyncTree, tree
from tests.soak.journal import Journal, Outcome, current_step
from tests.soak.scenario import (
    CONFIG_CACHE_TTL_S,
    DEADLINE_S,
    LIMITS,
    MEMBERS,
    RESOURCE,
    SHARDED,
    TTL_MULTIPLIER,
    Plan,
    draw,
)
from tests.soak.watching import AsyncWatched, SyncWatched, TableMutation, Watch
from zae_limiter import (
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    SyncRepository,
)

T = TypeVar("T")

THREADS = 4
LONGEST_PAUSE_S = 0.02
PAUSES_S = {"rejected": 0.03, "unavailable": 0.1, "degraded": 0.1}
ADMIN_PAUSE_S = 0.1
SETTINGS = {
    "deadline_s": DEADLINE_S,
    "config_cache_ttl": CONFIG_CACHE_TTL_S,
    "reject_locally_s": 0.1,
    "bucket_ttl_multiplier": TTL_MULTIPLIER,
}
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of a process."""

    url: str
    journal: str
    role: str
    together: bool
    seed: str
    mutation: str | None = None

    def command(self) -> list[str]:
        """Return the command that starts the process."""
        return [sys.executable, "-m", "tests.soak.worker", json.dumps(asdict(self))]


class WorkFailedError(Exception):
    """The work that tokens were taken for has failed."""


class Unsettled(logging.Handler):
    """Records the steps that were not completely settled, which the library only logs."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith(("Not ", "Cancelled request not undone")):
            self._journal.lose(current_step.get())


class Worker:
    """Leases, one after the other, and records each step."""

    def __init__(self, limiter: Any, journal: Journal, random: Random) -> None:
        self._limiter = limiter
        self._journal = journal
        self._random = random
        self._step: int | None = None

    def work(self, until_ns: int) -> None:
        """Lease until it is time to stop."""
        while time.time_ns() < until_ns:
            outcome = self.lease(draw(self._random))
            time.sleep(PAUSES_S.get(outcome, self._random.random() * LONGEST_PAUSE_S))

    def lease(self, plan: Plan) -> Outcome:
        """Run one lease from beginning to end."""
        outcome: Outcome = "ok"
        self._begin("take", plan.entity_id, plan.consume)
        try:
            with self._limiter.acquire(
                plan.entity_id, RESOURCE, plan.consume, on_unavailable=plan.on_unavailable
            ) as lease:
                self._end("degraded" if lease.degraded else "ok")
                if lease.degraded:
                    outcome = "degraded"
                else:
                    self._use(lease, plan)
        except RateLimitExceeded:
            outcome = "rejected"
        except RateLimiterUnavailable:
            outcome = "unavailable"
        except WorkFailedError:
            pass
        self._end(outcome)
        return outcome

    def _use(self, lease: Any, plan: Plan) -> None:
        """Do what is planned, up to what is written when the lease ends."""
        held = dict(plan.consume)
        if plan.more and self._tried("take", plan, {"tpm": plan.more}, lambda: lease.consume(tpm=plan.more)):
            held["tpm"] += plan.more
        if plan.released:
            self._tried("settle", plan, {"tpm": -plan.released}, lambda: lease.release(tpm=plan.released))
            held["tpm"] -= plan.released
        time.sleep(plan.held_s)
        if plan.fails:
            self._begin("settle", plan.entity_id, {name: -amount for name, amount in held.items()})
            raise WorkFailedError
        if plan.adjusted:
            lease.adjust(tpm=plan.adjusted)
            self._begin("settle", plan.entity_id, {"tpm": plan.adjusted})

    def _tried(self, kind: Any, plan: Plan, amounts: dict[str, int], call: Callable[[], None]) -> bool:
        """Do something while the lease is held; return whether it was done."""
        self._begin(kind, plan.entity_id, amounts)
        try:
            call()
        except RateLimitExceeded:
            self._end("rejected")
        except RateLimiterUnavailable:
            self._end("unavailable")
        else:
            self._end("ok")
            return True
        return False

    def _begin(self, kind: Any, entity_id: str, amounts: dict[str, int]) -> None:
        self._step = self._journal.begin(kind, entity_id, amounts)
        current_step.set(self._step)

    def _end(self, outcome: Outcome) -> None:
        if self._step is not None:
            self._journal.end(self._step, outcome)
        self._step = None


class Admin:
    """Changes limits and shards while others work."""

    def __init__(self, limiter: Any, random: Random) -> None:
        self._limiter = limiter
        self._client = limiter._client
        self._random = random

    def work(self, until_ns: int) -> None:
        """Make one change after the other until it is time to stop."""
        deeds = [self._tune, self._confirm, self._count, *[self._reshard] * 5]
        while time.time_ns() < until_ns:
            with suppress(RateLimiterUnavailable):
                self._random.choice(deeds)()
            time.sleep(self._random.random() * 2 * ADMIN_PAUSE_S)

    def _tune(self) -> None:
        """Give an entity other limits."""
        entity_id = self._random.choice([name for name, member in MEMBERS.items() if not member.is_steady])
        self._limiter.set_limits(entity_id, list(self._random.choice(MEMBERS[entity_id].variants)))

    def _confirm(self) -> None:
        """Store the same defaults again: their version rises, and all buckets that use them are rebased."""
        self._limiter.set_system_defaults(list(LIMITS))

    def _count(self) -> None:
        """Read usage, which on an embedded table counts it."""
        if not self._client.buckets.splits:
            self._limiter.get_usage_summary(entity_id=self._random.choice(list(MEMBERS)))

    def _reshard(self) -> None:
        """Split a shard, or merge two."""
        entity_id = self._random.choice(SHARDED)
        member, bucket, until_s = MEMBERS[entity_id], (entity_id, RESOURCE), self._client.until_s()
        shards = self._client.shards.read_all(bucket, None, until_s)
        if not shards:
            return
        counts = {shard: view.layout.shard_count for shard, view in shards.items()}
        pairs = [(low, low + count // 2) for low, count in counts.items() if counts.get(low + count // 2) == count]
        if member.merges and pairs and self._random.random() < len(shards) / member.most_shards:
            merge(self._client, bucket, *self._random.choice(pairs))
        elif small := [shard for shard, count in counts.items() if count < member.most_shards]:
            shard = self._random.choice(small)
            self._client.shards.split((bucket, shard), shards[shard], until_s)


def limiter_of(opened: AsyncTree | SyncTree, assignment: Assignment, journal: Journal) -> Any:
    """Return a limiter whose table is watched."""
    repo = None
    while repo is None:
        # The store may be unavailable at this time.
        with suppress(RateLimiterUnavailable):
            repo = opened.open(assignment.url, **SETTINGS)
    watch, mutation, scope = Watch(journal), TableMutation(assignment.mutation, assignment.seed), repo.scope
    watched = AsyncWatched if isinstance(opened, AsyncTree) else SyncWatched
    table: Any = watched(scope.client.table, watch, mutation)
    scope = replace(scope.client, table=table).scope(scope.namespace, scope.namespace_id)
    watch.views = lambda entity_id: scope.caches.of((entity_id, RESOURCE)).views()
    if isinstance(opened, AsyncTree):
        repo = Blocking(Repository(scope, owns_table=True), opened.run)
    else:
        repo = SyncRepository(scope, owns_table=True)
    return opened.limiter(repo, group_commit=assignment.together)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, even if it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def until() -> int:
    """Report that all is ready, and return the time to stop at."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return int(sys.stdin.readline())


def run(works: Sequence[Callable[[T], None]], until: T) -> None:
    """Work in threads; the failure of one ends the process."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[T], None]) -> None:
        try:
            work(until)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(1)


def main() -> None:
    end_with_parent()
    assignment = Assignment(**json.loads(sys.argv[1]))
    journal = Journal(Path(assignment.journal))
    logger = logging.getLogger("zae_limiter")
    logger.addHandler(Unsettled(journal))
    logger.propagate = False
    kind = "sync" if assignment.role == "admin" else assignment.role
    randoms = [Random(f"{assignment.seed}-{number}") for number in range(THREADS)]
    with tree(kind) as opened:
        limiter = limiter_of(opened, assignment, journal)
        works: list[Callable[[int], None]]
        if assignment.role == "admin":
            works = [Admin(limiter, randoms[0]).work]
        else:
            works = [Worker(limiter, journal, random).work for random in randoms]
        run(works, until())
        limiter.close()


if __name__ == "__main__":
    main()
