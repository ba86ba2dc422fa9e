"""Values that a load test measures. Every process has its own; they are merged and sent as JSON.

Times are seconds of the Unix epoch by the clock of the process that measures. Durations are
milliseconds.
"""

import math
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, Self

from zae_limiter.core.limit import Limit

BIN_S = 0.1
"""Takes are counted in bins of this many seconds."""
MOST_LIMITS = 64
"""The number of limits that are counted one by one, so that memory and JSON stay small with any number of entities."""
_GROWTH = 1.01
"""A bin of durations is 1 % wide, so a percentile is wrong by at most 1 %."""
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST_MS = 0.001


@dataclass
class Latencies:
    """Counts of durations by their size."""

    counts: Counter[int] = field(default_factory=Counter)
    longest_ms: float = 0.0

    @property
    def count(self) -> int:
        """The number of durations."""
        return self.counts.total()

    def add(self, duration_ms: float) -> None:
        """Count a duration."""
        self.add_sized(size_of(duration_ms), duration_ms)

    def add_sized(self, size: int, duration_ms: float) -> None:
        """Count a duration whose size is known."""
        counts = self.counts
        counts[size] = counts.get(size, 0) + 1
        if duration_ms > self.longest_ms:
            self.longest_ms = duration_ms

    def percentile_ms(self, share: float) -> float | None:
        """Return the duration that this share of all durations does not exceed; None if there are none."""
        wanted, seen = share * self.count, 0
        for size in sorted(self.counts):
            seen += self.counts[size]
            if seen >= wanted:
                return min(self.longest_ms, _GROWTH**size)
        return None

    def merge(self, other: Self) -> None:
        """Add the durations of another process."""
        self.counts.update(other.counts)
        self.longest_ms = max(self.longest_ms, other.longest_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        return {"counts": {str(size): count for size, count in self.counts.items()}, "longest_ms": self.longest_ms}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the durations of `to_dict`."""
        return cls(Counter({int(size): count for size, count in data["counts"].items()}), data["longest_ms"])


def size_of(duration_ms: float) -> int:
    """Return the number of the bin of a duration."""
    return math.ceil(math.log(duration_ms if duration_ms > _SMALLEST_MS else _SMALLEST_MS) / _LOG_GROWTH)


def lower(one: int | None, other: int | None) -> int | None:
    """Return the lower of two values; None is no value."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def bin_number(at_s: float) -> int:
    """Return the number of the bin of a time."""
    return int(at_s / BIN_S)


class LimitKey(NamedTuple):
    """One limit of one bucket."""

    entity_id: str
    resource: str
    limit_name: str


Rank = tuple[bool, int, LimitKey]


def rank_of(key: LimitKey, *, is_ancestor: bool) -> Rank:
    """Return the order in which limits are kept: shared parents first, then by a hash, so that all processes agree."""
    return not is_ancestor, zlib.crc32(f"{key.entity_id}\n{key.resource}".encode()), key


@dataclass
class Bin:
    """What happened to one limit within `BIN_S` seconds, in tokens.

    A take, a charge and a credit each count twice: when the call began, and when it ended. The
    table was changed in between. The quickest calls that ended in this bin show best when the
    table decided; they are None if there were none. So is the lowest level that a rejection found.
    """

    takes_begun: int = 0
    taken: int = 0
    charges_begun: int = 0
    charged: int = 0
    credits_begun: int = 0
    credited: int = 0
    quickest_take_ms: int | None = None
    quickest_rejection_ms: int | None = None
    lowest_level: int | None = None

    def end_take(self, amount: int, duration_ms: float) -> None:
        """Count a take that ended here."""
        self.taken += amount
        if self.quickest_take_ms is None or duration_ms < self.quickest_take_ms - 1:
            self.quickest_take_ms = math.ceil(duration_ms)

    def merge(self, other: Self) -> None:
        """Add the counts of another process."""
        self.takes_begun += other.takes_begun
        self.taken += other.taken
        self.charges_begun += other.charges_begun
        self.charged += other.charged
        self.credits_begun += other.credits_begun
        self.credited += other.credited
        self.quickest_take_ms = lower(self.quickest_take_ms, other.quickest_take_ms)
        self.quickest_rejection_ms = lower(self.quickest_rejection_ms, other.quickest_rejection_ms)
        self.lowest_level = lower(self.lowest_level, other.lowest_level)


@dataclass
class LimitTally:
    """What happened to one limit of one bucket.

    ``limits`` are all values of the limit that were seen. ``failures`` are acquires that ended in
    an error, so that it is unknown whether they took anything. ``longest_s`` is the duration of the
    longest admitted acquire, from the time it was sent.
    """

    key: LimitKey
    is_ancestor: bool = False
    limits: set[Limit] = field(default_factory=set)
    requested: int = 0
    taken: int = 0
    charged: int = 0
    given_back: int = 0
    rejections: int = 0
    failures: int = 0
    largest_request: int = 0
    largest_charge: int = 0
    longest_s: float = 0.0
    bins: dict[int, Bin] = field(default_factory=dict)

    @property
    def rank(self) -> Rank:
        """The rank by which it is kept or left out."""
        return rank_of(self.key, is_ancestor=self.is_ancestor)

    def bin_at(self, at_s: float) -> Bin:
        """Return the bin of a time."""
        number = bin_number(at_s)
        found = self.bins.get(number)
        if found is None:
            found = self.bins[number] = Bin()
        return found

    def take(self, amount: int, began_s: float, ended_s: float) -> None:
        """Count tokens that an acquire took."""
        # Called for every acquire, so comparisons are written out.
        self.taken += amount
        self.requested += amount
        if amount > self.largest_request:
            self.largest_request = amount
        duration_s = ended_s - began_s
        if duration_s > self.longest_s:
            self.longest_s = duration_s
        found = self.bin_at(ended_s)
        found.end_take(amount, duration_s * 1000)
        first = found if bin_number(began_s) == bin_number(ended_s) else self.bin_at(began_s)
        first.takes_begun += amount

    def settle(self, change: int, began_s: float, ended_s: float) -> None:
        """Count a charge, or a credit if negative."""
        if change > 0:
            self.charged += change
            self.largest_charge = max(self.largest_charge, change)
            self.bin_at(began_s).charges_begun += change
            self.bin_at(ended_s).charged += change
        else:
            self.given_back -= change
            self.bin_at(began_s).credits_begun -= change
            self.bin_at(ended_s).credited -= change

    def reject(self, amount: int, level: int, began_s: float, ended_s: float) -> None:
        """Count a rejection by this limit, which had this many tokens."""
        self.requested += amount
        self.rejections += 1
        self.largest_request = max(self.largest_request, amount)
        found = self.bin_at(ended_s)
        found.quickest_rejection_ms = lower(found.quickest_rejection_ms, math.ceil((ended_s - began_s) * 1000))
        found.lowest_level = lower(found.lowest_level, level)

    def merge(self, other: Self) -> None:
        """Add the counts of another process."""
        self.is_ancestor |= other.is_ancestor
        self.limits |= other.limits
        self.requested += other.requested
        self.taken += other.taken
        self.charged += other.charged
        self.given_back += other.given_back
        self.rejections += other.rejections
        self.failures += other.failures
        self.largest_request = max(self.largest_request, other.largest_request)
        self.largest_charge = max(self.largest_charge, other.largest_charge)
        self.longest_s = max(self.longest_s, other.longest_s)
        for number, found in other.bins.items():
            self.bins.setdefault(number, Bin()).merge(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        plain = {name: getattr(self, name) for name in _PLAIN_OF_TALLY}
        limits = sorted((limit.to_dict() for limit in self.limits), key=lambda limit: tuple(map(str, limit.values())))
        bins = [[number, *astuple(self.bins[number])] for number in sorted(self.bins)]
        return {"key": list(self.key), "limits": limits, **plain, "bins": bins}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the counts of `to_dict`."""
        return cls(
            key=LimitKey(*data["key"]),
            limits={Limit.from_dict(limit) for limit in data["limits"]},
            bins={number: Bin(*counts) for number, *counts in data["bins"]},
            **{name: data[name] for name in _PLAIN_OF_TALLY},
        )


_PLAIN_OF_TALLY = (
    "is_ancestor", "requested", "taken", "charged", "given_back", "rejections", "failures", "largest_request",
    "largest_charge", "longest_s",
)  # fmt: skip


@dataclass
class Second:
    """The calls that ended in one second, and how long the admitted ones took."""

    admitted: int = 0
    rejected: int = 0
    errors: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def admit(self, size: int, duration_ms: float) -> None:
        """Count an admitted call whose latency has this size."""
        self.admitted += 1
        self.latencies.add_sized(size, duration_ms)

    def merge(self, other: Self) -> None:
        """Add the calls of another process."""
        self.admitted += other.admitted
        self.rejected += other.rejected
        self.errors += other.errors
        self.latencies.merge(other.latencies)


@dataclass
class Measurements:
    """Everything that a load test measures.

    ``started_s`` and ``ended_s`` are the start of the first call and the end of the last; None if
    there was no call. ``latencies`` are by request type. ``scheduled`` is the number of acquires
    whose latency counts from the time they were scheduled for. ``never`` are the rejections of
    requests above a capacity. ``unsent`` are the calls that a driver could not send in time.
    ``degraded`` are the calls that were admitted without limiting.
    ``shards`` are counts by bucket and second. ``limits_left_out`` is True if there were more than
    `MOST_LIMITS` limits.
    """

    started_s: float | None = None
    ended_s: float | None = None
    latencies: dict[str, Latencies] = field(default_factory=dict)
    scheduled: int = 0
    admitted: int = 0
    rejected: int = 0
    never: int = 0
    unsent: int = 0
    degraded: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    error_examples: dict[str, str] = field(default_factory=dict)
    seconds: dict[int, Second] = field(default_factory=dict)
    read_units: float = 0.0
    write_units: float = 0.0
    index_write_units: float = 0.0
    refused_write_units: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    throttles: Counter[str] = field(default_factory=Counter)
    shards: dict[str, dict[int, int]] = field(default_factory=dict)
    limits: dict[LimitKey, LimitTally] = field(default_factory=dict)
    limits_left_out: bool = False
    _last_rank: Rank | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def duration_s(self) -> float:
        """The seconds from the start of the first call to the end of the last."""
        return 0.0 if self.started_s is None or self.ended_s is None else self.ended_s - self.started_s

    @property
    def attempts(self) -> int:
        """The number of acquires: admitted, rejected and failed."""
        return self.admitted + self.rejected + sum(second.errors for second in self.seconds.values())

    def second_at(self, at_s: float) -> Second:
        """Return the calls of the second of a time."""
        number = int(at_s)
        found = self.seconds.get(number)
        if found is None:
            found = self.seconds[number] = Second()
        return found

    def latencies_of(self, request_type: str) -> Latencies:
        """Return the latencies of a request type."""
        found = self.latencies.get(request_type)
        if found is None:
            found = self.latencies[request_type] = Latencies()
        return found

    def admit(self, began_s: float, ended_s: float) -> None:
        """Count an admitted acquire and its latency."""
        self.admitted += 1
        duration_ms = (ended_s - began_s) * 1000
        size = size_of(duration_ms)
        self.include(began_s, ended_s)
        self.latencies_of("ACQUIRE").add_sized(size, duration_ms)
        self.second_at(ended_s).admit(size, duration_ms)

    def include(self, began_s: float, ended_s: float) -> None:
        """Extend the measured time to a call."""
        if self.started_s is None or began_s < self.started_s:
            self.started_s = began_s
        if self.ended_s is None or ended_s > self.ended_s:
            self.ended_s = ended_s

    def tally_of(self, key: LimitKey, *, is_ancestor: bool) -> LimitTally | None:
        """Return the tally of a limit; None if the limit is one of those left out."""
        found = self.limits.get(key)
        if found is not None:
            return found
        if self._last_rank is not None and rank_of(key, is_ancestor=is_ancestor) > self._last_rank:
            self.limits_left_out = True
            return None
        found = self.limits[key] = LimitTally(key, is_ancestor)
        self._leave_out_last()
        return found

    def merge(self, other: Self) -> None:
        """Add the measurements of another process, or of a later time."""
        if other.started_s is not None and other.ended_s is not None:
            self.include(other.started_s, other.ended_s)
        self._add_sums(other)
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.error_examples = other.error_examples | self.error_examples
        for kind, latencies in other.latencies.items():
            self.latencies.setdefault(kind, Latencies()).merge(latencies)
        for number, second in other.seconds.items():
            self.seconds.setdefault(number, Second()).merge(second)
        for bucket, counts in other.shards.items():
            mine = self.shards.setdefault(bucket, {})
            mine.update({second: max(count, mine.get(second, 0)) for second, count in counts.items()})
        for key, tally in other.limits.items():
            self.limits.setdefault(key, LimitTally(key)).merge(tally)
        self.limits_left_out |= other.limits_left_out
        self._leave_out_last()

    def _add_sums(self, other: Self) -> None:
        self.scheduled += other.scheduled
        self.admitted += other.admitted
        self.rejected += other.rejected
        self.never += other.never
        self.unsent += other.unsent
        self.degraded += other.degraded
        self.read_units += other.read_units
        self.write_units += other.write_units
        self.index_write_units += other.index_write_units
        self.refused_write_units += other.refused_write_units

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            **{name: getattr(self, name) for name in ("started_s", "ended_s", *_SUMS, "limits_left_out")},
            **{name: dict(getattr(self, name)) for name in (*_COUNTERS, "error_examples")},
            "latencies": {kind: latencies.to_dict() for kind, latencies in self.latencies.items()},
            "seconds": [
                [number, one.admitted, one.rejected, one.errors, one.latencies.to_dict()]
                for number, one in sorted(self.seconds.items())
            ],
            "shards": {bucket: sorted(counts.items()) for bucket, counts in self.shards.items()},
            "limits": [tally.to_dict() for tally in self.limits.values()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the measurements of `to_dict`."""
        plain = {name: data[name] for name in ("started_s", "ended_s", *_SUMS, "limits_left_out", "error_examples")}
        counters: dict[str, Any] = {name: Counter(data[name]) for name in _COUNTERS}
        return cls(
            **plain,
            **counters,
            latencies={kind: Latencies.from_dict(found) for kind, found in data["latencies"].items()},
            seconds={
                number: Second(admitted, rejected, errors, Latencies.from_dict(latencies))
                for number, admitted, rejected, errors, latencies in data["seconds"]
            },
            shards={bucket: dict(counts) for bucket, counts in data["shards"].items()},
            limits={tally.key: tally for tally in map(LimitTally.from_dict, data["limits"])},
        )

    def _leave_out_last(self) -> None:
        """Leave out the limits beyond `MOST_LIMITS`, by their rank.

        A limit that is kept in the end was never left out before, in any process. The limits that
        precede it are the same everywhere, or fewer.
        """
        if len(self.limits) < MOST_LIMITS:
            return
        kept = sorted(self.limits.values(), key=lambda tally: tally.rank)[:MOST_LIMITS]
        self._last_rank = kept[-1].rank
        if len(kept) < len(self.limits):
            self.limits = {tally.key: tally for tally in kept}
            self.limits_left_out = True


_SUMS = (
    "scheduled", "admitted", "rejected", "never", "unsent", "degraded",
    "read_units", "write_units", "index_write_units", "refused_write_units",
)  # fmt: skip
_COUNTERS = ("errors", "calls", "throttles")
