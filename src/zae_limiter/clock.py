"""Where the time comes from. Whoever needs it is handed a clock, so that a whole fleet can run in simulated time."""

import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, and a time that never goes back."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed point, never going back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since some fixed point, never going back."""
        return time.monotonic()
