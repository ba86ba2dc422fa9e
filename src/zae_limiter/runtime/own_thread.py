"""Work on a thread of its own, at times that it chooses: nothing that its callers do delays it."""

import threading
import time
from collections.abc import Callable
from math import inf

from zae_limiter.process import renew_in_copies

_IDLE_S = 60.0
"""A thread that has nothing to do ends after this many seconds; the next work starts another one."""

_AFTER_FAILURE_S = 1.0
"""Work that failed runs again, on another thread, after this many seconds."""


class OwnThread:
    """Work that runs on a daemon thread, which is started when it is needed.

    ``due`` does what is due, and returns the seconds until it is to run again, infinity if nothing is to be done.
    ``ended`` runs on the same thread before it ends.
    """

    __slots__ = ("__weakref__", "_due", "_ended", "_mutex", "_stopped", "_thread", "_wake", "_wake_s")

    def __init__(self, due: Callable[[], float], ended: Callable[[], None]) -> None:
        self._due = due
        self._ended = ended
        self._stopped = False
        self.renew(restored=False)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Forget the thread of the original in a forked child, which does not have it."""
        if not restored:
            self._thread: threading.Thread | None = None
            self._wake = threading.Event()
            # Reentrant: a thread that is interrupted while it holds the lock can still enter again.
            self._mutex = threading.RLock()
            self._wake_s = inf

    def wake_in(self, seconds: float) -> bool:
        """Run the work after at most this many seconds; start the thread if it does not run.

        False if no thread can be started: the interpreter exits, or the system has too many of them.
        """
        at_s = time.monotonic() + seconds
        with self._mutex:
            if at_s < self._wake_s:
                self._wake_s = at_s
                self._wake.set()
            return self._thread is not None or self._stopped or self._start()

    def stop(self) -> None:
        """End the thread at its next pause. It is not started again."""
        self._stopped = True
        self._wake.set()

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, daemon=True, name="zae-limiter-renewals")
        try:
            thread.start()
        except RuntimeError:
            return False
        # The caller has the lock, so the thread cannot have ended yet.
        self._thread = thread
        return True

    def _run(self) -> None:
        is_done = False
        try:
            self._work()
            is_done = True
        finally:
            with self._mutex:
                self._thread = None
                if not is_done:
                    self._wake_s = min(self._wake_s, time.monotonic() + _AFTER_FAILURE_S)
                # There may be work again since this thread was idle.
                if self._wake_s < inf and not self._stopped:
                    self._start()

    def _work(self) -> None:
        try:
            while self._is_time():
                with self._mutex:
                    self._wake_s = inf
                next_s = time.monotonic() + self._due()
                with self._mutex:
                    self._wake_s = min(self._wake_s, next_s)
        finally:
            self._ended()

    def _is_time(self) -> bool:
        """Wait until the work is due; return False if the thread has to end, or is idle."""
        while True:
            with self._mutex:
                self._wake.clear()
                left_s = self._wake_s - time.monotonic()
            # Checked after the event was cleared: a stop before that would not wake the thread.
            if self._stopped:
                return False
            if left_s <= 0:
                return True
            if not self._wake.wait(min(left_s, _IDLE_S)) and left_s == inf:
                return False
