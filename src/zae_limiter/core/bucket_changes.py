"""Several limits on one baseline: what one write does to each of them, limit by limit.

A take answers with bounds, a settlement with parts: what to do to each balance, and in which range of balances that
is right. Right or wrong is decided by the balance the table holds, not by the one the client saw, so a client that saw
something old is refused and never over-admits. ``schema.bucket_writes`` writes them down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.add_or_set import Bounds, Effort, Spend, guess
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.view import Amounts, View


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

LEAST_MULTIPLIER = 2
"""An item lives for at least this many times the longest time that one of its limits takes to fill."""


def expiry_s(used_ms: int, fill_time_ms: int, multiplier: int) -> int:
    """Return when a bucket that was used at ``used_ms`` may expire, in seconds since the epoch.

    A bucket that is created again starts full, so an item may expire only once it is full. ``fill_time_ms`` is the time
    that its slowest limit takes to fill. ``used_ms`` must not be before the baseline: a limit earns nothing before it,
    so a client whose clock is behind would let the item expire before it is full.
    """
    return (used_ms + multiplier * fill_time_ms) // 1000 + 1


def take(view: View[Any], amounts: Amounts, now: TimeBounds, effort: Effort) -> list[Bounds] | Short | Unsure:
    """Return how a take is written, limit by limit: subtract where it is not full, set where it is.

    A limit of which nothing is taken is left out, so its debt neither rejects the request nor is changed.
    """
    low_ms, high_ms = now
    layout = view.layout
    shared, grids = layout.shared, layout.grids
    shares = shared.shares
    unsharded = shared.shard_count == 1 and low_ms > layout.start_ms
    numbers = view.numbers
    alone = view.pace is None and not effort.yielding
    bounds: list[Bounds] = []
    for position, taken in amounts:
        if not taken:
            continue
        share = shares[position]
        balance = numbers[position]
        capacity = share.capacity_milli
        if unsharded:
            # What ``Baseline.earned`` returns, written out: this is done for every limit of every acquire.
            earned = at_most = low_ms * share.amount_milli // share.period_ms - grids[position]
            if high_ms != low_ms:
                at_most = high_ms * share.amount_milli // share.period_ms - grids[position]
        else:
            baseline = layout.baseline(position)
            earned, at_most = baseline.earned(low_ms), baseline.earned(high_ms)
        if taken > balance + earned or taken > capacity:
            return SHORT
        ceiling = capacity - at_most
        if not alone:
            guessed = guess(view, Spend(position, taken, earned, capacity - ceiling), now, effort)
            if guessed is None:
                return UNSURE
            bounds.append(guessed)
        elif balance <= ceiling:
            bounds.append((position, taken, taken - earned, ceiling, None))
        else:
            # At an unsure time it must be there at the early end, and is charged at the late one.
            bounds.append((position, taken, max(ceiling, taken - earned), None, ceiling - taken))
    return bounds


def solvency(view: View[Any], bounds: Sequence[Bounds], now: TimeBounds) -> Floors | None:
    """Return the floors below which a limit that a take does not touch would owe; None if one does."""
    layout = view.layout
    touched = {bound[0] for bound in bounds}
    floors = []
    for position in range(len(layout.grids)):
        if position not in touched:
            floor = -layout.baseline(position).earned(now[0])
            if view.numbers[position] < floor:
                return None
            floors.append((position, floor))
    return floors


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a lease owes a bucket when it ends, or is given back: debits and credits in millitokens, by limit.

    Only a bucket with the birth number ``birth`` gets the credits. None: the bucket that was charged had no birth
    number, and any bucket gets them.
    """

    debits: tuple[tuple[str, int], ...] = ()
    credits: tuple[tuple[str, int], ...] = ()
    birth: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The limits it speaks of."""
        return tuple(name for name, _ in self.debits + self.credits)

    def credits_reach(self, birth: int | None) -> bool:
        """Say whether a bucket with this birth number gets the credits, if there are any."""
        return not self.credits or self.birth is None or self.birth == birth

    def due(self, birth: int | None) -> "Settlement":
        """Return what a bucket with this birth number is charged or credited.

        Credits for another bucket are left out. Debits and credits of one limit become their difference.
        """
        if not self.credits_reach(birth):
            return Settlement(self.debits)
        if not self.debits or not self.credits:
            return self
        owed = dict(self.debits)
        for name, milli in self.credits:
            owed[name] = owed.get(name, 0) - milli
        debits = tuple((name, milli) for name, milli in owed.items() if milli > 0)
        return Settlement(debits, tuple((name, -milli) for name, milli in owed.items() if milli < 0), self.birth)


@dataclass(slots=True)
class Settling:
    """The parts of a settlement; ``held`` if a debit requires the bucket to be as it was seen.

    ``birth`` is the birth number that credits require, None if they require none.
    """

    parts: list[Part]
    held: bool
    birth: int | None = None


def settle(view: View[Any], settlement: Settlement, now: TimeBounds, tries: int) -> Settling:
    """Return the parts that charge debits and give credits. Limits the bucket no longer has are left out."""
    layout = view.layout
    parts: list[Part] = []
    settlement = settlement.due(layout.birth)
    for name, milli in settlement.debits:
        position = layout.position(name)
        if position is not None:
            parts.append(_debit(view, position, milli, (now[1], tries)))
    held = bool(parts)
    for name, milli in settlement.credits:
        position = layout.position(name)
        if position is not None:
            parts.append(Add(position, -milli, milli, None, None))
    return Settling(parts, held, settlement.birth)


def _debit(view: View[Any], position: int, debt: int, at: tuple[int, int]) -> Part:
    """Return the part of a debit: it always fits, but must not charge an overflow that nobody was owed."""
    now_ms, tries = at
    baseline = view.layout.baseline(position)
    balance = view.numbers[position]
    earned = baseline.earned(now_ms)
    ceiling = baseline.capacity_milli - earned
    if balance <= ceiling:
        return Add(position, debt, -debt, None, ceiling)
    # Refused again and again near the full mark: aim lower, which gives tokens away and is right more widely.
    floor = (baseline.capacity_milli >> tries // 2) - earned if tries > 1 else ceiling + 1
    return Reset(position, debt, min(ceiling, floor) - debt, floor)
