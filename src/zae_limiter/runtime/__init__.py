"""Waiting, locks, threads and concurrent calls: one module for asyncio, and one for threads with the same names."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)

SIGTERM_WAIT_S = 5.0
"""After SIGTERM, work that waits for a later moment has this many seconds to end."""


class Shared(Protocol[T_co]):
    """A result that a thread sets once; any number of callers may wait for it."""

    def done(self) -> bool:
        """Return whether there is a result."""

    def result(self, within_s: float | None = None) -> T_co:
        """Return the result, or raise the error."""

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once there is a result, from any thread."""


def is_sigterm_unhandled() -> bool:
    """Return whether SIGTERM ends the process at once, and this thread may set a handler."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def end_by_sigterm() -> None:
    """End the process as SIGTERM does without a handler."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
