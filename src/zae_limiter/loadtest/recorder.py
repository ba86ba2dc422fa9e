"""Count what a driver's calls do. The native driver and the Locust session share this code."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.core.errors import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.status import LimitStatus
from zae_limiter.loadtest.measurements import LimitKey, LimitTally, Measurements

ACQUIRE = "ACQUIRE"
RATE_LIMITED = "RATE_LIMITED"
COMMIT = "COMMIT"
_LIMITS_FOR_S = 1.0
"""The limits in force are looked at again after this many seconds."""
_LONGEST_EXAMPLE = 300
_MOST_KNOWN = 100_000


class HeldOfBucket(Protocol):
    """What a lease holds of one bucket."""

    @property
    def entity_id(self) -> str:
        """The entity."""

    @property
    def resource(self) -> str:
        """The resource."""

    @property
    def consumed(self) -> dict[str, int]:
        """The amounts by limit."""


class RecordedLease(Protocol):
    """What the recorder reads of a lease, async or sync."""

    @property
    def entity_id(self) -> str:
        """The entity."""

    @property
    def resource(self) -> str:
        """The resource."""

    @property
    def degraded(self) -> bool:
        """Whether the request was allowed without limiting."""

    @property
    def entries(self) -> Iterable[HeldOfBucket]:
        """What the lease holds of each bucket, the entity's first."""

    @property
    def statuses(self) -> Iterable[LimitStatus]:
        """Every limit of every bucket, with its limits in force."""


