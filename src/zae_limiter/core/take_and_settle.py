"""Decide how one write takes tokens and settles what ended leases owe the same bucket.

The write does what two writes in a row would do: first the settlement, then the take. A debit
counts as taken: both must fit into the level. A credit counts as returned before the take, so
balances are compared as if it had been given already.
"""

from collections.abc import Sequence
from typing import Any

from zae_limiter.core.acquire import Progress, Take
from zae_limiter.core.add_or_set import Bounds, Part
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.view import Amounts, EffectiveLimits, View


@dataclass(slots=True)
class TakeAndSettle:
    """A take that also settles. ``taking`` has the limits that are taken from, ``parts`` the others.

    ``again`` is the same write without its credits, to be sent after a lost answer. ``changed`` are
    the millitokens that the write spends of each limit, by position; less than 0 if it returns them.
    """

    taking: Take
    parts: Sequence[Part]
    again: Take
    changed: Amounts

    @property
    def debit_parts(self) -> list[Part]:
        """The parts without credits."""
        return [part for part in self.parts if part.spent >= 0]


def take_and_settle(
    view: View[Any],
    terms: EffectiveLimits,
    amounts: Amounts,
    settlement: Settlement,
    now: TimeBounds,
    progress: Progress,
    reserve: Reserve | None = None,
) -> TakeAndSettle | None:
    """Return how one write takes and settles; None if that takes more than one write.

    The take must leave ``reserve``; None if it may take everything.
    It does if the view lacks the tokens, is too old, has other limits or several shards, or if the
    credits are for another bucket.
    """
    layout = view.layout
    fits = layout.shard_count == 1 and settlement.credits_reach(layout.birth) and layout.has_all(settlement.names)
    # Slots are returned immediately, so a settlement that waits has none. Limits of other kinds are settled apart.
    if not fits or settlement.is_bound or layout.shared.is_mixed or not layout.follows(terms):
        return None
    due = settlement.due(layout.birth)
    debits = {layout.shared.positions[name]: milli for name, milli in due.debits}
    credits = {layout.shared.positions[name]: milli for name, milli in due.credits}
    taken = [(position, milli + debits.get(position, 0)) for position, milli in amounts if milli]
    # Only credits are applied to the view. Hazard: a debit that was applied too would raise the
    # highest balance that the write allows, and an overflow would pay the debit.
    step = next_step_above(_credited(view, credits), terms, taken, now, progress, reserve)
    if not taken or type(step) is not Take:
        return None
    others = _others(due, {layout.shared.shares[position].name for position, _ in taken})
    parts = settle(view, others, now, 0).parts
    # A debit of a limit that is not taken from may leave a debt, which an expired bucket would forget.
    expires_s, solvent = (None, ()) if others.debits else (step.expires_s, step.solvent)
    again = Take(step.bounds, expires_s, solvent)
    taking = Take(
        [_less(bounds, credits.get(bounds[0], 0)) for bounds in step.bounds],
        expires_s,
        [(position, floor - credits.get(position, 0)) for position, floor in solvent],
    )
    changed = [(bounds[0], bounds[1]) for bounds in taking.bounds] + [(part.position, part.spent) for part in parts]
    return TakeAndSettle(taking, parts, again, changed)


def _credited(view: View[Any], credits: dict[int, int]) -> View[Any]:
    """Return the view with credits applied to its balances."""
    numbers = list(view.numbers)
    for position, milli in credits.items():
        numbers[position] += milli
    return View(view.layout, tuple(numbers), view.seen_ms, view.pace)


def _less(bounds: Bounds, credit: int) -> Bounds:
    """Return the bounds of a take that returns ``credit`` in the same write.

    The bounds were decided for the balance after the credit, and the table compares the one before.
    """
    position, taken, low, high, balance = bounds
    return position, taken - credit, low - credit, None if high is None else high - credit, balance


def _others(due: Settlement, taken: set[str]) -> Settlement:
    """Return the settlement of the limits that are not taken from."""
    debits = tuple(one for one in due.debits if one[0] not in taken)
    return Settlement(debits, tuple(one for one in due.credits if one[0] not in taken), due.birth)
