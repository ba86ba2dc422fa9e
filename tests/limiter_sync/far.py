"""A limiter of threads or greenlets on a table that is far away: writes take a while, are counted, or fail."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

from tests._sync.clients import SettableClock, Wrapped, buckets_in
from tests.limiter_sync.write_batchers import PATIENCE_S, in_thread
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.core.outcome import Unavailable
from zae_limiter.runtime.threads import Parallel

RPM = Limit.per_minute("rpm", 1_000)


class FarTable(Wrapped):
    """Takes half a millisecond for each write, more while its gate is shut; remembers the keys of what was written."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False
        self.writes = []
        self.away = False
        self.gate = threading.Event()
        self.gate.set()

    def write(self, operation, until_s=None):
        self.writes.append(operation.key.pk)
        time.sleep(0.0005)
        assert self.gate.wait(PATIENCE_S)
        if self.away:
            return Unavailable(ConnectionError("away"), ambiguous=False)
        return super().write(operation, until_s)

    def drain(self, entity_id="user-1"):
        """Return how often the bucket of an entity was written to, and forget it."""
        count = sum(f"{entity_id}#" in pk for pk in self.writes)
        self.writes = []
        return count


class Stage:
    """A limiter far away, and one near the same table."""

    def __init__(self, repo, *, together=True, parallel=None):
        self.repo = repo
        self.table = FarTable(repo.scope.table)
        client = replace(repo.scope.client, table=self.table, caches={})
        if parallel is not None:
            client = replace(client, parallel=parallel)
        far_repo = SyncRepository(client.scope(repo.scope.namespace, repo.scope.namespace_id), owns_table=False)
        self.far = SyncRateLimiter(far_repo, group_commit=together)
        self.near = SyncRateLimiter(repo)

    def left(self, name="rpm", entity_id="user-1"):
        return self.near.available(entity_id, "gpt-4")[name]

    def counted(self, name="rpm", entity_id="user-1"):
        """Return what an entity's bucket has counted, in tokens."""
        found = [item for item in buckets_in(self.repo) if f"{entity_id}#" in item["PK"]]
        return sum(item[f"b_{name}_tc"] for item in found) // 1000


@contextmanager
def staged(*, limits=(RPM,), together=True, parallel: Parallel | None = None):
    with SyncRepository.open("memory://", clock=SettableClock()) as repo:
        repo.set_system_defaults(list(limits))
        yield Stage(repo, together=together, parallel=parallel)


def take(limiter, amount, entity_id="user-1", **options):
    """Take and keep."""
    with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


def crowd(call, count):
    """Make a call in so many threads at once, each with its number, and return what came of each."""
    start = threading.Barrier(count)

    def work(number):
        start.wait(PATIENCE_S)
        return call(number)

    results = [in_thread(lambda number=number: work(number)) for number in range(count)]
    return [result.exception(PATIENCE_S) or result.result() for result in results]


def rejected(results):
    """Return how many were rejected."""
    return sum(isinstance(result, RateLimitExceeded) for result in results)
