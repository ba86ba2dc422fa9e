"""Simulated time: one ordered queue of callbacks, and a clock that jumps to the next of them.

Every simulated process has an event loop, and all loops share one timeline. The loop of a crashed process runs nothing
more, so no ``finally`` of the process has an effect. Messages that are already in the network belong to the network's
loop and still arrive.

Selector, debug mode and contexts are left out: the limiter does not use them, and they would double the cost of a run.
"""

import asyncio
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from tests.simulation.world import START_MS

_MAX_AWAITS_WHILE_CLOSING = 50


class StalledError(RuntimeError):
    """Every task waits for another, and no callback is left that could wake one."""


class Handle:
    """A callback that is due on a loop."""

    __slots__ = ("args", "call", "loop")

    def __init__(self, loop: "ProcessLoop", call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Drop the callback."""
        self.call = None

    def cancelled(self) -> bool:
        """Return whether the callback was dropped."""
        return self.call is None


class Timeline:
    """All callbacks that are due, ordered by time, and at the same time in the order of their requests."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.failure: BaseException | None = None
        self.loops: list[ProcessLoop] = []
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._asked = 0
        self.network = self.loop("network")

    def loop(self, name: str) -> "ProcessLoop":
        """Return the loop of a new process."""
        loop = ProcessLoop(self, name, self._ready)
        self.loops.append(loop)
        return loop

    def now_ms(self) -> int:
        """Return the true time of day."""
        return START_MS + int(self.now_s * 1000)

    def at(self, when_s: float, handle: Handle) -> Handle:
        """Schedule a callback."""
        self._asked += 1
        heappush(self._timers, (when_s, self._asked, handle))
        return handle

    def fail(self, failure: BaseException) -> None:
        """End the run with a failure after the current callback; the first failure counts."""
        if self.failure is None:
            self.failure = failure

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run callbacks until the main coroutine ends.

        Raises:
            StalledError: The main coroutine waits, and no callback is left.
        """
        before = asyncio._get_running_loop()
        task = self.network.create_task(main)
        try:
            self._run(task)
        finally:
            asyncio._set_running_loop(before)
        task.result()

    def _run(self, task: "asyncio.Task[None]") -> None:
        ready, timers, set_running = self._ready, self._timers, asyncio._set_running_loop
        current = None
        while not task.done():
            if not ready:
                if not timers:
                    raise StalledError("a task waits, and no callback is left that could wake it")
                self.now_s, _, handle = heappop(timers)
            else:
                handle = ready.popleft()
            call, loop = handle.call, handle.loop
            if call is None or not loop.alive:
                continue
            if loop is not current:
                set_running(loop)
                current = loop
            call(*handle.args)
            if self.failure is not None:
                raise self.failure

    def close(self) -> None:
        """Discard every task that has not ended, because its process crashed or the run failed."""
        for loop in self.loops:
            loop.crash()
        with warnings.catch_warnings():
            # Coroutines that are closed may create others, which never run.
            warnings.simplefilter("ignore", RuntimeWarning)
            for loop in self.loops:
                while loop.crashed:
                    _discard(loop.crashed.pop())
        self._ready.clear()
        self._timers.clear()


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, timeline: Timeline, name: str, ready: "deque[Handle]") -> None:
        self.alive = True
        self.name = name
        self.crashed: list[asyncio.Task[Any]] = []
        self._timeline = timeline
        self._ready = ready

    def crash(self) -> None:
        """Run nothing more on this loop.

        Its tasks are kept until the end of the run: if they were collected now, their ``finally`` blocks would run.
        """
        if self.alive:
            self.alive = False
            self.crashed += asyncio.all_tasks(self)

    def time(self) -> float:
        """Return the seconds since the start of the simulation."""
        return self._timeline.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: object = None) -> Handle:  # type: ignore[override] # a lighter handle
        handle = Handle(self, callback, args)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: object = None) -> Handle:  # type: ignore[override] # a lighter handle
        timeline = self._timeline
        return timeline.at(timeline.now_s + delay, Handle(self, callback, args))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: object = None) -> Handle:  # type: ignore[override] # a lighter handle
        return self._timeline.at(max(when, self._timeline.now_s), Handle(self, callback, args))

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: object = None) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=name or self.name)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run by an error that no task has retrieved, unless the process has crashed."""
        if self.alive:
            error = RuntimeError(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")
            self._timeline.fail(error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def _discard(task: "asyncio.Task[Any]") -> None:
    """Close the coroutine of a task, however often it awaits on the way. No loop is running, so it has no effect."""
    task._log_destroy_pending = False  # type: ignore[attr-defined] # asyncio's own tasks have it
    coroutine = task.get_coro()
    for _ in range(_MAX_AWAITS_WHILE_CLOSING):
        try:
            coroutine.close()  # type: ignore[union-attr] # tasks are made of coroutines here
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001 - errors while closing have no effect
            pass
        break
    with suppress(BaseException):
        task.exception()
