"""A pool of threads that an interrupt cannot leave locked."""

import _thread
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

_IDLE_S = 30.0
"""A pool thread ends after this many seconds without a call."""


class ThreadPool:
    """At most ``most`` threads that run calls; they are started when needed and end when idle.

    It is no ``ThreadPoolExecutor``, because an interrupt inside `submit` may leave the executor locked for all callers.
    """

    def __init__(self, most: int) -> None:
        self.process = os.getpid()
        self._most = most
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: dict[int, None] = {}
        self._idle: dict[int, None] = {}

    def offer(self, run: Callable[[], None]) -> None:
        """Queue a call for a thread that is idle, or for a new one; the caller may still run it first."""
        # Taken out here, not by the thread itself: two calls must not count on the same thread.
        try:
            self._idle.popitem()
            is_reserved = True
        except KeyError:
            is_reserved = False
        self._calls.put(run)
        if not is_reserved and len(self._threads) < self._most:
            # No thread can be started while the interpreter exits. The caller then runs the call.
            with suppress(RuntimeError):
                _thread.start_new_thread(self._work, ())

    def close(self) -> None:
        """End each thread after its current call."""
        for _ in range(self._most):
            self._calls.put(None)

    def _work(self) -> None:
        ident = threading.get_ident()
        # Several callers may have started a thread for the last free place.
        if len(self._threads) >= self._most:
            return
        self._threads[ident] = None
        try:
            while True:
                run = self._next(ident)
                if run is None:
                    return
                run()
        except queue.Empty:
            return
        finally:
            self._idle.pop(ident, None)
            self._threads.pop(ident, None)

    def _next(self, ident: int) -> Callable[[], None] | None:
        """Return the next call, None if the thread is to end.

        Raises:
            queue.Empty: There was none for ``_IDLE_S``.
        """
        # A thread that was started for a call is not idle before that call.
        with suppress(queue.Empty):
            return self._calls.get_nowait()
        self._idle[ident] = None
        return self._calls.get(timeout=_IDLE_S)
