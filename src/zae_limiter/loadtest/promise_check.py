"""Check whether the promise of a limiter held in a load test. Pure.

The time at which a call changed the table is known only to the duration of the call. So every
count has two forms: what the table must have seen by a time, and what it may have seen. Each bound
is checked with the form that favours the limiter. A limiter that keeps its promise always passes.

Two things are checked for each limit:

- **Never too much.** In every window, the net amount is at most the capacity plus the refill.
- **Never too little.** A *stretch* is a time in which the limit rejects again and again, so that
  its bucket is never full and no refill is lost. In a stretch, at least 98 % of the refill is
  admitted.

Limits of concurrent use are left out: the counts do not say when a slot is returned.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from zae_limiter.core.limit import Limit
from zae_limiter.loadtest.measurements import BIN_S, Bin, LimitKey, LimitTally

LEAST_SHARE = 0.98
"""The promised share of the refill that is admitted under demand."""
DEADLINE_S = 1.0
"""The default deadline of an acquire. A write in flight acts like a clock that is slow by its time in flight."""
MOST_UNCERTAIN = 0.03
"""A stretch is judged if its share is known this well. Then a loss of 5 % is always noticed."""
LEAST_REQUESTS = 5
"""The lower bound is promised if the capacity is at least this many requests."""
_ROUNDING_S = 0.002
"""The limiter counts time in whole milliseconds."""
_VIEWS_S = 1.0
"""A client may reject by a view of this age, in which the charges of others are missing."""


class Verdict(StrEnum):
    """What the check found about one limit."""

    HELD = "held"
    EXCEEDED = "exceeded"
    UNDERUSED = "underused"


class DemandState(StrEnum):
    """Whether the lower bound could be judged, and why not."""

    JUDGED = "judged"
    NO_REJECTIONS = "no rejections"
    SMALL_CAPACITY = "small capacity"
    TOO_SHORT = "too short"
    UNKNOWN_LIMIT = "unknown limit"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Environment:
    """How exact times are: the difference between the clocks of machines, and the deadline of an acquire.

    ``is_complete`` is False if calls are missing, because a process that made them was lost. Then
    too little may seem to be admitted, so the lower bound is not judged.
    """

    clock_spread_s: float = 0.0
    deadline_s: float = DEADLINE_S
    is_complete: bool = True


ONE_MACHINE = Environment()


@dataclass(frozen=True, slots=True)
class WorstWindow:
    """The window in which the limit came closest to its bound; tokens admitted and allowed in it."""

    start_s: float
    end_s: float
    admitted: int
    allowed: float

    @property
    def excess(self) -> float:
        """The tokens above the bound; negative if the bound was kept."""
        return self.admitted - self.allowed


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which the limit rejected again and again.

    ``share`` is the admitted part of the refill, as well as it is known: it is between ``least``
    and ``most``.
    """

    start_s: float
    end_s: float
    share: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """What the check found about one limit; ``limit`` is the largest one that was in force, None if unknown.

    ``stretch`` is the one that decided, None if there was none. ``admitted`` is the net amount of
    the whole test, and ``offered`` the capacity plus the refill of that time.
    """

    key: LimitKey
    limit: Limit | None
    verdict: Verdict
    demand: DemandState
    admitted: int
    offered: float
    requested: int
    rejections: int
    window: WorstWindow | None = None
    stretch: Stretch | None = None


def check_limits(
    tallies: Iterable[LimitTally], shards: dict[tuple[str, str], int], environment: Environment = ONE_MACHINE
) -> list[LimitVerdict]:
    """Return the verdict about every limit, the worst first, then those with most rejections.

    ``shards`` are the largest shard counts that were seen, by entity and resource. Limits of concurrent use have no
    verdict.
    """
    order = [Verdict.EXCEEDED, Verdict.UNDERUSED, Verdict.HELD]
    found = [
        check_limit(tally, shards.get(tally.key[:2], 1), environment) for tally in tallies if not counts_slots(tally)
    ]
    return sorted(found, key=lambda one: (order.index(one.verdict), -one.rejections, one.key))


def counts_slots(tally: LimitTally) -> bool:
    """Return whether a limit was one of concurrent use at any time of the test."""
    return any(limit.is_concurrent for limit in tally.limits)


