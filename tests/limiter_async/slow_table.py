"""A table whose writes stay in flight for a while, so that a caller can be cancelled in the meantime."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from zae_limiter import Repository
from zae_limiter._async.table import Table
from zae_limiter.core.outcome import Item, TransactOutcome, WriteOutcome
from zae_limiter.schema.operations import Key, Operation, Page, Query, Write


class SlowTable:
    """Holds writes up, before or after they take effect, while a gate is shut."""

    inline = False
    index_lag_s = 0.0
    server_time = None

    def __init__(self, table: Table) -> None:
        self._table = table
        self.capabilities = table.capabilities
        self.now = table.now
        self.before = Gate()
        self.after = Gate()

    def seen_from(self, repo: Repository) -> Repository:
        """Return a repository on this table, with its own cache."""
        client = replace(repo.scope.client, table=self, caches={})
        return Repository(client.scope(repo.scope.namespace, repo.scope.namespace_id), owns_table=False)

    async def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        await asyncio.sleep(0)
        return await self._table.get(key, consistent=consistent)

    async def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        await asyncio.sleep(0)
        return await self._table.batch_get(keys, consistent=consistent)

    async def query(self, query: Query) -> Page:
        return await self._table.query(query)

    async def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        await self.before.passed()
        outcome = await self._table.write(operation)
        await self.after.passed()
        return outcome

    async def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        return await self._table.transact(operations, token)

    async def batch_delete(self, keys: Sequence[Key]) -> None:
        await self._table.batch_delete(keys)

    async def close(self) -> None:
        await self._table.close()


class Gate:
    """A gate where writes wait while it is shut."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._reached = asyncio.Event()

    def shut(self) -> None:
        self._open.clear()
        self._reached.clear()

    def open(self) -> None:
        self._open.set()

    async def reached(self) -> None:
        """Wait until a write waits at the shut gate."""
        await self._reached.wait()

    async def passed(self) -> None:
        await asyncio.sleep(0)
        if not self._open.is_set():
            self._reached.set()
            await self._open.wait()
