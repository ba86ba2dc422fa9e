"""Decide what one write does to a calendar quota: an amount that becomes available at each edge of a schedule.

A quota stores ``qk``: the amount spent, in a *band* of numbers that belongs to one *epoch*. A later
epoch has a lower band, so a number proves its epoch. The start of an epoch needs no write. If
``qk`` is in an older band, nothing of the new epoch is spent, and the quota is full.

Epochs count half seconds since 1970. An even epoch is an edge of the calendar at ``epoch // 2``
seconds. An odd one is an action, such as a reset or a change of the schedule.

Each function is one row of the writer table. It returns what to add or to set, and the lowest and
the highest stored ``qk`` for which this is right; both are included. The table checks the range
against what it stores, so a client with an old view is refused and never admits too much.
"""

from collections.abc import Iterable, Mapping, Sequence

from zae_limiter.core.calendar import CalendarSchedule, period_at
from zae_limiter.core.lazy_dataclass import dataclass

BAND = 10**18
"""The width of a band."""

HALF_BAND = BAND // 2
"""What one epoch may record as spent at most, plus one."""

MOST_SPENT = HALF_BAND - 1
"""A quota that has recorded this much is *saturated*: its balance stays there until the epoch ends."""

LAST_EPOCH = 10**10
"""A number of a later epoch is damaged: it is after 2128, and has more digits than some tables add exactly."""


@dataclass(slots=True)
class QuotaAdd:
    """Add ``change`` to ``qk`` if it is between ``low`` and ``high``, both included."""

    change: int
    low: int
    high: int


@dataclass(slots=True)
class QuotaSet:
    """Set ``qk`` if it is between ``low`` and ``high``, both included; a ``high`` of None is no bound."""

    qk: int
    low: int
    high: int | None = None


