"""Calls that no caller waits for, each in a task of its own, and callbacks that a user gave."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

from zae_limiter.runtime.tasks import _awaited

T = TypeVar("T")


class BackgroundCalls:
    """Short calls that run beside their callers; nothing cancels them but the end of their loop."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        # A loop has only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, call: Callable[[], Awaitable[None]]) -> bool:
        """Start a call, and return True."""
        task = asyncio.get_running_loop().create_task(_awaited(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def drain(self) -> None:
        """Wait until all calls of this loop have ended, but for the one that asks for it."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        running = [task for task in list(self._tasks) if task.get_loop() is loop and task is not this]
        if running:
            await asyncio.wait(running)


async def call_back(callback: Callable[[T], object], argument: T) -> None:
    """Call a function that a user gave; if it is async, wait for its end."""
    result = callback(argument)
    if isawaitable(result):
        await result
