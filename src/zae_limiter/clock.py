"""Where the time comes from. Whoever needs it is handed a clock, so that a whole fleet can run in simulated time."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.server_time import Heard, ServerTime, judged, machine_offset, next_read_ms, offset_of

_KNOWN_WELL_MS = 10
_LISTEN_EVERY_S = 0.05
_SIGN_FOR_S = 0.5
_FAR_MS = 500
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
    """The server's clock as its responses show it; before the first accepted response, the machine's clock."""

    __slots__ = (
        "_clock",
        "_hear_at_s",
        "_monotonic_s",
        "_refused",
        "_sign_until_s",
        "_signing_s",
        "_time",
        "suspicious",
        "unconfirmed",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._time = ServerTime()
        self._hear_at_s = self._sign_until_s = 0.0
        self._signing_s = 0
        self._refused = False
        # Attributes and no properties: every write reads them.
        self.suspicious = False
        """Whether a response contradicts what is known, and no other connection has confirmed it."""
        self.unconfirmed = False
        """Whether responses have come, and none of them can be trusted yet: nothing may be written."""

    @property
    def known(self) -> bool:
        """Whether a response has shown the time."""
        return self._time.known is not None

    def forget(self) -> None:
        """Forget the time, because the local clocks have jumped: in a restored image the steady one stood still.

        Nothing may be written before a response shows the time again. A server that never showed it is left alone.
        """
        self.unconfirmed = self._time.known is not None or self.unconfirmed
        self._time = ServerTime()
        self._hear_at_s = self._sign_until_s = 0.0
        self._refused = self.suspicious = False

    def now(self) -> TimeBounds:
        """Return the earliest and the latest that the server's clock may show, in milliseconds since the epoch."""
        known = self._time.known
        if known is None:
            now_ms = self._clock.now_ms()
            return now_ms, now_ms
        return known.at(int(self._monotonic_s() * 1000))

    def latest_ms(self, local_s: float) -> int | None:
        """Return the latest the server's clock may have shown at a time of the clock that never goes back.

        None if no response has shown the time.
        """
        known = self._time.known
        return None if known is None else known.latest_at(int(local_s * 1000))

    def next_read_s(self, trip_s: float) -> float | None:
        """Return when to send the next read that narrows the time, by the clock that never goes back.

        None if it is known well enough, or not at all. ``trip_s`` is how long a read takes there and back.
        """
        known = self._time.known
        if known is None:
            return None
        at_ms = next_read_ms(known, int(self._monotonic_s() * 1000), int(trip_s * 1000))
        return None if at_ms is None else at_ms / 1000

    def signing_s(self) -> int:
        """Return the time to sign a request by, in seconds since the epoch; it may be some minutes off."""
        now_s = self._monotonic_s()
        if now_s >= self._sign_until_s:
            suspect = self._time.suspect
            by_suspect = self._refused and suspect is not None
            bounds = suspect.offset.at(int(now_s * 1000)) if by_suspect and suspect is not None else self.now()
            self._signing_s = sum(bounds) // 2000
            self._sign_until_s = now_s + _SIGN_FOR_S
        return self._signing_s

    def sign_by_suspect(self) -> None:
        """Sign by the suspect's time from now on, because a request was refused for its time.

        A wrong signature time only causes another refusal, and that one shows the time again.
        """
        self._refused = True
        self._sign_until_s = 0.0

    def hear(self, date_s: int | None, sent_s: float, received_s: float, connection: int = 0) -> None:
        """Learn from a response dated ``date_s``; the times are by the clock that never goes back.

        ``connection`` is the number of the connection that it came on.
        """
        if date_s is None or (received_s < self._hear_at_s and abs(date_s - self._signing_s) <= _NOTHING_NEW_S):
            return
        before, received_ms = self._time, int(received_s * 1000)
        heard = Heard(offset_of(date_s, int(sent_s * 1000), received_ms), connection)
        machine = machine_offset(self._clock.now_ms(), received_ms)
        self._time = after = judged(before, heard, machine)
        known, suspect = after.known, after.suspect
        self.suspicious = suspect is not None
        self.unconfirmed = suspect is not None and known is None
        if suspect is None:
            self._refused = False
        if known is None:
            self._hear_at_s = 0.0
            return
        if before.known is None or before.suspect is not suspect or abs(known.low_ms - before.known.low_ms) > _FAR_MS:
            self._sign_until_s = 0.0
        low, high = known.at(received_ms)
        # Where it is known well, one response in a while is enough, except one that shows a clock that was set.
        well = suspect is None and high - low <= _KNOWN_WELL_MS
        self._hear_at_s = received_s + _LISTEN_EVERY_S if well else 0.0
