"""Clocks: the machine's, and the server's as its responses show it.

Code that needs the time gets a clock as an argument. So tests can run many clients in simulated time.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.server_time import Heard, ServerTime, judged, machine_offset, next_read_ms, offset_of

_KNOWN_WELL_MS = 10
"""The server's time counts as well known if its bounds are at most this many milliseconds apart."""

_LISTEN_EVERY_S = 0.05
"""If the time is well known, one response in this many seconds is evaluated."""

_SIGN_FOR_S = 0.5
"""The signing time is computed again after this many seconds."""

_FAR_MS = 500
"""If the known time moves by more than this many milliseconds, the signing time is computed again immediately."""

_NOTHING_NEW_S = 2
"""A response dated within this many seconds of the signing time may be skipped."""


class Clock(Protocol):
    """The time of day, and a monotonic time."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary fixed point; the value never decreases."""
        ...


def _steady_clock() -> Callable[[], float]:
    """Return a monotonic clock that also counts the time a machine is suspended, if the system has one."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot_time is None else partial(time.clock_gettime, boot_time)


class SystemClock:
    """The machine's clocks."""

    # A callable written in C and not a Python method, because every acquire calls it.
    monotonic_s = staticmethod(_steady_clock())
    """Return the seconds since an arbitrary fixed point; on Linux they include the time a machine was suspended."""

    def now_ms(self) -> int:
        """Return the time of day, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"


class ServerClock:
    """The server's clock as its responses show it; the machine's clock until a response is accepted."""

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
        # Attributes and not properties, because every write reads them.
        self.suspicious = False
        """Whether a response contradicts the known time and no other connection has confirmed that response."""
        self.unconfirmed = False
        """Whether no response is trusted, though one came or the time was forgotten. While True, nothing is written."""

    @property
    def known(self) -> bool:
        """Whether a response that shows the time was accepted."""
        return self._time.known is not None

    def forget(self) -> None:
        """Forget the server's time, because the local clocks may have jumped.

        The monotonic clock of a restored image did not count the time since its snapshot. Nothing is written until a
        response shows the time again. If no response ever showed it, writes continue by the machine's clock.
        """
        self.unconfirmed = self._time.known is not None or self.unconfirmed
        self._time = ServerTime()
        self._hear_at_s = self._sign_until_s = 0.0
        self._refused = self.suspicious = False

    def now(self) -> TimeBounds:
        """Return the earliest and the latest time the server's clock may show, in milliseconds since the epoch."""
        known = self._time.known
        if known is None:
            now_ms = self._clock.now_ms()
            return now_ms, now_ms
        return known.at(int(self._monotonic_s() * 1000))

    def latest_ms(self, local_s: float) -> int | None:
        """Return the latest time the server's clock may have shown at ``local_s`` of the monotonic clock.

        None if no response has shown the time.
        """
        known = self._time.known
        return None if known is None else known.latest_at(int(local_s * 1000))

    def next_read_s(self, trip_s: float) -> float | None:
        """Return when to send the next read that narrows the server's time, by the monotonic clock.

        None if the time is known well enough, or not at all. ``trip_s`` is the duration of a round trip.
        """
        known = self._time.known
        if known is None:
            return None
        at_ms = next_read_ms(known, int(self._monotonic_s() * 1000), int(trip_s * 1000))
        return None if at_ms is None else at_ms / 1000

    def signing_s(self) -> int:
        """Return the time to put into a signature, in seconds since the epoch; AWS tolerates an error of minutes."""
        now_s = self._monotonic_s()
        if now_s >= self._sign_until_s:
            suspect = self._time.suspect
            by_suspect = self._refused and suspect is not None
            bounds = suspect.offset.at(int(now_s * 1000)) if by_suspect and suspect is not None else self.now()
            self._signing_s = sum(bounds) // 2000
            self._sign_until_s = now_s + _SIGN_FOR_S
        return self._signing_s

    def sign_by_suspect(self) -> None:
        """Sign with the time of the suspicious response, because a request was refused for its signing time.

        The risk is small. A wrong signing time causes another refusal, and that response shows the time again.
        """
        self._refused = True
        self._sign_until_s = 0.0

    def hear(self, date_s: int | None, sent_s: float, received_s: float, connection: int = 0) -> None:
        """Update the server's time from a response dated ``date_s``, sent and received by the monotonic clock.

        ``connection`` is the number of the connection that carried the response. ``date_s`` is None if it has no date.
        """
        # A date far from the signing time is never skipped: the server's clock may have been set.
        if date_s is None or (received_s < self._hear_at_s and abs(date_s - self._signing_s) <= _NOTHING_NEW_S):
            return
        before, received_ms = self._time, int(received_s * 1000)
        heard = Heard(offset_of(date_s, int(sent_s * 1000), received_ms), connection)
        # The machine's time is not used once the server's is known, so it is not read then.
        machine = before.known or machine_offset(self._clock.now_ms(), received_ms)
        self._time = after = judged(before, heard, machine)
        known, suspect = after.known, after.suspect
        self.suspicious = suspect is not None
        self.unconfirmed = suspect is not None and known is None
        if suspect is None:
            self._refused = False
        if known is None:
            self._hear_at_s = 0.0
            return
        # The cached signing time is dropped if the time became known or has jumped, or if the suspect has changed.
        if before.known is None or before.suspect is not suspect or abs(known.low_ms - before.known.low_ms) > _FAR_MS:
            self._sign_until_s = 0.0
        low, high = known.at(received_ms)
        # Evaluating every response costs time. If the bounds are narrow, the next one is evaluated after a pause.
        well = suspect is None and high - low <= _KNOWN_WELL_MS
        self._hear_at_s = received_s + _LISTEN_EVERY_S if well else 0.0