QuotaWrite = QuotaAdd | QuotaSet


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota of one shard, as a client sees it at a time.

    Attributes:
        qk: The stored number, as last seen.
        epoch: The epoch that a write is charged to, from ``current_epoch``.
        capacity: The shard's share of the amount.
        tolerance: The difference of epochs that counts as one edge (``CalendarSchedule.tolerance``).
    """

    qk: int
    epoch: int
    capacity: int
    tolerance: int

    @property
    def is_current(self) -> bool:
        """Whether something was written in the epoch. If not, the quota is full."""
        return epoch_of(self.qk) == self.epoch

    @property
    def full(self) -> int:
        """The ``qk`` of the epoch with nothing spent."""
        return -BAND * self.epoch

    @property
    def least(self) -> int:
        """The lowest ``qk`` of the epoch: the quota is saturated."""
        return self.full - MOST_SPENT

    @property
    def spent(self) -> int:
        """The amount spent in the epoch."""
        return self.full - self.qk if self.is_current else 0

    @property
    def level(self) -> int:
        """The amount available; a negative level is debt."""
        return self.capacity - self.spent

    @property
    def level_milli(self) -> int:
        """The amount available, in thousandths like the levels of other limits."""
        return self.level * 1000

    @property
    def least_of_older(self) -> int:
        """The lowest ``qk`` that surely belongs to an older epoch than ``epoch``.

        A band within the tolerance may be the same edge, as a client with other time zone data computes it. Only the
        band that was seen is known not to be.
        """
        newest = max(self.epoch - self.tolerance, epoch_of(self.qk))
        return -BAND * newest - HALF_BAND + 1


# Epochs.


def epoch_of(qk: int) -> int:
    """Return the epoch of a stored number."""
    return (HALF_BAND - qk) // BAND


def known_s(low_s: int, numbers: Iterable[int]) -> int:
    """Return the latest time that has surely come: ``low_s``, or the edge that one of the stored numbers proves.

    ``low_s`` is the earliest second that it may be. A number in the band of an edge was written by a client that knew
    that the edge had come. An odd band proves nothing, because an action is dated by the latest possible time.
    """
    for qk in numbers:
        epoch = epoch_of(qk)
        if not epoch % 2 and epoch // 2 > low_s:
            low_s = epoch // 2
    return low_s


def current_epoch(qk: int, begin_s: int, tolerance: int) -> int:
    """Return the epoch that a write is charged to. ``begin_s`` is the edge of the period at ``known_s``.

    A band that is a little older than the edge is the same edge, computed with other time zone data.
    """
    band, edge = epoch_of(qk), 2 * begin_s
    return band if band >= edge or (not band % 2 and edge - band < tolerance) else edge


def action_epoch(at_s: int, after: int) -> int:
    """Return the epoch of an action in second ``at_s``: odd, and later than ``after``."""
    return max(2 * at_s + 1, after + 1 + after % 2)


def view_at(qk: int, capacity: int, schedule: CalendarSchedule, low_s: int, others: Iterable[int] = ()) -> QuotaView:
    """Return the view of a quota. ``low_s`` is the earliest second that it may be.

    ``others`` are the stored numbers of other shards that the same write uses.
    """
    begin_s, _ = period_at(schedule, known_s(low_s, (qk, *others)))
    tolerance = schedule.tolerance
    return QuotaView(qk, current_epoch(qk, begin_s, tolerance), capacity, tolerance)


def renews_s(view: QuotaView, schedule: CalendarSchedule, low_s: int) -> int:
    """Return the second at which the quota is full again: the next edge after its epoch."""
    # Hazard: from ``low_s`` on, this would visit each edge before an epoch that is far in the future.
    _, edge_s = period_at(schedule, max(low_s, view.epoch // 2))
    while current_epoch(-BAND * view.epoch, edge_s, view.tolerance) == view.epoch:
        # The bucket has taken this edge already, by other time zone data.
        _, edge_s = period_at(schedule, edge_s)
    return edge_s


# Takes and settlements.


def take(view: QuotaView, taken: int, reserve: int = 0) -> QuotaWrite | None:
    """Return how an amount is taken, None if the view has too little.

    ``reserve`` must remain after the take: the shard's share of what requests of this priority must leave to others.
    """
    return take_and_settle(view, taken, 0, 0, reserve)


def take_and_settle(view: QuotaView, taken: int, debit: int, credit: int, reserve: int = 0) -> QuotaWrite | None:
    """Return how a settlement and then a take are written as one, None if the view has too little.

    It is also the sum of a group. ``credit`` are credits of takes that were charged to ``view.epoch``. Leave out those
    of older epochs, because they have ended.
    """
    spent = taken + debit
    if spent + reserve > view.level + credit or spent + reserve > view.capacity:
        return None
    if not view.is_current:
        # Nothing of the epoch is known to be spent, so nothing of it can be given back.
        return QuotaSet(view.full - spent, view.least_of_older) if not credit else None
    return QuotaAdd(credit - spent, view.full - view.capacity + spent + reserve - credit, view.full - credit)


def debit(view: QuotaView, debit: int) -> QuotaWrite:
    """Return how an amount is charged without asking, which may leave a debt. A soft take is written like this.

    A quota that would be charged more than a band can hold becomes saturated.
    """
    if not view.is_current:
        return QuotaSet(view.full - debit, view.least_of_older)
    if view.qk - debit < view.least:
        return QuotaSet(view.least, view.least, view.least + debit - 1)
    return QuotaAdd(-debit, view.least + debit, view.full)


def debit_and_credit(view: QuotaView, debited: int, credit: int) -> QuotaWrite | None:
    """Return how debits, soft takes and credits of ``view.epoch`` are charged as one; None: write them separately."""
    if not credit:
        return debit(view, debited)
    if not view.is_current or view.qk - debited < view.least + 1:
        return None
    return QuotaAdd(credit - debited, view.least + 1 + debited, view.full - credit)


def credit(charged_epoch: int, credit: int) -> QuotaAdd:
    """Return how an amount is given back that was charged to an epoch; refused if that epoch has ended.

    A saturated quota has lost count, so it gives nothing back.
    """
    full = -BAND * charged_epoch
    return QuotaAdd(credit, full - MOST_SPENT + 1, full - credit)


def share_credit(
    charged: Mapping[tuple[int, int], int], given: int, numbers: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return what is given back to each shard: the epoch, and the amount.

    ``charged`` are the amounts of a lease by shard and epoch, and ``numbers`` is what each shard has stored. The newest
    epoch comes first, and in it the shard that was charged. What does not fit there goes to other shards of the epoch.
    What was charged to an epoch that no shard is in any more is lost.
    """
    found: dict[int, tuple[int, int]] = {}
    left = given
    for epoch in sorted({epoch for _, epoch in charged}, reverse=True):
        full = -BAND * epoch
        room = {shard: full - qk for shard, qk in numbers.items() if full - MOST_SPENT < qk <= full}
        own = {shard: amount for (shard, of), amount in charged.items() if of == epoch}
        due = min(left, sum(own.values()))
        left -= due
        order = sorted(room, key=lambda shard: -room[shard])
        for shard, most in [*own.items(), *((shard, due) for shard in order)]:
            _, before = found.get(shard, (epoch, 0))
            amount = min(due, most, room.get(shard, 0) - before)
            if amount > 0:
                found[shard] = epoch, before + amount
                due -= amount
    return found


# Writers of the whole bucket.


def created(begin_s: int, taken: int) -> int:
    """Return the ``qk`` of a new quota. ``begin_s`` is the edge of the period at the latest time that it may be."""
    return -BAND * 2 * begin_s - taken


