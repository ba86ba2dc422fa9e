"""Where the time comes from. Whoever needs it is handed a clock, so that a whole fleet can run in simulated time."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from zae_limiter.core.bucket import Moment
from zae_limiter.core.server_time import Offset, narrowed, offset_of


class Clock(Protocol):
    """The time of day, and a time that never goes back."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed point, never going back."""
        ...


def _steady_clock() -> Callable[[], float]:
    """Return a clock that goes on while the machine sleeps, where there is one."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot_time is None else partial(time.clock_gettime, boot_time)


class SystemClock:
    """The machine's clocks."""

    # Not a method of Python's, for it is asked for at every acquire.
    monotonic_s = staticmethod(_steady_clock())

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class ServerClock:
    """A server's clock, as its answers tell it; before the first of them, the machine's."""

    __slots__ = ("_clock", "_monotonic_s", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._offset: Offset | None = None

    @property
    def known(self) -> bool:
        """Whether an answer has told the time."""
        return self._offset is not None

    def now(self) -> Moment:
        """Return the earliest and the latest that the server's clock may show, in milliseconds since the epoch."""
        if self._offset is None:
            now_ms = self._clock.now_ms()
            return now_ms, now_ms
        return self._offset.at(int(self._monotonic_s() * 1000))

    def signing_s(self) -> int:
        """Return the time to sign a request by, in seconds since the epoch."""
        return sum(self.now()) // 2000

    def hear(self, date_s: int | None, sent_s: float, received_s: float) -> None:
        """Learn from an answer that was given at ``date_s``; the other two are by the clock that never goes back."""
        if date_s is not None:
            self._offset = narrowed(self._offset, offset_of(date_s, int(sent_s * 1000), int(received_s * 1000)))
