"""Asynchronous work on a thread of its own, with an event loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zae_limiter.runtime import own_thread

T = TypeVar("T")


_loops_of_originals: list[asyncio.AbstractEventLoop] = []
"""The loops that a forked child inherited. If they were closed there, the original could not be woken any more, because
both processes use one selector of the kernel."""


class OwnThread(own_thread.OwnThread):
    """Work that runs on a daemon thread with its own event loop, so that a busy loop does not delay it.

    ``due`` does what is due, and returns the seconds until it is to run again, infinity if nothing is to be done.
    ``ended`` runs on the same thread before it ends.
    """

    __slots__ = ("_due_async", "_ended_async", "_loop")

    def __init__(self, due: Callable[[], Awaitable[float]], ended: Callable[[], Awaitable[None]]) -> None:
        self._due_async = due
        self._ended_async = ended
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(self._run_due, self._run_ended)

    def renew(self, *, restored: bool) -> None:
        """Forget the thread and the loop of the original in a forked child, and do not close that loop."""
        loop = self._loop
        if loop is not None and not restored:
            _loops_of_originals.append(loop)
            self._loop = None
        super().renew(restored=restored)

    def _work(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        try:
            super()._work()
        finally:
            self._loop = None
            loop.close()

    def _run_due(self) -> float:
        assert self._loop is not None, "the thread has a loop while it runs"
        return self._loop.run_until_complete(_result(self._due_async))

    def _run_ended(self) -> None:
        assert self._loop is not None, "the thread has a loop while it runs"
        self._loop.run_until_complete(_result(self._ended_async))


async def _result(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call; a loop runs coroutines, and not every awaitable is one."""
    return await call()
