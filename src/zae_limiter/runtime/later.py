"""Work that runs after delays, and at the latest before its loop or its process ends."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakKeyDictionary, WeakSet

from zae_limiter.runtime import SIGTERM_WAIT_S, end_by_sigterm, is_sigterm_unhandled
from zae_limiter.runtime.tasks import cancel_and_wait


class Later:
    """Work that runs after delays. It runs earlier if the loop ends, or before SIGTERM ends the process.

    ``due`` does what is due, and returns the seconds until it is to run again, None if nothing is left. ``everything``
    runs instead if the end comes early.
    """

    __slots__ = ("_due", "_everything", "_tasks")

    def __init__(self, due: Callable[[], Awaitable[float | None]], everything: Callable[[], Awaitable[None]]) -> None:
        self._due = due
        self._everything = everything
        # A loop has only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, delay_s: float) -> None:
        """Run the work after this many seconds, and then as often as it asks for."""
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

    async def _run(self, delay_s: float | None) -> None:
        try:
            while delay_s is not None:
                await asyncio.sleep(delay_s)
                delay_s = await self._due()
        except BaseException:
            # A loop that ends cancels its tasks, and waits until they have ended.
            await self._everything()
            raise


_early: "WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[asyncio.Task[None]]]" = WeakKeyDictionary()
"""The tasks of each loop that SIGTERM cancels before it ends the process."""

_ending: set[asyncio.Task[None]] = set()
_handlers: set[object] = set()
"""What `signal.getsignal` returns for the handlers that were added here."""


def _end_before_sigterm(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Let SIGTERM cancel a task and wait for it before it ends the process, unless the program handles SIGTERM."""
    tasks = _early.get(loop)
    if tasks is None and is_sigterm_unhandled():
        # Not every loop can handle signals. A loop that is closed restores the default.
        with suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGTERM, _on_sigterm, loop)
            _handlers.add(signal.getsignal(signal.SIGTERM))
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


def _restore_default_in_child() -> None:
    """Let SIGTERM end a forked child.

    Hazard: the child shares the socket that wakes the loop of the parent at a signal. A SIGTERM for the child would
    leave the child running, and end the parent.
    """
    _early.clear()
    if signal.getsignal(signal.SIGTERM) in _handlers:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_default_in_child)