def check_limit(tally: LimitTally, shard_count: int = 1, environment: Environment = ONE_MACHINE) -> LimitVerdict:
    """Return the verdict about one limit."""
    admitted = tally.taken + tally.charged - tally.given_back
    facts = (admitted, 0.0, tally.requested, tally.rejections)
    if not tally.limits or not tally.bins:
        return LimitVerdict(tally.key, None, Verdict.HELD, DemandState.UNKNOWN_LIMIT, *facts)
    limit = max(tally.limits, key=lambda one: (one.capacity, one.refill_rate))
    window = worst_window(tally, environment)
    state, stretch = judge_demand(tally, shard_count, environment)
    verdict = Verdict.HELD
    if window is not None and window.excess > 0:
        verdict = Verdict.EXCEEDED
    elif stretch is not None and stretch.most < LEAST_SHARE:
        verdict = Verdict.UNDERUSED
    offered = limit.capacity + limit.refill_rate * (max(tally.bins) + 1 - min(tally.bins)) * BIN_S
    return LimitVerdict(
        tally.key, limit, verdict, state, admitted, offered, tally.requested, tally.rejections, window, stretch
    )


def worst_window(tally: LimitTally, environment: Environment = ONE_MACHINE) -> WorstWindow | None:
    """Return the window with the largest excess over all windows; None if nothing was taken.

    The excess in the window from ``a`` to ``b`` is a difference of a value at ``b`` and a value at
    ``a``. So one pass with the smallest value so far finds the largest.
    """
    counts = _Counts(tally)
    refill = max(limit.refill_rate for limit in tally.limits) * BIN_S
    slack_s = min(tally.longest_s, environment.deadline_s) + environment.clock_spread_s + _ROUNDING_S
    capacity = max(limit.capacity for limit in tally.limits) + refill * slack_s / BIN_S
    # Before the first bin nothing was taken.
    start = counts.numbers[0]
    lowest, worst = -refill * start, None
    for number in counts.numbers:
        begun = counts.begun.before(number) - counts.credited.before(number)
        if begun - refill * number < lowest:
            start, lowest = number, begun - refill * number
        quickest_ms = tally.bins[number].quickest_take_ms
        if quickest_ms is None:
            continue
        # A charge may exceed the level. It counts if it was written before the take that ends the window.
        charged = counts.charged.before(math.floor(number - quickest_ms / 1000 / BIN_S))
        end = number + 1
        admitted = counts.taken.before(end) + charged - counts.credits_begun.before(end)
        net = admitted - counts.begun.before(start) + counts.credited.before(start)
        window = WorstWindow(start * BIN_S, end * BIN_S, net, capacity + refill * (end - start))
        if worst is None or window.excess > worst.excess:
            worst = window
    return worst


