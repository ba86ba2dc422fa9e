"""Decide what one write does to each limit of a bucket.

A take returns bounds, a settlement returns parts. Both say what to do to each balance, and in which
range of balances that is right. The table checks the range against the balance it stores, not the
one that the client saw. So a client with an old view is refused and never admits too much.
``schema.bucket_writes`` turns the result into an update.
"""

from collections.abc import Sequence
from typing import Any

from zae_limiter.core.add_or_set import Add, Bounds, Effort, Part, Reset, Spend, guess
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.slots import SlotRelease
from zae_limiter.core.tracked import Refund, settle_tracked, summed_refunds
from zae_limiter.core.view import Amounts, View

Floors = Sequence[tuple[int, int]]
"""Positions of limits, and the lowest balance that each may have."""


@dataclass(frozen=True, slots=True)
class Short:
    """The view shows too few tokens for the request."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """The view is too old to choose a form of the write. A read is cheaper than a refused write."""


SHORT = Short()
UNSURE = Unsure()

LEAST_MULTIPLIER = 2
"""An item lives for at least this many times the longest time that one of its limits takes to fill."""


def expiry_s(used_ms: int, fill_time_ms: int, multiplier: int) -> int:
    """Return when a bucket that was used at ``used_ms`` may expire, in seconds since the epoch.

    A bucket that is created again starts full, so an item may expire only once it is full. ``fill_time_ms`` is the time
    that its slowest limit takes to fill. ``used_ms`` must not be before the baseline, because a limit earns nothing
    before it. A client whose clock is behind would let the item expire before it is full.
    """
    return (used_ms + multiplier * fill_time_ms) // 1000 + 1


def take(view: View[Any], amounts: Amounts, now: TimeBounds, effort: Effort) -> list[Bounds] | Short | Unsure:
    """Return how a take is written, limit by limit: subtract if the limit is not full, set if it is.

    A limit of which nothing is taken is left out. So its debt does not reject the request, and
    stays as it is.
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
            # The same as ``Baseline.earned``, inlined because it runs for every limit of every acquire.
            earned = at_most = low_ms * share.amount_milli // share.period_ms - grids[position]
            if high_ms != low_ms:
                at_most = high_ms * share.amount_milli // share.period_ms - grids[position]
        else:
            baseline = layout.baseline(position)
            earned, at_most = baseline.earned(low_ms), baseline.earned(high_ms)
        # Two times, each on the strict side: there must be enough at the earliest time, and no overflow at the latest.
        # ``ceiling`` is the balance at which the limit is exactly full at the latest time.
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
            # The limit is full and overflows. Subtracting would keep the overflow, so the write
            # sets the balance. The floor refuses it if another client has cut the overflow
            # meanwhile.
            bounds.append((position, taken, max(ceiling, taken - earned), None, ceiling - taken))
    return bounds


def solvency(view: View[Any], bounds: Sequence[Bounds], now: TimeBounds) -> Floors | None:
    """Return the lowest balance without debt of each limit that a take leaves out, None if one is in debt."""
    layout = view.layout
    touched = {bound[0] for bound in bounds}
    floors = []
    for position in range(len(layout.grids)):
        # Slots are never owed. Their balance may be negative after the capacity was lowered. The debt of a quota ends
        # with its period, and an item lives longer than that.
        if position not in touched and position not in layout.shared.slots and position not in layout.shared.quotas:
            floor = -layout.baseline(position).earned(now[0])
            if view.numbers[position] < floor:
                return None
            floors.append((position, floor))
    return floors


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a lease owes a bucket at its end, or on a rollback: debits and credits in millitokens, by limit.

    Only a bucket with the birth number ``birth`` gets the credits. If ``birth`` is None, any bucket
    gets them, because the bucket that was charged had no birth number. ``releases`` are slots that
    are returned to ``shard``, and ``refunds`` what is given back to its quotas and soft rate limits.
    If there are any, all of it is settled with that shard.
    """

    debits: tuple[tuple[str, int], ...] = ()
    credits: tuple[tuple[str, int], ...] = ()
    birth: int | None = None
    releases: tuple[SlotRelease, ...] = ()
    shard: int = 0
    refunds: tuple[Refund, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the limits that are debited or credited."""
        return tuple(name for name, _ in self.debits + self.credits)

    @property
    def is_bound(self) -> bool:
        """Whether it is settled with the shard that was charged."""
        return bool(self.releases or self.refunds)

    def credits_reach(self, birth: int | None) -> bool:
        """Return whether a bucket with this birth number gets the credits; True if there are none."""
        return not (self.credits or self.refunds) or self.birth is None or self.birth == birth

    def due(self, birth: int | None) -> "Settlement":
        """Return what a bucket with this birth number is charged or credited.

        Credits for another bucket are left out. Debits and credits of one limit become their
        difference.
        """
        # Hazard: netting against a bucket that replaced the charged one would hide a debit behind a
        # credit that this bucket must not get.
        if not self.credits_reach(birth):
            return Settlement(self.debits)
        if not self.debits or not self.credits:
            return self
        owed = dict(self.debits)
        for name, milli in self.credits:
            owed[name] = owed.get(name, 0) - milli
        debits = tuple((name, milli) for name, milli in owed.items() if milli > 0)
        credits = tuple((name, -milli) for name, milli in owed.items() if milli < 0)
        return Settlement(debits, credits, self.birth, self.releases, self.shard, self.refunds)


