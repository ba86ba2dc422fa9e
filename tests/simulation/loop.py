"""Simulated time on an event loop of its own: what is to happen stands in one order, and time jumps to the next of it.

Every simulated process has a loop, and all of them share one timeline. A process that has crashed has a loop that is
gone: nothing that stands on it ever happens, so no ``finally`` of it has an effect. What is on its way through the
network stands on the network's loop and happens all the same.

There is no selector, no debugging and no context here: the limiter uses none of these, and they would cost half the
time.
"""

import asyncio
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from tests.simulation.world import START_MS

_TIMES_A_FRAME_MAY_WAIT_ON_ITS_WAY_OUT = 50


class StalledError(RuntimeError):
    """Every task waits for another: nothing is left that could wake one."""


class Happening:
    """Something that is going to happen on a loop; what asyncio calls a handle."""

    __slots__ = ("args", "call", "loop")

    def __init__(self, loop: "ProcessLoop", call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Let it not happen."""
        self.call = None

    def cancelled(self) -> bool:
        """Say whether it will not happen."""
        return self.call is None


class Timeline:
    """All that is going to happen, in its order: by time, and at one time as it was asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.failure: BaseException | None = None
        self.loops: list[ProcessLoop] = []
        self._ready: deque[Happening] = deque()
        self._timers: list[tuple[float, int, Happening]] = []
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

    def at(self, when_s: float, happening: Happening) -> Happening:
        """Let something happen at a time."""
        self._asked += 1
        heappush(self._timers, (when_s, self._asked, happening))
        return happening

    def fail(self, failure: BaseException) -> None:
        """End the run with a failure, once what happens now has happened; the first counts."""
        if self.failure is None:
            self.failure = failure

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Let everything happen until the main coroutine ends.

        Raises:
            StalledError: The main coroutine waits, and nothing is left that could happen.
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
                    raise StalledError("nothing is left to happen, and somebody still waits")
                self.now_s, _, happening = heappop(timers)
            else:
                happening = ready.popleft()
            call, loop = happening.call, happening.loop
            if call is None or not loop.alive:
                continue
            if loop is not current:
                set_running(loop)
                current = loop
            call(*happening.args)
            if self.failure is not None:
                raise self.failure

    def close(self) -> None:
        """Throw away every task that has not ended, of processes that crashed or of a run that failed."""
        for loop in self.loops:
            loop.crash()
        with warnings.catch_warnings():
            # On their way out coroutines begin others, which can never run.
            warnings.simplefilter("ignore", RuntimeWarning)
            for loop in self.loops:
                while loop.crashed:
                    _throw_away(loop.crashed.pop())
        self._ready.clear()
        self._timers.clear()


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, timeline: Timeline, name: str, ready: "deque[Happening]") -> None:
        self.alive = True
        self.name = name
        self.crashed: list[asyncio.Task[Any]] = []
        self._timeline = timeline
        self._ready = ready

    def crash(self) -> None:
        """Let nothing more happen here.

        Its tasks are kept for as long as the run lasts: thrown away, they would do what is to be done on their way out.
        """
        if self.alive:
            self.alive = False
            self.crashed += asyncio.all_tasks(self)

    def time(self) -> float:
        """Return the seconds that the simulation has lasted."""
        return self._timeline.now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: object = None) -> Happening:  # type: ignore[override] # a lighter handle
        happening = Happening(self, callback, args)
        self._ready.append(happening)
        return happening

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: object = None
    ) -> Happening:  # type: ignore[override] # a lighter handle
        timeline = self._timeline
        return timeline.at(timeline.now_s + delay, Happening(self, callback, args))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: object = None) -> Happening:  # type: ignore[override] # a lighter handle
        return self._timeline.at(max(when, self._timeline.now_s), Happening(self, callback, args))

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: object = None) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=name or self.name)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run by an error that nobody has heard of; of a process that is gone nobody is to hear."""
        if self.alive:
            error = RuntimeError(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")
            self._timeline.fail(error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def _throw_away(task: "asyncio.Task[Any]") -> None:
    """End a task's coroutine, however often it waits on its way out; with no loop running it can begin nothing."""
    task._log_destroy_pending = False  # type: ignore[attr-defined] # asyncio's own tasks have it
    coroutine = task.get_coro()
    for _ in range(_TIMES_A_FRAME_MAY_WAIT_ON_ITS_WAY_OUT):
        try:
            coroutine.close()  # type: ignore[union-attr] # tasks are made of coroutines here
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001 - whatever its way out runs into is nobody's business any more
            pass
        break
    with suppress(BaseException):
        task.exception()
