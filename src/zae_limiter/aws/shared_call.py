"""A blocking call on a thread of its own, of which one at a time is under way and which whoever needs it shares.

A provider of keys or a resolver of names may hang for as long as it likes. Whoever waits does so until its own deadline
and leaves; the thread is a daemon, so it holds up neither a pool of the caller's nor the end of the process.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Future", "SharedCall", "done"]

T = TypeVar("T")


class SharedCall(Generic[T]):
    """A call without arguments; its result is that of whoever began it."""

    __slots__ = ("_call", "_lock", "_process", "_under_way")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._start_anew()

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._under_way: Future[T] | None = None

    def begin(self) -> Future[T]:
        """Begin the call unless it is under way, and return what will hold its result; it cannot be cancelled."""
        if self._process != os.getpid():
            # The thread that was under way, and maybe the holder of the lock, were left behind by a fork.
            self._start_anew()
        with self._lock:
            future = self._under_way
            if future is None or future.done():
                self._under_way = future = Future()
                future.set_running_or_notify_cancel()
                self._start(future)
        return future

    def _start(self, future: Future[T]) -> None:
        try:
            threading.Thread(target=self._run, args=(future,), daemon=True).start()
        except RuntimeError as error:  # no thread is to be had, as while the interpreter exits
            future.set_exception(error)

    def _run(self, future: Future[T]) -> None:
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised again in whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)


def done() -> Future[None]:
    """Return what holds a result already: nothing was to be done."""
    future: Future[None] = Future()
    future.set_result(None)
    return future
