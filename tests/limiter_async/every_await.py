"""A task that is cancelled at its k-th await, and tables where another action runs around every call."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from tests._async.clients import Wrapped
from zae_limiter.core.outcome import Unavailable

MOST_AWAITS = 200
"""More than any of these programs has: a run in which nothing was cancelled ends the search long before."""


class CancelledAt:
    """Await a coroutine and cancel its task at one of the awaits; with ``again``, at all later ones too."""

    def __init__(self, coroutine: Coroutine[Any, None, Any], number: int, *, again: bool = False) -> None:
        self._coroutine = coroutine
        self._number = number
        self._again = again
        self.awaits = 0

    def __await__(self) -> Generator[Any, None, Any]:
        step = self._coroutine.send, None
        while True:
            try:
                pending = step[0](step[1])
            except StopIteration as end:
                return end.value
            self.awaits += 1
            if self.awaits == self._number or (self._again and self.awaits > self._number):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield pending
            except BaseException as error:  # noqa: BLE001 - it is handed to the coroutine
                step = self._coroutine.throw, error
            else:
                step = self._coroutine.send, None


async def cancelled_everywhere(program: Callable[[int], Awaitable[CancelledAt]]) -> int:
    """Run a program with a cancellation at its first await, its second and so on; return how many there are."""
    for number in range(1, MOST_AWAITS):
        run = await program(number)
        if run.awaits < number:
            return number - 1
    raise AssertionError("the program never came to its end")


async def ended(run: CancelledAt) -> bool:
    """Run a program in its own task, and return whether it was cancelled."""

    async def main() -> None:
        await run

    task = asyncio.create_task(main())
    await asyncio.wait((task,))
    if task.cancelled():
        return True
    task.result()
    return False


class Contended(Wrapped):
    """A table where another action runs before every call, while the caller waits."""

    def __init__(self, table: Any, before: Callable[[], Awaitable[None]]) -> None:
        super().__init__(table)
        self._before = before

    async def get(self, key, *, consistent=False, until_s=None):
        await self._before()
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        await self._before()
        return await super().batch_get(keys, consistent=consistent, until_s=until_s)

    async def write(self, operation, until_s=None):
        await self._before()
        return await super().write(operation, until_s)

    async def transact(self, operations, token, *, until_s=None):
        await self._before()
        return await super().transact(operations, token, until_s=until_s)


class LossyTable(Wrapped):
    """A table over a network: the response to one of its writes is lost, and the write is applied or not."""

    def __init__(self, table: Any, lost: int, *, applied: bool) -> None:
        super().__init__(table)
        self.inline = False
        self._lost = lost
        self._applied = applied
        self.writes = 0

    async def get(self, key, *, consistent=False, until_s=None):
        await asyncio.sleep(0)
        return await super().get(key, consistent=consistent, until_s=until_s)

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        await asyncio.sleep(0)
        return await super().batch_get(keys, consistent=consistent, until_s=until_s)

    async def write(self, operation, until_s=None):
        self.writes += 1
        number = self.writes
        await asyncio.sleep(0)
        if number == self._lost:
            if self._applied:
                await super().write(operation, until_s)
            await asyncio.sleep(0)
            return Unavailable(ConnectionError("the response was lost"), ambiguous=True)
        outcome = await super().write(operation, until_s)
        await asyncio.sleep(0)
        return outcome


class HeldFile:
    """Another connection, which holds the write lock of the file for a moment before every write."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    async def hold_for_a_moment(self) -> None:
        """Lock the file for two milliseconds, so that the caller's next call finds it busy."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.002, self._unlock)

    def _unlock(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self._unlock()
        self._connection.close()
