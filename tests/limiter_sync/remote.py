"""A limiter for threads or greenlets on a remote table: writes take a while, are counted, or fail."""

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


class RemoteTable(Wrapped):
    """Takes half a millisecond per write, or more while its gate is shut, and records the keys of all writes."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False
        self.writes = []
        self.unavailable = False
        self.gate = threading.Event()
        self.gate.set()

    def write(self, operation, until_s=None):
        self.writes.append(operation.key.pk)
        time.sleep(0.0005)
        assert self.gate.wait(PATIENCE_S)
        if self.unavailable:
            return Unavailable(ConnectionError("unavailable"), ambiguous=False)
        return super().write(operation, until_s)

    def drain(self, entity_id="user-1"):
        """Return how often the bucket of an entity was written, and clear the record."""
        count = sum(f"{entity_id}#" in pk for pk in self.writes)
        self.writes = []
        return count


class Stage:
    """A limiter on the remote table, and one directly on the same table."""

    def __init__(self, repo, *, together=True, parallel=None):
        self.repo = repo
        self.table = RemoteTable(repo.scope.table)
        client = replace(repo.scope.client, table=self.table, caches={})
        if parallel is not None:
            client = replace(client, parallel=parallel)
        remote_repo = SyncRepository(client.scope(repo.scope.namespace, repo.scope.namespace_id), owns_table=False)
        self.remote = SyncRateLimiter(remote_repo, group_commit=together)
        self.local = SyncRateLimiter(repo)

    def left(self, name="rpm", entity_id="user-1"):
        return self.local.available(entity_id, "gpt-4")[name]

    def counted(self, name="rpm", entity_id="user-1"):
        """Return the total consumption of an entity's bucket, in tokens."""
        found = [item for item in buckets_in(self.repo) if f"{entity_id}#" in item["PK"]]
        return sum(item[f"b_{name}_tc"] for item in found) // 1000


@contextmanager
def staged(*, limits=(RPM,), together=True, parallel: Parallel | None = None):
    with SyncRepository.open("memory://", clock=SettableClock()) as repo:
        repo.set_system_defaults(list(limits))
        yield Stage(repo, together=together, parallel=parallel)


def take(limiter, amount, entity_id="user-1", **options):
    """Acquire tokens and keep them."""
    with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


def in_many_threads(call, count):
    """Make a call in this many threads at the same time, each with its number; return results and errors."""
    start = threading.Barrier(count)

    def work(number):
        start.wait(PATIENCE_S)
        return call(number)

    results = [in_thread(lambda number=number: work(number)) for number in range(count)]
    return [result.exception(PATIENCE_S) or result.result() for result in results]


def rejected(results):
    """Return how many were rejected."""
    return sum(isinstance(result, RateLimitExceeded) for result in results)