def judge_demand(
    tally: LimitTally, shard_count: int = 1, environment: Environment = ONE_MACHINE
) -> tuple[DemandState, Stretch | None]:
    """Return the stretch that decides about the lower bound, and whether it is known well enough."""
    capacity = min(limit.capacity for limit in tally.limits)
    if not environment.is_complete:
        return DemandState.INCOMPLETE, None
    if not tally.rejections:
        return DemandState.NO_REJECTIONS, None
    if capacity < LEAST_REQUESTS * tally.largest_request:
        return DemandState.SMALL_CAPACITY, None
    counts = _Counts(tally)
    found = [_measure(tally, counts, bins, shard_count) for bins in _stretches(tally, counts, environment)]
    judged = [one for one in found if one is not None and _is_judged(one)]
    if not judged:
        return DemandState.TOO_SHORT, None
    return DemandState.JUDGED, min(judged, key=lambda one: one.most)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A rejection: the bin of its end, and the bins between whose edges the limit was found too low."""

    number: int
    early: float
    late: float


class _Cumulated:
    """A count over time."""

    def __init__(self, numbers: Sequence[int], counts: Iterable[int]) -> None:
        self._numbers = numbers
        self._sums = [0, *accumulate(counts)]

    def before(self, number: float) -> int:
        """Return the count of all bins before this one."""
        return self._sums[bisect_left(self._numbers, number)]


class _Counts:
    """The counts of a limit over time."""

    def __init__(self, tally: LimitTally) -> None:
        self.numbers = sorted(tally.bins)
        bins: list[Bin] = [tally.bins[number] for number in self.numbers]
        self.taken = _Cumulated(self.numbers, (one.taken for one in bins))
        self.charged = _Cumulated(self.numbers, (one.charged for one in bins))
        self.begun = _Cumulated(self.numbers, (one.takes_begun + one.charges_begun for one in bins))
        self.credits_begun = _Cumulated(self.numbers, (one.credits_begun for one in bins))
        self.credited = _Cumulated(self.numbers, (one.credited for one in bins))

    def done(self, by: float) -> int:
        """Return what was certainly taken and charged by a time, in bins."""
        return self.taken.before(math.floor(by)) + self.charged.before(math.floor(by))

    def most_net(self, start: _Anchor, end: _Anchor) -> int:
        """Return the largest net amount that the table may have seen from one rejection to another."""
        credited = self.credited.before(math.floor(end.early)) - self.credits_begun.before(math.ceil(start.late))
        return self.begun.before(math.ceil(end.late)) - self.done(start.early) - credited

    def least_net(self, start: _Anchor, end: _Anchor) -> int:
        """Return the smallest net amount that the table must have seen from one rejection to another."""
        credited = self.credits_begun.before(math.ceil(end.late)) - self.credited.before(math.floor(start.early))
        return self.done(end.early) - self.begun.before(math.ceil(start.late)) - credited

    def uncertain(self, at: _Anchor) -> int:
        """Return the tokens of which it is unknown whether they were counted before a rejection."""
        credited = self.credits_begun.before(math.ceil(at.late)) - self.credited.before(math.floor(at.early))
        return self.begun.before(math.ceil(at.late)) - self.done(at.early) + credited


def _anchors(tally: LimitTally, environment: Environment) -> list[_Anchor]:
    found = []
    for number in sorted(tally.bins):
        quickest_ms = tally.bins[number].quickest_rejection_ms
        if quickest_ms is not None:
            spread = environment.clock_spread_s / BIN_S
            found.append(_Anchor(number, number - quickest_ms / 1000 / BIN_S - spread, number + 1 + spread))
    return found


def _stretches(tally: LimitTally, counts: _Counts, environment: Environment) -> list[list[_Anchor]]:
    """Return runs of rejections between which the bucket cannot have been full."""
    refill = max(limit.refill_rate for limit in tally.limits) * BIN_S
    room = min(limit.capacity for limit in tally.limits) - tally.largest_request
    runs: list[list[_Anchor]] = []
    for anchor in _anchors(tally, environment):
        if runs:
            last = runs[-1][-1]
            credited = counts.credits_begun.before(math.ceil(anchor.late)) - counts.credited.before(
                math.floor(last.early)
            )
            if refill * (anchor.late - last.early) + credited <= room:
                runs[-1].append(anchor)
                continue
        runs.append([anchor])
    return runs


def _measure(tally: LimitTally, counts: _Counts, run: Sequence[_Anchor], shard_count: int) -> Stretch | None:
    """Return the share of the refill that was admitted in a run of rejections; None if the run is too short."""
    start, end = _best_ends(tally, counts, run)
    if end.early <= start.late:
        return None
    slowest, fastest = (choose(limit.refill_rate for limit in tally.limits) * BIN_S for choose in (min, max))
    least_supply, most_supply = slowest * (end.early - start.late), fastest * (end.late - start.early)
    # At the end up to one request is left, on each shard. A debt at the start is repaid first. A call that failed may
    # have taken its tokens.
    unused = tally.largest_request * (shard_count + tally.failures) + _debt(tally, run, start)
    most = (counts.most_net(start, end) + unused) / least_supply
    least = counts.least_net(start, end) / most_supply
    share = min(most, max(least, _middle_share(counts, start, end, (slowest + fastest) / 2)))
    return Stretch(start.number * BIN_S, (end.number + 1) * BIN_S, share, least, most)


def _middle_share(counts: _Counts, start: _Anchor, end: _Anchor, refill: float) -> float:
    net = (counts.most_net(start, end) + counts.least_net(start, end)) / 2
    return net / (refill * (end.number - start.number))


def _best_ends(tally: LimitTally, counts: _Counts, run: Sequence[_Anchor]) -> tuple[_Anchor, _Anchor]:
    """Return two rejections of a run, one early and one late, near which the net amount is known best.

    Where many calls end in the bin of a rejection, it is unknown which of them came before it.
    """
    refill = max(limit.refill_rate for limit in tally.limits) * BIN_S
    first, last = run[0].number, run[-1].number
    quarter = (last - first) / 4

    def uncertainty(anchor: _Anchor) -> float:
        return counts.uncertain(anchor) + refill * (anchor.late - anchor.early)

    start = min((anchor for anchor in run if anchor.number <= first + quarter), key=uncertainty)
    end = min((anchor for anchor in reversed(run) if anchor.number >= last - quarter), key=uncertainty)
    return start, end


def _debt(tally: LimitTally, run: Sequence[_Anchor], start: _Anchor) -> int:
    """Return the largest debt that was seen at the start of a stretch."""
    until = start.number + _VIEWS_S / BIN_S
    seen = [anchor.number for anchor in run if start.number <= anchor.number <= until]
    levels = [tally.bins[number].lowest_level for number in seen]
    return max(0, -min((level for level in levels if level is not None), default=0))


def _is_judged(stretch: Stretch) -> bool:
    """Return whether a loss of 5 % would be noticed, or was."""
    return stretch.most < LEAST_SHARE or stretch.most - stretch.least <= MOST_UNCERTAIN
