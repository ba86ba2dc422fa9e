"""A limiter on a table that is far away, by a clock that stands still: writes are counted, held up, or fail."""

import asyncio
from contextlib import asynccontextmanager

from tests._async.clients import SettableClock, another, buckets_in
from tests.limiter_async.slow_table import SlowTable
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.core.outcome import Unavailable

ROOM = 8
"""Writes to one bucket that may be under way."""
RPM = Limit.per_minute("rpm", 1_000)
TPM = Limit.per_minute("tpm", 60_000)


class FarTable(SlowTable):
    """Remembers the keys of what was written, and is away while it is told to be."""

    def __init__(self, table):
        super().__init__(table)
        self.writes = []
        self.reads = 0
        self.away = False

    async def get(self, key, *, consistent=False, until_s=None):
        self.reads += 1
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def write(self, operation, until_s=None):
        self.writes.append(operation.key.pk)
        if self.away:
            await self.before.passed()
            return Unavailable(ConnectionError("away"), ambiguous=False)
        return await super().write(operation, until_s)

    def drain(self, entity_id="user-1"):
        """Return how often the bucket of an entity was written to, and forget it."""
        count = sum(f"{entity_id}#" in pk for pk in self.writes)
        self.writes = []
        return count


class Stage:
    """A limiter far away, one near the same table, and the clock of both."""

    def __init__(self, repo, clock, *, together=True, **settings):
        self.repo, self.clock = repo, clock
        self.table = FarTable(repo.scope.table)
        self.far_repo = another(repo, lambda _: self.table, **settings)
        self.far = RateLimiter(self.far_repo, group_commit=together)
        self.near = RateLimiter(repo)

    async def warm(self, entity_id="user-1", amount=0):
        """Take once, so that the bucket is known."""
        await take(self.far, amount, entity_id)
        self.table.drain()

    async def crowd(self):
        """Hold up as many writes as may be under way, so that whoever comes then waits for them."""
        self.table.before.shut()
        tasks = []
        for _ in range(ROOM):
            tasks.append(asyncio.create_task(take(self.far, 1)))
            await ticks(6)
        return tasks

    async def queued(self, *amounts):
        """Let takes of these amounts wait for those that are under way."""
        tasks = [asyncio.create_task(take(self.far, amount)) for amount in amounts]
        await ticks(10)
        return tasks

    async def left(self, name="rpm", entity_id="user-1"):
        return (await self.near.available(entity_id, "gpt-4"))[name]

    def counted(self, name="rpm", entity_id="user-1"):
        """Return what an entity's bucket has counted, in tokens."""
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
    """Take and keep."""
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


async def ticks(count):
    """Let others go on so often."""
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(tasks):
    """Return what came of tasks: the kind of what they raised, None for nothing."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else None for result in results]
