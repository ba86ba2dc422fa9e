"""Where the time comes from. Whoever needs it is handed a clock, so that a whole fleet can run in simulated time."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from zae_limiter.core.bucket import Moment
from zae_limiter.core.server_time import Offset, narrowed, offset_of

_KNOWN_WELL_MS = 10
_LISTEN_EVERY_S = 0.05
_SIGN_FOR_S = 0.5
_NOTHING_NEW_S = 2
"""How far a date may be from the time that requests are signed by and still say nothing new."""


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
    """Return seconds since some fixed point, never going back; a machine's sleep counts where it is told of."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class ServerClock:
    """A server's clock, as its answers tell it; before the first of them, the machine's."""

    __slots__ = ("_clock", "_hear_at_s", "_monotonic_s", "_offset", "_sign_until_s", "_signing_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._offset: Offset | None = None
        self._hear_at_s = self._sign_until_s = 0.0
        self._signing_s = 0

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
        """Return the time to sign a request by, in seconds since the epoch; it is taken for some minutes off."""
        now_s = self._monotonic_s()
        if now_s >= self._sign_until_s:
            self._signing_s = sum(self.now()) // 2000
            self._sign_until_s = now_s + _SIGN_FOR_S
        return self._signing_s

    def hear(self, date_s: int | None, sent_s: float, received_s: float) -> None:
        """Learn from an answer that was given at ``date_s``; the other two are by the clock that never goes back."""
        if date_s is None or (received_s < self._hear_at_s and abs(date_s - self._signing_s) <= _NOTHING_NEW_S):
            return
        known = self._offset
        self._offset = narrowed(known, offset_of(date_s, int(sent_s * 1000), int(received_s * 1000)))
        if known is None or abs(self._offset.low_ms - known.low_ms) > _SIGN_FOR_S * 1000:
            self._sign_until_s = 0.0
        low, high = self._offset.at(int(received_s * 1000))
        # Where it is known well, one answer in a while is enough, but for one that tells of a clock that was set.
        self._hear_at_s = received_s + _LISTEN_EVERY_S if high - low <= _KNOWN_WELL_MS else 0.0
