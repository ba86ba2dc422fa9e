"""The wait of one request, which other tasks and threads may end early."""

import asyncio
import contextvars
from collections.abc import Awaitable
from contextlib import suppress
from math import inf

from zae_limiter.runtime.aio import DONE

_CONTEXT = contextvars.Context()
"""The context of all timers. Otherwise each would keep a copy of its own."""


class Wakeup:
    """A wait that can be ended from any loop or thread; one that is ended before it begins ends immediately."""

    __slots__ = ("_future", "_timer", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False

    def wait(self, within_s: float) -> Awaitable[None]:
        """Return an awaitable wait of at most this many seconds. Call `end` after it, even if it was cancelled."""
        loop = asyncio.get_running_loop()
        # In this order: another thread first notes that it ends the wait, and then looks for the future.
        self._future = future = loop.create_future()
        if self._woken:
            return DONE
        if within_s < inf:
            self._timer = loop.call_later(max(0.0, within_s), _end, future, context=_CONTEXT)
        return future

    def end(self) -> None:
        """Forget a wait that has ended."""
        self._future, self._woken = None, False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def wake_in(self, seconds: float) -> None:
        """End the wait after this many seconds, unless it ends earlier; a wait on another loop ends immediately."""
        future = self._future
        if future is not None and _running_loop() is future.get_loop():
            if seconds <= 0:
                _end(future)
            else:
                self._end_in(seconds, future)
            return
        self._woken = True
        future = self._future
        if future is not None:
            # Raises RuntimeError if the loop was closed before the wait ended.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_end, future)

    def _end_in(self, seconds: float, future: "asyncio.Future[None]") -> None:
        loop, timer = future.get_loop(), self._timer
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timer = loop.call_later(seconds, _end, future, context=_CONTEXT)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()  # noqa: SLF001 - documented, and None without a running loop


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