def summed(settlements: Sequence[Settlement]) -> Settlement:
    """Return the sum of settlements, which have the same birth number, and the same shard if they are bound to it."""
    debits: dict[str, int] = {}
    credits: dict[str, int] = {}
    releases: dict[tuple[str, int], int] = {}
    for settlement in settlements:
        for name, milli in settlement.debits:
            debits[name] = debits.get(name, 0) + milli
        for name, milli in settlement.credits:
            credits[name] = credits.get(name, 0) + milli
        for name, end_s, milli in settlement.releases:
            releases[name, end_s] = releases.get((name, end_s), 0) + milli
    released = tuple([SlotRelease(name, end_s, milli) for (name, end_s), milli in releases.items()])
    first = settlements[0]
    refunds = summed_refunds([refund for settlement in settlements for refund in settlement.refunds])
    return Settlement(tuple(debits.items()), tuple(credits.items()), first.birth, released, first.shard, refunds)


@dataclass(slots=True)
class Settling:
    """The parts of a settlement. ``held`` is True if a debit requires the bucket to be as it was seen.

    ``birth`` is the birth number that credits and releases require, None if they require none.
    """

    parts: list[Part]
    held: bool
    birth: int | None = None
    releases: tuple[SlotRelease, ...] = ()


def settle(view: View[Any], settlement: Settlement, now: TimeBounds, tries: int) -> Settling:
    """Return the parts that charge debits and give credits. Limits that the bucket no longer has are left out."""
    layout = view.layout
    parts: list[Part] = []
    settlement = settlement.due(layout.birth)
    tracked = layout.shared.tracked
    for name, milli in settlement.debits:
        position = layout.position(name)
        if position is None or position in layout.shared.slots:
            # Slots are never owed. A limit that had another kind at the time of the take has slots now.
            continue
        if tracked and position in tracked:
            back = [refund for refund in settlement.refunds if refund.name == name]
            parts.append(settle_tracked(view, position, milli, back, now))
        else:
            parts.append(_debit(view, position, milli, (now[1], tries)))
    held = bool(parts)
    if settlement.refunds:
        parts += _refunds(view, settlement, now)
    for name, milli in settlement.credits:
        position = layout.position(name)
        # Hazard: the limit may have been removed and added again with another kind, whose balance means another thing.
        if position is not None and position not in layout.shared.slots and position not in layout.shared.quotas:
            # A credit needs no bounds: adding commutes with every other write, and the next take
            # cuts off what is above the capacity.
            parts.append(Add(position, -milli, milli, None, None))
    return Settling(parts, held, settlement.birth, settlement.releases)


def _refunds(view: View[Any], settlement: Settlement, now: TimeBounds) -> list[Part]:
    """Return the parts that give back to quotas and soft rate limits which are not charged in the same write."""
    charged = {name for name, _ in settlement.debits}
    found: dict[str, list[Refund]] = {}
    for refund in settlement.refunds:
        if refund.name not in charged:
            found.setdefault(refund.name, []).append(refund)
    positions = [(view.layout.position(name), refunds) for name, refunds in found.items()]
    slots = view.layout.shared.slots
    return [
        settle_tracked(view, at, 0, refunds, now) for at, refunds in positions if at is not None and at not in slots
    ]


def _debit(view: View[Any], position: int, debt: int, at: tuple[int, int]) -> Part:
    """Return the part of a debit. It may leave a debt, but must not be paid from an overflow."""
    now_ms, tries = at
    baseline = view.layout.baseline(position)
    balance = view.numbers[position]
    earned = baseline.earned(now_ms)
    ceiling = baseline.capacity_milli - earned
    if balance <= ceiling:
        return Add(position, debt, -debt, None, ceiling)
    # After repeated refusals near the full level, halve the target on every second try. That gives
    # tokens away, but a lower floor is refused less often.
    floor = (baseline.capacity_milli >> tries // 2) - earned if tries > 1 else ceiling + 1
    return Reset(position, debt, min(ceiling, floor) - debt, floor)
