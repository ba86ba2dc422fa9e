"""Work that runs once after a delay, and at the latest before its loop or its process ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakKeyDictionary, WeakSet

from zae_limiter.runtime import SIGTERM_WAIT_S, end_by_sigterm, is_sigterm_unhandled
from zae_limiter.runtime.tasks import cancel_and_wait


class Later:
    """Work that runs once after a delay. It runs earlier if the loop ends, or before SIGTERM ends the process."""

    __slots__ = ("_tasks", "_work")

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        # A loop has only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, delay_s: float) -> None:
        """Run the work after this many seconds."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run(delay_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        _end_before_sigterm(loop, task)
        # A task that is cancelled before its first step never runs. So the caller waits for that step.
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Run the work of all waits of this loop now."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        await cancel_and_wait(*[task for task in self._tasks if task.get_loop() is loop and task is not this])

    async def _run(self, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
        finally:
            # Also if the task is cancelled: a loop that ends cancels its tasks, and waits until they have ended.
            await self._work()


_early: "WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[asyncio.Task[None]]]" = WeakKeyDictionary()
"""The tasks of each loop that SIGTERM cancels before it ends the process."""

_ending: set[asyncio.Task[None]] = set()


def _end_before_sigterm(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Let SIGTERM cancel a task and wait for it before it ends the process, unless the program handles SIGTERM."""
    tasks = _early.get(loop)
    if tasks is None and is_sigterm_unhandled():
        # Not every loop can handle signals. A loop that is closed restores the default.
        with suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGTERM, _on_sigterm, loop)
        _early[loop] = tasks = WeakSet()
    if tasks is not None:
        tasks.add(task)


def _on_sigterm(loop: asyncio.AbstractEventLoop) -> None:
    _ending.add(loop.create_task(_end_by_sigterm(list(_early.get(loop, ())))))


async def _end_by_sigterm(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=SIGTERM_WAIT_S)
    end_by_sigterm()
