"""Several limits on one baseline: what one write does to each of them, limit by limit.

Every function here answers with *parts*: what to do to each balance, and in which range of balances that is right.
A part is right or wrong by the balance the table holds, not by the one the client saw, so a client that saw something
old is refused and never over-admits. ``schema.bucket_writes`` writes the parts down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.bucket import Baseline, Moment
from zae_limiter.core.expiry import expiry_s
from zae_limiter.core.guess import Bounds, Effort, Spend, guess
from zae_limiter.core.limit import Limit
from zae_limiter.core.sharding import share
from zae_limiter.core.view import Amounts, Frame, Terms, View


@dataclass(slots=True)
class Add:
    """Change a balance by ``change`` if it is from ``low`` to ``high``; None is no bound."""

    position: int
    spent: int
    change: int
    low: int | None
    high: int | None


@dataclass(slots=True)
class Reset:
    """Set a balance if it is at least ``low``."""

    position: int
    spent: int
    balance: int
    low: int
    high: None = None


Part = Add | Reset

Floors = Sequence[tuple[int, int]]
"""Positions of limits, and the balances they must not be below."""


@dataclass(frozen=True, slots=True)
class Short:
    """The view shows too little for the request."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """The view is too old to tell how to write: a look is cheaper than a refused write."""


SHORT = Short()
UNSURE = Unsure()


def take(view: View[Any], amounts: Amounts, now: Moment, effort: Effort) -> list[Bounds] | Short | Unsure:
    """Return how a take is written, limit by limit: subtract where it is not full, set where it is."""
    low_ms, high_ms = now
    frame = view.frame
    baselines = frame.baselines
    unsharded = frame.shard_count == 1 and low_ms > frame.start_ms
    numbers = view.numbers
    alone = view.pace is None and not effort.yielding
    bounds: list[Bounds] = []
    for position, taken in amounts:
        baseline = baselines[position]
        balance = numbers[position]
        capacity = baseline.capacity_milli
        if unsharded:
            # What ``earned`` says, written out: this is done for every limit of every acquire.
            earned = low_ms * baseline.amount_milli // baseline.period_ms - baseline.grid_milli
        else:
            earned = baseline.earned(low_ms)
        if taken > balance + earned or taken > capacity:
            return SHORT
        ceiling = capacity - (earned if high_ms == low_ms else baseline.earned(high_ms))
        if not alone:
            guessed = guess(view, Spend(position, taken, earned, capacity - ceiling), now, effort)
            if guessed is None:
                return UNSURE
            bounds.append(guessed)
        elif balance <= ceiling:
            bounds.append((taken - earned, ceiling, None))
        else:
            # At an unsure time it must be there at the early end, and is charged at the late one.
            bounds.append((max(ceiling, taken - earned), None, ceiling - taken))
    return bounds


def solvency(view: View[Any], amounts: Amounts, now: Moment) -> Floors | None:
    """Return the floors below which a limit that a take does not touch would owe; None if one does."""
    touched = {position for position, _ in amounts}
    floors = []
    for position, baseline in enumerate(view.frame.baselines):
        if position not in touched:
            floor = -baseline.earned(now[0])
            if view.numbers[position] < floor:
                return None
            floors.append((position, floor))
    return floors


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a lease owes a bucket when it ends, or is given back: debits and credits in millitokens, by limit."""

    debits: tuple[tuple[str, int], ...] = ()
    credits: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Settling:
    """The parts of a settlement; ``held`` where a debit depends on the bucket being as it was seen."""

    parts: list[Part]
    held: bool


def settle(view: View[Any], settlement: Settlement, now: Moment, tries: int) -> Settling:
    """Return the parts that charge debits and give credits. Limits the bucket no longer has are left out."""
    frame = view.frame
    parts: list[Part] = []
    for name, milli in settlement.debits:
        position = frame.position(name)
        if position is not None:
            parts.append(_debit(view, position, milli, (now[1], tries)))
    held = bool(parts)
    for name, milli in settlement.credits:
        position = frame.position(name)
        if position is not None:
            parts.append(Add(position, -milli, milli, None, None))
    return Settling(parts, held)