class Recorder:
    """Counts calls of one process. Threads and greenlets may share it.

    Times are seconds of the Unix epoch. A call whose ``sent_s`` is given was scheduled for
    ``began_s`` but sent later: its latency counts from ``began_s``.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begin()

    def now_s(self) -> float:
        """Return the time by the clock of this recorder."""
        return self._clock()

    def admitted(
        self,
        lease: RecordedLease,
        consume: Mapping[str, int],
        began_s: float,
        ended_s: float,
        sent_s: float | None = None,
    ) -> None:
        """Count an acquire that was admitted, with what it took of each bucket."""
        with self._lock:
            measured = self._measured
            measured.admit(began_s, ended_s)
            if sent_s is not None:
                measured.scheduled += 1
                began_s = sent_s
            for name, tally in self._taken_from(lease, consume, ended_s):
                tally.take(consume[name], began_s, ended_s)

    def rejected(self, error: RateLimitExceeded, began_s: float, ended_s: float, sent_s: float | None = None) -> None:
        """Count an acquire that was rejected, and the limits that rejected it."""
        with self._lock:
            measured = self._measured
            measured.rejected += 1
            measured.never += error.never
            self._time(RATE_LIMITED, began_s, ended_s, sent_s)
            measured.second_at(ended_s).rejected += 1
            own = error.statuses[0].entity_id if error.statuses else None
            for status in error.statuses:
                key = LimitKey(status.entity_id, status.resource, status.limit_name)
                tally = self._tally(key, is_ancestor=status.entity_id != own) if status.requested else None
                if tally is None:
                    continue
                tally.limits.add(status.limit)
                if status.rejects and not error.never:
                    tally.reject(status.requested, status.available, began_s if sent_s is None else sent_s, ended_s)

    def settled(self, lease: RecordedLease, change: Mapping[str, int], began_s: float, ended_s: float) -> None:
        """Count what a lease wrote when it ended: charges, and credits if negative."""
        with self._lock:
            self._time(COMMIT, began_s, ended_s)
            for number, entry in enumerate(lease.entries):
                for name in entry.consumed:
                    if change.get(name):
                        tally = self._tally(LimitKey(entry.entity_id, entry.resource, name), is_ancestor=number > 0)
                        if tally is not None:
                            tally.settle(change[name], began_s, ended_s)

    def failed(
        self, request_type: str, error: BaseException, began_s: float, ended_s: float, sent_s: float | None = None
    ) -> None:
        """Count a call that ended in an error."""
        with self._lock:
            measured = self._measured
            kind = f"{request_type} {type(error).__name__}"
            measured.errors[kind] += 1
            measured.error_examples.setdefault(kind, str(error)[:_LONGEST_EXAMPLE])
            self._time(request_type, began_s, ended_s, sent_s)
            if request_type != ACQUIRE:
                return
            measured.second_at(ended_s).errors += 1
            if isinstance(error, RateLimiterUnavailable):
                # The take may have been written, in this bucket and in those above it.
                for key, tally in measured.limits.items():
                    if tally.is_ancestor or key[:2] == (error.entity_id, error.resource):
                        tally.failures += 1

    def timed(self, request_type: str, began_s: float, ended_s: float) -> None:
        """Count a call that neither takes nor gives back."""
        with self._lock:
            self._time(request_type, began_s, ended_s)

    def consumed(self, action: str, read_units: float, write_units: float, index_write_units: float) -> None:
        """Count a DynamoDB call and the capacity that it consumed."""
        with self._lock:
            measured = self._measured
            measured.calls[action] += 1
            measured.read_units += read_units
            measured.write_units += write_units
            measured.index_write_units += index_write_units

    def refused_write(self, action: str, units: int) -> None:
        """Count a write whose condition failed: DynamoDB bills these units, but does not report them."""
        with self._lock:
            self._measured.calls[action] += 1
            self._measured.refused_write_units += units

    def throttled(self, action: str, reasons: Iterable[str]) -> None:
        """Count a call that DynamoDB did not carry out, with the reasons if it was throttled."""
        with self._lock:
            self._measured.calls[action] += 1
            self._measured.throttles.update(reasons)

    def sharded(self, entity_id: str, resource: str, count: int) -> None:
        """Note the number of shards that a bucket has now."""
        with self._lock:
            self._measured.shards.setdefault(f"{entity_id} {resource}", {})[int(self._clock())] = count

    def so_far(self) -> tuple[int, int, int]:
        """Return the acquires that were admitted, rejected and failed since the measurements were last taken."""
        measured = self._measured
        return measured.admitted, measured.rejected, measured.errors.total()

    def take_measurements(self) -> Measurements:
        """Return what was measured since the last call of this method, and begin again."""
        with self._lock:
            measured = self._measured
            self._begin()
        return measured

    def _begin(self) -> None:
        self._measured = Measurements()
        self._taken: dict[tuple[str, ...], _TakenFrom] = {}

    def _time(self, request_type: str, began_s: float, ended_s: float, sent_s: float | None = None) -> None:
        self._measured.include(began_s, ended_s)
        self._measured.latencies_of(request_type).add((ended_s - began_s) * 1000)
        self._measured.scheduled += sent_s is not None

    def _tally(self, key: LimitKey, *, is_ancestor: bool) -> LimitTally | None:
        return self._measured.limits.get(key) or self._measured.tally_of(key, is_ancestor=is_ancestor)

    def _taken_from(self, lease: RecordedLease, consume: Mapping[str, int], at_s: float) -> "Sequence[NamedTally]":
        """Return the tallies of the limits that an acquire took from, as they were found less than a second ago."""
        kind = (lease.entity_id, lease.resource, *consume)
        known = self._taken.get(kind)
        if lease.degraded:
            self._measured.degraded += 1
            return ()
        if known is None or at_s >= known.until_s:
            if len(self._taken) >= _MOST_KNOWN:
                self._taken.clear()
            known = self._taken[kind] = _TakenFrom(self._find_tallies(lease, consume), at_s + _LIMITS_FOR_S)
        return known.tallies

    def _find_tallies(self, lease: RecordedLease, consume: Mapping[str, int]) -> "list[NamedTally]":
        """Return the tallies of the limits that an acquire took from, and note the limits in force."""
        found = []
        for number, entry in enumerate(lease.entries):
            for name in entry.consumed:
                if name not in consume:
                    # A bucket also holds limits of which the call takes nothing.
                    continue
                tally = self._tally(LimitKey(entry.entity_id, entry.resource, name), is_ancestor=number > 0)
                if tally is not None:
                    found.append((name, tally))
        for status in lease.statuses if found else ():
            tally = self._measured.limits.get(LimitKey(status.entity_id, status.resource, status.limit_name))
            if tally is not None:
                tally.limits.add(status.limit)
        return found


NamedTally = tuple[str, LimitTally]
"""The name of a limit, and its tally."""


class _TakenFrom(NamedTuple):
    """The tallies of the limits that a kind of acquire takes from, and until when they need not be found again."""

    tallies: Sequence[NamedTally]
    until_s: float
