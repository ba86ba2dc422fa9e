"""A limiter on a remote table, with a clock that only tests move: writes are counted, held up, or fail."""

import asyncio
from contextlib import asynccontextmanager

from tests._async.clients import SettableClock, another, buckets_in
from tests.limiter_async.slow_table import SlowTable
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.core.outcome import Unavailable

ROOM = 8
"""The maximum of concurrent writes to one bucket."""
RPM = Limit.per_minute("rpm", 1_000)
TPM = Limit.per_minute("tpm", 60_000)


class RemoteTable(SlowTable):
    """Records the keys of all writes, and can be made unavailable."""

    def __init__(self, table):
        super().__init__(table)
        self.writes = []
        self.reads = 0
        self.unavailable = False

    async def get(self, key, *, consistent=False, until_s=None):
        self.reads += 1
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def write(self, operation, until_s=None):
        self.writes.append(operation.key.pk)
        if self.unavailable:
            await self.before.passed()
            return Unavailable(ConnectionError("unavailable"), ambiguous=False)
        return await super().write(operation, until_s)

    def drain(self, entity_id="user-1"):
        """Return how often the bucket of an entity was written, and clear the record."""
        count = sum(f"{entity_id}#" in pk for pk in self.writes)
        self.writes = []
        return count


class Stage:
    """A limiter on the remote table, one directly on the same table, and the clock of both."""

    def __init__(self, repo, clock, *, together=True, **settings):
        self.repo, self.clock = repo, clock
        self.table = RemoteTable(repo.scope.table)
        self.remote_repo = another(repo, lambda _: self.table, **settings)
        self.remote = RateLimiter(self.remote_repo, group_commit=together)
        self.local = RateLimiter(repo)

    async def warm(self, entity_id="user-1", amount=0):
        """Take once, so that the bucket is cached."""
        await take(self.remote, amount, entity_id)
        self.table.drain()

    async def fill(self):
        """Hold up as many writes as may be in flight, so that later requests queue."""
        self.table.before.shut()
        tasks = []
        for _ in range(ROOM):
            tasks.append(asyncio.create_task(take(self.remote, 1)))
            await ticks(6)
        return tasks

    async def queued(self, *amounts):
        """Start takes of these amounts, which queue behind the writes in flight."""
        tasks = [asyncio.create_task(take(self.remote, amount)) for amount in amounts]
        await ticks(10)
        return tasks

    async def left(self, name="rpm", entity_id="user-1"):
        return (await self.local.available(entity_id, "gpt-4"))[name]

    def counted(self, name="rpm", entity_id="user-1"):
        """Return the total consumption of an entity's bucket, in tokens."""
        found = [item for item in buckets_in(self.repo) if f"{entity_id}#" in item["PK"]]
        return sum(item[f"b_{name}_tc"] for item in found) // 1000


@asynccontextmanager
async def staged(*, together=True, limits=(RPM, TPM), **settings):
    clock = SettableClock()
    # Waits have real deadlines, and the machine may be slow.
    async with await Repository.open("memory://", clock=clock, deadline_s=60) as repo:
        await repo.set_system_defaults(list(limits))
        yield Stage(repo, clock, together=together, **settings)


async def take(limiter, amount, entity_id="user-1", **options):
    """Acquire tokens and keep them."""
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


async def ticks(count):
    """Yield to other tasks this many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(tasks):
    """Return the type of the exception that each task raised, None if it succeeded."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else None for result in results]