def _debit(view: View[Any], position: int, debt: int, at: tuple[int, int]) -> Part:
    """Return the part of a debit: it always fits, but must not charge an overflow that nobody was owed."""
    now_ms, tries = at
    baseline = view.frame.baselines[position]
    balance = view.numbers[position]
    earned = baseline.earned(now_ms)
    ceiling = baseline.capacity_milli - earned
    if balance <= ceiling:
        return Add(position, debt, -debt, None, ceiling)
    # Refused again and again near the full mark: aim lower, which gives tokens away and is right more widely.
    floor = (baseline.capacity_milli >> min(tries // 2, 62)) - earned if tries > 1 else ceiling + 1
    return Reset(position, debt, min(ceiling, floor) - debt, floor)


@dataclass(slots=True)
class Fresh:
    """A limit that a bucket gets new, with the balance it starts from."""

    baseline: Baseline
    balance: int
    spent: int


@dataclass(slots=True)
class Rebasing:
    """A bucket put on other limits and a new baseline, in one write.

    ``parts`` speak of the limits the bucket had, of which ``dormant`` are no longer in force. ``expires_s`` None: it
    stays.
    """

    terms: Terms
    start_ms: int
    fill_time_ms: int
    expires_s: int | None
    parts: list[Part]
    added: list[Fresh]
    dormant: list[int]


def rebase(view: View[Any], terms: Terms, amounts: Amounts, now: Moment) -> Rebasing | Short:
    """Return the rebase of a bucket to other limits, with a take in the same write, or Short if that cannot be.

    Without amounts it can always be. A level is cut to the smaller of the two capacities, never raised; a limit that
    goes stays, dormant, so that taking it out and putting it back refills nothing, whatever its capacity was meanwhile.
    """
    frame = view.frame
    start_ms = max(now[0], frame.start_ms)
    taken = dict(amounts)
    wanted = {limit.name: (position, limit) for position, limit in enumerate(terms.limits)}
    result = Rebasing(terms, start_ms, _fill_time(frame, terms), _rebased_expiry(view, terms, now), [], [], [])
    solvent = result.expires_s is not None
    for position, baseline in enumerate(frame.baselines):
        earned = baseline.earned(start_ms)
        new = wanted.pop(baseline.name, None)
        if new is None:
            result.dormant.append(position)
        capacity = baseline.capacity_milli
        spent = None
        if new is not None:
            capacity = min(capacity, share(new[1].capacity_milli, frame.shard, frame.shard_count))
            spent = taken.get(new[0])
        part = _moved(view, (position, spent), earned, (capacity, solvent))
        if part is None:
            return SHORT
        result.parts.append(part)
    for position, limit in wanted.values():
        added = Baseline.of(limit, start_ms, frame.shard, frame.shard_count)
        spent = taken.get(position, 0)
        if spent > added.capacity_milli:
            return SHORT
        result.added.append(Fresh(added, added.capacity_milli - spent, spent))
    return result


def _moved(view: View[Any], spend: tuple[int, int | None], earned: int, bounds: tuple[int, bool]) -> Part | None:
    """Return the part that moves a limit to a new baseline and takes from it, None if it holds too little."""
    position, taken = spend
    capacity, solvent = bounds
    balance = view.numbers[position]
    spent = taken or 0
    if taken is not None and taken > min(capacity, balance + earned):
        return None
    if balance > capacity - earned:
        return Reset(position, spent, capacity - spent, capacity - earned + 1)
    # A limit that nothing is taken from may owe, unless the bucket is to expire.
    low = spent - earned if taken is not None or solvent else None
    return Add(position, spent, earned - spent, low, capacity - earned)


def _rebased_expiry(view: View[Any], terms: Terms, now: Moment) -> int | None:
    frame = view.frame
    if not terms.ttl_multiplier or frame.shard_count != 1:
        return None
    for position, baseline in enumerate(frame.baselines):
        if view.numbers[position] + baseline.earned(now[0]) < 0:
            return None
    return expiry_s(now[1], _fill_time(frame, terms), terms.ttl_multiplier)


def _fill_time(frame: Frame, terms: Terms) -> int:
    return max(frame.fill_time_ms, longest_fill_ms(terms.limits))


def longest_fill_ms(limits: Iterable[Limit]) -> int:
    """Return how long the slowest of the limits takes to fill from empty."""
    return max(limit.fill_time_ms for limit in limits)
