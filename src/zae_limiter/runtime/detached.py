"""Coroutines that run to their ends outside of any task, so that no cancellation cuts off a write."""

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar, cast

from zae_limiter.core.errors import RateLimiterUnavailable

_LOOK_S = 0.25
"""The seconds between two checks of the detached coroutines, while a caller waits for one of them."""

T = TypeVar("T")


class Detached(Generic[T]):
    """A coroutine that runs to its end outside of any task.

    Cancelling a task raises CancelledError inside its coroutine, wherever it waits. A write that is cut off there has
    an unknown result. This coroutine belongs to no task, so neither a caller nor the shutdown of the loop can cancel
    it. The deadlines of the calls inside it bound its duration.

    If an interrupt leaves a coroutine that nothing resumes, the watch of the loop ends it with RateLimiterUnavailable.
    """

    __slots__ = ("_context", "_coroutine", "_loop", "_pending", "_result", "_steps", "_waiter", "done", "failure")

    def __init__(self, coroutine: Coroutine[Any, None, T], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._context = contextvars.copy_context()
        self._waiter: asyncio.Future[None] | None = None
        self._pending: asyncio.Future[Any] | None = None
        self._steps = 0
        self._result: T | None = None
        self.done = False
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Schedule the first or next step for the next iteration of the loop."""
        self._loop.call_soon(self._step, context=self._context)

    def resume_after(self, pending: Any) -> None:
        """Continue the coroutine once a future is done, or in the next iteration of the loop if it is None."""
        if pending is None:
            self.start()
        else:
            # `await` sets this flag on the future. The code that drives the coroutine has to clear it, as a task does.
            self._pending = pending
            pending._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between futures and what awaits them
            pending.add_done_callback(self._step, context=self._context)

    async def ended(self) -> asyncio.CancelledError | None:
        """Wait for the end; return the first cancellation of the waiter, or None if it was not cancelled."""
        cancellation = None
        watch = _watch_of(self._loop)
        watch.seen[self] = -1
        # The next check is overdue if none was scheduled, or if an interrupt removed it.
        if self._loop.time() >= watch.look_at_s:
            watch.look_later()
        while not self.done:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancellation = cancellation or error
        watch.seen.pop(self, None)
        return cancellation

    def result(self, cancellation: asyncio.CancelledError | None = None) -> T:
        """Return the result of the coroutine, or raise its error; the cancellation of a waiter is raised instead."""
        if cancellation is not None:
            raise cancellation from self.failure
        if self.failure is not None:
            raise self.failure
        return cast("T", self._result)

    def look(self, seen: int) -> int:
        """End the coroutine if nothing will resume it; return the number of steps made, or -1 if it waits.

        ``seen`` is the result of the last check. A future that is done resumes the coroutine in the next iteration of
        the loop. So the same number at two checks means that the resumption was lost.
        """
        if self.done:
            # An interrupt may have come after the end was noted and before the waiter was woken.
            self._wake()
        elif self._pending is not None and not self._pending.done():
            return -1
        elif seen == self._steps:
            lost = RateLimiterUnavailable(InterruptedError("the call was interrupted"))
            self._loop.call_soon(self._step, None, lost, context=self._context)
        return self._steps

    def _step(self, _: object = None, lost: RateLimiterUnavailable | None = None) -> None:
        self._steps += 1
        try:
            pending = self._coroutine.send(None) if lost is None else self._coroutine.throw(lost)
        except StopIteration as end:
            self._end(cast("T", end.value), None)
        except (KeyboardInterrupt, SystemExit) as error:
            # The waiter must not wait forever, and the loop must stop as it does for an error of a task.
            self._end(None, error)
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again where the end is waited for
            self._end(None, error)
        else:
            self.resume_after(pending)

    def _end(self, result: T | None, failure: BaseException | None) -> None:
        self._result, self.failure, self.done = result, failure, True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Watch:
    """Checks the detached coroutines of one loop while callers wait for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # The number of steps each had made at the last check; -1 if it waited then, or was not checked yet.
        self.seen: dict[Detached[Any], int] = {}
        self.look_at_s = 0.0
        self._timers: list[asyncio.TimerHandle] = []

    def look_later(self) -> None:
        """Schedule the next check, and a second one in case that an interrupt ends the first before it begins."""
        # Cleared first: an interrupt between the next lines must not leave a due time without a timer.
        self.look_at_s = 0.0
        old = self._timers
        # Before the old ones are cancelled: at no moment may there be none, because callers wait already.
        self._timers = [self.loop.call_later(delay_s, self._look) for delay_s in (_LOOK_S, 2 * _LOOK_S)]
        for timer in old:
            timer.cancel()
        self.look_at_s = self.loop.time() + 3 * _LOOK_S

    def _look(self) -> None:
        self.look_at_s = 0.0
        if self.seen:
            self.look_later()
        for detached, seen in list(self.seen.items()):
            self.seen[detached] = detached.look(seen)
            if detached.done:
                del self.seen[detached]


class _Watches(threading.local):
    """The watch of the loop of this thread, None before its first detached coroutine."""

    watch: _Watch | None = None


_watches = _Watches()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _watches.watch
    if watch is None or watch.loop is not loop:
        _watches.watch = watch = _Watch(loop)
    return watch
