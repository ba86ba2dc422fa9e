"""Clients of one table, each with its own cache, and tables that count calls or fail on demand."""

import json
from dataclasses import replace

from tests.tables.memory_items import stored
from zae_limiter import RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.memory import MemoryTable

START_MS = 1_700_000_000_123


class SettableClock:
    """A clock that moves only when a test advances it."""

    def __init__(self, now_ms=START_MS):
        self.time_ms = now_ms

    def now_ms(self):
        return self.time_ms

    def monotonic_s(self):
        return self.time_ms / 1000

    def advance(self, milliseconds):
        self.time_ms += milliseconds


class Wrapped:
    """A table that forwards every call to another table."""

    def __init__(self, table):
        self.table = table
        self.capabilities = table.capabilities
        self.inline = table.inline
        self.index_lag_s = table.index_lag_s
        self.server_time = table.server_time
        self.now = table.now
        self.log = table.log
        # Writes of several items in one step would not be counted or made to fail, so each item is written by itself.
        self.together = None

    async def get(self, key, *, consistent=False, until_s=None):
        return await self.table.get(key, consistent=consistent, until_s=until_s)

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        return await self.table.batch_get(keys, consistent=consistent, until_s=until_s)

    async def query(self, query):
        return await self.table.query(query)

    async def write(self, operation, until_s=None):
        return await self.table.write(operation, until_s)

    async def transact(self, operations, token, *, until_s=None):
        return await self.table.transact(operations, token, until_s=until_s)

    async def batch_delete(self, keys):
        await self.table.batch_delete(keys)

    def for_thread(self):
        return self

    async def close(self):
        await self.table.close()


class CountingTable(Wrapped):
    """A table that records the names of the calls made to it."""

    def __init__(self, table):
        super().__init__(table)
        self.calls = []

    def drain(self):
        """Return the calls since the last time, and clear them."""
        calls, self.calls = self.calls, []
        return calls

    async def get(self, key, *, consistent=False, until_s=None):
        self.calls.append("get")
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        self.calls.append("batch_get")
        return await super().batch_get(keys, consistent=consistent, until_s=until_s)

    async def query(self, query):
        self.calls.append("query")
        return await super().query(query)

    async def write(self, operation, until_s=None):
        self.calls.append("write")
        return await super().write(operation, until_s)

    async def transact(self, operations, token, *, until_s=None):
        self.calls.append("transact")
        return await super().transact(operations, token, until_s=until_s)


class AsynchronousTable(CountingTable):
    """A table whose writes may be suspended, as those of a server are."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


class FailingTable(Wrapped):
    """A table that can be made unavailable: reads raise and writes return Unavailable."""

    def __init__(self, table):
        super().__init__(table)
        self.unavailable = False
        self.cause = ConnectionError("the test has cut the connection")

    def _require(self):
        if self.unavailable:
            raise RateLimiterUnavailable(self.cause)

    async def get(self, key, *, consistent=False, until_s=None):
        self._require()
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        self._require()
        return await super().batch_get(keys, consistent=consistent, until_s=until_s)

    async def write(self, operation, until_s=None):
        return Unavailable(self.cause, ambiguous=False) if self.unavailable else await super().write(operation, until_s)

    async def transact(self, operations, token, *, until_s=None):
        return (
            Unavailable(self.cause, ambiguous=False)
            if self.unavailable
            else await super().transact(operations, token, until_s=until_s)
        )


def another(repo, wrap=None, **settings):
    """Return a repository on the same table with its own cache, like that of another process."""
    client = repo.scope.client
    table = client.table if wrap is None else wrap(client.table)
    changed = replace(client.settings, **settings)
    other = replace(client, table=table, settings=changed, caches={})
    return Repository(other.scope(repo.scope.namespace, repo.scope.namespace_id), owns_table=False)


def counted(repo, *, speculative_writes=True, **settings):
    """Return a limiter with its own cache, and the table that counts its calls."""
    other = another(repo, CountingTable, **settings)
    return RateLimiter(other, speculative_writes=speculative_writes), other.scope.table


async def take(limiter, consume, entity_id="user-1"):
    """Acquire tokens and keep them."""
    async with limiter.acquire(entity_id, "gpt-4", consume):
        pass


async def own_level(limiter, entity_id, resource="gpt-4"):
    """Return the level of each limit in an entity's own bucket, without its parent."""
    client = limiter._client
    own = (await client.levels.all_levels((entity_id, resource), None, client.until_s())).levels[0]
    return {one.name: one.available_milli(client.now()) // 1000 for one in own.levels}


def everything_in(repo):
    """Return all stored items by key."""
    table = repo.scope.table
    while isinstance(table, Wrapped):
        table = table.table
    blocking = table._table
    if isinstance(blocking, MemoryTable):
        return {tuple(key): dict(item) for key, item in stored(blocking).items()}
    rows = blocking._access.reading(_select_all, None)
    return {(pk, sk): json.loads(body) for pk, sk, body in rows}


def _select_all(cursor, _):
    return cursor.execute("SELECT pk, sk, body FROM items").fetchall()


def buckets_in(repo):
    """Return the stored bucket items."""
    return [item for key, item in everything_in(repo).items() if "BUCKET#" in key[0]]


def balance_of(repo, limit_name, field="tk"):
    """Return a field of a limit in the only stored bucket."""
    (bucket,) = buckets_in(repo)
    return bucket[f"b_{limit_name}_{field}"]