def rebase_schedule(view: QuotaView, taken: int | None, capacity: int, high_s: int) -> QuotaWrite | None:
    """Return how a quota changes to another schedule, and how an amount is taken from it; None if it has too little.

    The amount that was spent stays spent until an edge of the new schedule. ``capacity`` is the share of the new
    amount, and ``high_s`` the latest second that it may be. ``taken`` is None if the request does not name the limit.
    A change of the amount alone needs no write: ``take`` with the new share is all.
    """
    spent = taken or 0
    if taken is not None and taken > capacity - view.spent:
        return None
    epoch = action_epoch(high_s, view.epoch)
    if not view.is_current:
        return QuotaSet(-BAND * epoch - spent, view.least_of_older)
    low = view.least if taken is None else view.full - capacity + spent
    return QuotaAdd(-BAND * (epoch - view.epoch) - spent, low, view.full)


def rebase_soft(view: QuotaView, taken: int, high_s: int) -> QuotaWrite:
    """Return how a soft quota changes to another schedule, and is charged an amount."""
    epoch = action_epoch(high_s, view.epoch)
    if not view.is_current:
        return QuotaSet(-BAND * epoch - taken, view.least_of_older)
    if view.qk - taken < view.least:
        return QuotaSet(-BAND * epoch - MOST_SPENT, view.least, view.least + taken - 1)
    return QuotaAdd(-BAND * (epoch - view.epoch) - taken, view.least + taken, view.full)


def least_to_drop(view: QuotaView) -> int | None:
    """Return the lowest ``qk`` with which a removed quota may be dropped; None if it must stay, dormant.

    It stays while its epoch lasts, so that removing and adding a limit is no refill.
    """
    return None if view.is_current else view.least_of_older


@dataclass(slots=True)
class QuotaSplit:
    """A split: the ``qk`` of the new shard, and the write of the old one."""

    new_qk: int
    old_write: QuotaWrite


def split(view: QuotaView, capacity: int) -> QuotaSplit | None:
    """Return how a quota is split; ``capacity`` is the share of the new shard. None if the quota is saturated."""
    half = max(0, view.level) // 2
    new_qk = view.full + half - capacity
    if not view.is_current:
        return QuotaSplit(new_qk, QuotaSet(view.full - half + capacity, view.least_of_older))
    if view.qk <= view.least:
        return None
    if view.level < 0:
        # The whole debt stays with the old shard, so it must be exactly the debt that was seen.
        return QuotaSplit(new_qk, QuotaAdd(capacity - half, view.qk, view.qk))
    # What is left must fit the share that is left. A credit since the view was seen may exceed it.
    high = view.full - capacity + half
    return QuotaSplit(new_qk, QuotaAdd(capacity - half, view.full - view.capacity + half, high))


@dataclass(slots=True)
class QuotaMerge:
    """A merge: the write of the shard that stays, and the bounds of the one that is deleted; None is no bound."""

    staying_write: QuotaWrite
    low: int
    high: int | None


def merge(staying: QuotaView, leaving: QuotaView) -> QuotaMerge | None:
    """Return how two shards become one, in the later of their epochs. None if the result would be saturated."""
    epoch = max(staying.epoch, leaving.epoch)
    if staying.spent + leaving.spent >= MOST_SPENT:
        return None
    full = -BAND * epoch
    write: QuotaWrite
    if staying.is_current:
        low = staying.least + 1 + leaving.spent
        write = QuotaAdd(full - staying.full - leaving.spent, low, staying.full)
    else:
        write = QuotaSet(full - leaving.spent, staying.least_of_older)
    if leaving.is_current:
        # It is deleted, so what it had spent must be what is brought over.
        return QuotaMerge(write, leaving.qk, leaving.qk)
    return QuotaMerge(write, leaving.least_of_older, None)


def reset(views: Sequence[QuotaView], low_s: int, period: tuple[int, int]) -> list[QuotaSet]:
    """Return how an operator makes a quota full on all of its shards, in one transaction.

    ``low_s`` is the earliest second that it may be: an edge that may not have come yet must still refill the quota.
    ``period`` is the one at ``known_s``.
    """
    after, tolerance = max(view.epoch for view in views), views[0].tolerance
    epoch = action_epoch(low_s, after)
    begin, end = 2 * period[0], 2 * period[1]
    if epoch - begin < tolerance or (not after % 2 and end - after < tolerance):
        # Other clients may compute the edge that has just come a little later. An even epoch belongs to that edge, so
        # that it does not refill the quota again.
        epoch = max(2 * low_s, after + 2 - after % 2)
    return [QuotaSet(-BAND * epoch, view.least) for view in views]
