"""The server's clock, as far as its answers bound it: pure values, with both ends kept.

Every answer carries the second in which it was given. It was given after the call was sent and before the answer was
received, so each one bounds how far the server's clock is ahead of a local clock that never goes back; together they
narrow that to milliseconds. A local clock may drift, so a bound is worth less the older it is.
"""

from dataclasses import dataclass

from zae_limiter.core.bucket import Moment

_DRIFT = 5_000
"""A local clock gains or loses at most one part in so many (200 ppm)."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far the server's clock is ahead of the local one: from ``low_ms`` as of one local time to ``high_ms``."""

    low_ms: int
    low_at_ms: int
    high_ms: int
    high_at_ms: int

    def at(self, local_ms: int) -> Moment:
        """Return the earliest and the latest the server's clock may show at a local time, given in whole ms."""
        low = self.low_ms + (self.low_at_ms - local_ms) // _DRIFT
        high = self.high_ms - (self.high_at_ms - local_ms) // _DRIFT
        # The local time may be just short of its next millisecond.
        return local_ms + low, local_ms + high + 1


def offset_of(date_s: int, sent_ms: int, received_ms: int) -> Offset:
    """Return what one answer says: the server's clock was in the second ``date_s`` between sending and receiving."""
    return Offset(date_s * 1000 - received_ms - 1, received_ms, date_s * 1000 + 999 - sent_ms, sent_ms)


def narrowed(known: Offset | None, heard: Offset) -> Offset:
    """Return what is known after one more answer; if it contradicts the others a clock was set, and it alone holds."""
    if known is None:
        return heard
    now_ms = heard.low_at_ms
    earliest, latest = known.at(now_ms)
    first, last = heard.at(now_ms)
    if earliest > last or first > latest:
        return heard
    low = (known.low_ms, known.low_at_ms) if earliest >= first else (heard.low_ms, heard.low_at_ms)
    high = (known.high_ms, known.high_at_ms) if latest <= last else (heard.high_ms, heard.high_at_ms)
    return Offset(*low, *high)
