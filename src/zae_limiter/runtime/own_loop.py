"""Asynchronous work on a thread of its own, with an event loop of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zae_limiter.runtime import own_thread

T = TypeVar("T")


class _Loops(threading.local):
    """The loop of each thread."""

    current: asyncio.AbstractEventLoop


class OwnThread(own_thread.OwnThread):
    """Work that runs on a daemon thread with its own event loop, so that a busy loop does not delay it.

    ``due`` does what is due, and returns the seconds until it is to run again. The thread ends if that is None, until
    it is needed again. ``ended`` runs at each end, on the same thread.
    """

    __slots__ = ("_due_async", "_ended_async", "_loops")

    def __init__(self, due: Callable[[], Awaitable[float | None]], ended: Callable[[], Awaitable[None]]) -> None:
        self._due_async = due
        self._ended_async = ended
        self._loops = _Loops()
        super().__init__(self._run_due, self._run_ended)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        # Of this thread: one that ends may still close its loop while the next one begins.
        self._loops.current = loop
        try:
            super()._run()
        finally:
            loop.close()

    def _run_due(self) -> float | None:
        return self._loops.current.run_until_complete(_result(self._due_async))

    def _run_ended(self) -> None:
        self._loops.current.run_until_complete(_result(self._ended_async))


async def _result(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call; a loop runs coroutines, and not every awaitable is one."""
    return await call()
