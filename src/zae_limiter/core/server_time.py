"""Bound the server's clock by the dates of its responses, as pure values.

Every response carries the second in which it was made. It was made after the call was sent and
before the response was received. So each response bounds how far the server's clock is ahead of a
local monotonic clock. Together they narrow the offset to milliseconds. A local clock may drift, so
bounds widen with their age.

A single response may carry a wrong date. A response that contradicts the known bounds is a suspect.
No decision uses it until a response on another connection agrees with it.
"""

from typing import NamedTuple

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass

_DRIFT = 5_000
"""A local clock gains or loses at most one part in this many (200 ppm)."""

_SLIGHT_MS = 500
"""A contradiction up to this size is accepted without confirmation: hosts of a service differ by milliseconds."""

_ENOUGH_MS = 10
"""Bounds that are at most this far apart need no further reads."""

_STEP_MS = 40
"""Reads that look for the turn of the second are sent this far apart, and closer once one turn was located."""

_ROUNDING_MS = 4
"""The most that the bounds lose to whole milliseconds."""

_MACHINE_MS = 2_000
"""How far the machine's time of day may be from the first response that is accepted without confirmation."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far the server's clock is ahead of the local clock, as a lower and an upper bound.

    Each bound holds at its own local time, ``low_at_ms`` and ``high_at_ms``. It widens with the
    distance from it.
    """

    low_ms: int
    low_at_ms: int
    high_ms: int
    high_at_ms: int

    def at(self, local_ms: int) -> TimeBounds:
        """Return the earliest and the latest possible server time at a local time, given in whole milliseconds."""
        # The ages are negative, and floor division rounds them away from zero. So both bounds are
        # rounded outwards, never inwards.
        low = self.low_ms + (self.low_at_ms - local_ms) // _DRIFT
        high = self.high_ms - (self.high_at_ms - local_ms) // _DRIFT
        # The local time was rounded down, by almost a millisecond at worst.
        return local_ms + low, local_ms + high + 1

    def latest_at(self, local_ms: int) -> int:
        """Return the latest possible server time at a local time, which may be before the last response."""
        return local_ms + self.high_ms + abs(local_ms - self.high_at_ms) // _DRIFT + 2


def offset_of(date_s: int, sent_ms: int, received_ms: int) -> Offset:
    """Return the bounds of one response: the server was in second ``date_s`` between sending and receiving."""
    # Strict on both sides. At one extreme, the response was made at the start of the second and
    # received just before the next local millisecond. At the other, it was made at the end, right
    # after sending.
    return Offset(date_s * 1000 - received_ms - 1, received_ms, date_s * 1000 + 999 - sent_ms, sent_ms)


class Heard(NamedTuple):
    """The bounds of one response, and the number of its connection."""

    offset: Offset
    connection: int


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The known bounds of the server's clock; ``known`` is None until a response is accepted.

    ``suspect`` is a response that contradicts them and that no other connection has confirmed, or
    None.
    """

    known: Offset | None = None
    suspect: Heard | None = None


def machine_offset(now_ms: int, local_ms: int) -> Offset:
    """Return the bounds that the machine's time of day suggests before any response is accepted."""
    ahead_ms = now_ms - local_ms
    return Offset(ahead_ms - _MACHINE_MS, local_ms, ahead_ms + _MACHINE_MS, local_ms)


def judged(before: ServerTime, heard: Heard, machine: Offset) -> ServerTime:
    """Return what is known after one more response.

    A response that agrees with what is known narrows it and clears the suspect. A response that
    contradicts it becomes the suspect. A suspect is accepted once a response on another connection
    agrees with it. While nothing is known, ``machine`` is used for the comparison.
    """
    known, suspect, offset = before.known, before.suspect, heard.offset
    gap_ms = _gap_ms(machine if known is None else known, offset)
    if gap_ms == 0 or (known is not None and gap_ms <= _SLIGHT_MS):
        return ServerTime(narrowed(known, offset))
    if suspect is None or _gap_ms(suspect.offset, offset):
        return ServerTime(known, heard)
    both = narrowed(suspect.offset, offset)
    # One host behind one connection may repeat its wrong date. Only another connection is evidence.
    if heard.connection == suspect.connection:
        return ServerTime(known, suspect._replace(offset=both))
    return ServerTime(both)


def _gap_ms(known: Offset, heard: Offset) -> int:
    """Return the milliseconds between two bounds as of the newer response, 0 if they overlap."""
    now_ms = heard.low_at_ms
    earliest, latest = known.at(now_ms)
    first, last = heard.at(now_ms)
    return max(0, earliest - last, first - latest)


def next_read_ms(known: Offset, local_ms: int, trip_ms: int) -> int | None:
    """Return when to send the next read that locates the turn of the second, None if it is known well enough.

    A response shows whether the second turned before it was made. So reads are spread over the time
    in which it may turn. The two responses on either side of the turn bound it to one step and one
    round trip. Smaller steps bound the next turn, to 10 ms or a little more than two round trips.
    ``trip_ms`` is the duration of a round trip.
    """
    low, high = known.at(local_ms)
    # A read is sent after the response of the one before. So the two reads around a turn bound it
    # to two round trips at best.
    width_ms, enough_ms = high - low, max(_ENOUGH_MS, 2 * trip_ms + _ROUNDING_MS)
    if width_ms <= enough_ms:
        return None
    there_ms = trip_ms // 2
    # The next turn that may still be ahead when a read that is sent now arrives.
    turn_ms = ((low + there_ms) // 1000 + 1) * 1000
    first_ms, last_ms = local_ms + turn_ms - high, local_ms + turn_ms - low
    located = width_ms <= 2 * _STEP_MS + trip_ms
    step_ms = max(enough_ms - trip_ms - _ROUNDING_MS, 0 if located else _STEP_MS)
    return max(local_ms, min(first_ms + step_ms, (first_ms + last_ms) // 2 - there_ms))


def narrowed(known: Offset | None, heard: Offset) -> Offset:
    """Return the intersection of two bounds; if they contradict each other, the newer one."""
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
