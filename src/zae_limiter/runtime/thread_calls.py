"""Calls that no caller waits for, each on a thread of its own, and callbacks that a user gave."""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import TypeVar

T = TypeVar("T")


class BackgroundCalls:
    """Short calls that run beside their callers; the exit of the interpreter cuts them off."""

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads: dict[threading.Thread, None] = {}

    def start(self, call: Callable[[], None]) -> bool:
        """Start a call; False if no thread can be started: the interpreter exits, or the system has too many."""
        thread = threading.Thread(target=self._run, args=(call,), daemon=True, name="zae-limiter-warning")
        self._threads[thread] = None
        try:
            thread.start()
        except RuntimeError:
            self._threads.pop(thread, None)
            return False
        return True

    def drain(self) -> None:
        """Wait until all calls have ended, but for the one that asks for it."""
        for thread in list(self._threads):
            # A forked child has none of the threads of its parent, and a thread cannot wait for itself.
            with suppress(RuntimeError):
                thread.join()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._threads.pop(threading.current_thread(), None)


def call_back(callback: Callable[[T], object], argument: T) -> None:
    """Call a function that a user gave.

    Raises:
        TypeError: The function is async, and no loop would run it.
    """
    result = callback(argument)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError("an async function needs a Repository, and not a SyncRepository")
