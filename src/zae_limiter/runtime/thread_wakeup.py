"""The wait of one request, which other threads may end early."""

import threading


class Wakeup:
    """A wait that can be ended from any thread; one that is ended before it begins ends immediately."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        # Locked until the wait is ended.
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, within_s: float) -> None:
        """Wait until the wait is ended, but for at most this many seconds."""
        self._gate.acquire(timeout=min(max(0.0, within_s), threading.TIMEOUT_MAX))

    def end(self) -> None:
        """Do nothing: the wait has ended."""

    def wake_in(self, seconds: float) -> None:
        """End the wait now: its thread finds out how long it has to wait from then on."""
        try:
            self._gate.release()
        except RuntimeError:
            # It was ended before, and its thread has not continued yet.
            return
