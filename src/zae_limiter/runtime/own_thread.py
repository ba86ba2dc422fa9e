"""Work on a thread of its own, at times that it chooses: nothing that its callers do delays it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from zae_limiter.process import renew_in_copies


class OwnThread:
    """Work that runs on a daemon thread, which is started when it is first needed.

    ``due`` does what is due, and returns the seconds until it is to run again. The thread ends if that is None, until
    it is needed again. ``ended`` runs at each end, on the same thread.
    """

    __slots__ = ("__weakref__", "_due", "_ended", "_mutex", "_stopped", "_thread", "_wake", "_wake_s")

    def __init__(self, due: Callable[[], float | None], ended: Callable[[], None]) -> None:
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

    def wake_in(self, seconds: float) -> None:
        """Run the work after at most this many seconds; start the thread if it does not run."""
        at_s = time.monotonic() + seconds
        with self._mutex:
            if at_s < self._wake_s:
                self._wake_s = at_s
                self._wake.set()
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, daemon=True, name="zae-limiter-renewals")
                # No thread can be started while the interpreter exits.
                with suppress(RuntimeError):
                    self._thread.start()

    def stop(self) -> None:
        """End the thread at its next pause. It is not started again."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        while self._is_time():
            with self._mutex:
                self._wake_s = inf
            seconds = self._due()
            with self._mutex:
                if seconds is not None:
                    self._wake_s = min(self._wake_s, time.monotonic() + seconds)
                elif self._wake_s == inf:
                    # Under the lock: a caller either was seen here, or starts another thread.
                    self._thread = None
                    break
        self._ended()

    def _is_time(self) -> bool:
        """Wait until the work is due; return False if the thread has to end."""
        while not self._stopped:
            with self._mutex:
                self._wake.clear()
                left_s = self._wake_s - time.monotonic()
            if left_s <= 0:
                return True
            self._wake.wait(min(left_s, threading.TIMEOUT_MAX))
        return False
