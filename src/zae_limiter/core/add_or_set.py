"""Choose how a take writes one limit while other clients use the bucket: add, set, or read first.

A client that is alone knows whether a limit is full. With other clients it has to estimate, and a
wrong estimate costs a refused write. There are two forms of the write:

- *add* subtracts the tokens from the balance. It is right while the limit is not above its capacity.
- *set* writes the balance that follows from a target level. It is right while the level is at least the target.

A set gives away what is above the target. So a target a little below the capacity is right more
often, at the price of a few tokens. A refused write returns the item, so the next attempt has a new
view. A wrong choice never admits too much, because the table checks the bounds of the write.

Tune the constants with ``bench/full_mark.py``.
"""

from math import inf, sqrt
from typing import Any

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.view import Pace, View

SLACK_DIVISOR = 64
"""An estimate may give away at most the capacity divided by this number, and only while other clients write."""

HALFWAY, UTMOST = 1, 2

# Width of an estimate, in standard deviations. A smaller number risks refused writes. A larger one
# gives away more tokens, or reads more often.
_DEVIATIONS = 2.0

# How far below full a limit usually is, in takes. It is at least _LEAST_GAP. _QUEUED is added for
# each take that would wait in a queue of the same load.
_LEAST_GAP = 3.0
_QUEUED = 8.0

# If others take at least this often while the slack refills, adding is the better estimate.
_CROWD = 5.0

Bounds = tuple[int, int, int, int | None, int | None]
"""How a take is written to one limit: position, taken, lowest balance, highest balance, new balance.

The write is right from the lowest to the highest balance; a highest balance of None is no bound. A
new balance of None means that the write subtracts what is taken. This is a bare tuple because every
acquire makes one per limit.
"""


@dataclass(slots=True)
class Add:
    """Change a balance by ``change`` if it is between ``low`` and ``high``, both included; None is no bound."""

    position: int
    spent: int
    change: int
    low: int | None
    high: int | None


@dataclass(slots=True)
class Reset:
    """Set a balance if it is between ``low`` and ``high``, both included; a ``high`` of None is no bound."""

    position: int
    spent: int
    balance: int
    low: int
    high: int | None = None


Part = Add | Reset


@dataclass(frozen=True, slots=True)
class Effort:
    """How a take is written: ``sure`` never returns Unsure, ``yielding`` gives tokens away to avoid a refusal.

    ``yielding`` is 0, HALFWAY or UTMOST. With 0 the estimate chooses the target. With HALFWAY the
    target is halfway between the level and what is taken, if the limit looks full. With UTMOST it
    is what is taken.
    """

    sure: bool = False
    yielding: int = 0


@dataclass(slots=True)
class Spend:
    """What is taken from one limit, and the least and the most it can have earned, in millitokens."""

    position: int
    taken: int
    earned: int
    most: int


def guess(view: View[Any], spend: Spend, now: TimeBounds, effort: Effort) -> Bounds | None:
    """Return how a take is written to one limit that others use too, None if reading first is better."""
    share = view.layout.shared.shares[spend.position]
    balance = view.numbers[spend.position]
    capacity = share.capacity_milli
    # How far the view is above full, at the latest possible time.
    over = balance + spend.most - capacity
    if effort.yielding == UTMOST or (effort.yielding and over > 0):
        return _set(spend, _yielded(min(capacity, balance + spend.earned), spend.taken, effort.yielding))
    expected, spread = _used_by_others(view, spend.position, now)
    if over <= 0 or expected - spread >= over:
        # The limit is not full, or others have used up the overflow even by the low estimate. So
        # adding is right. But if they have also used what this take needs, a read is cheaper than a
        # refusal.
        drained = balance + spend.earned - expected < spend.taken
        return None if drained and not effort.sure else _add(spend, capacity)
    pace = view.pace
    assert pace is not None, "a client that is alone and yields nothing does not estimate"
    offered = share.amount_milli / share.period_ms / share.shard_count
    slack = capacity // SLACK_DIVISOR
    if _takes_while_filling(pace, spend, slack, offered) >= _CROWD:
        # A client that finds the limit full sets it to ``slack`` below full. All others then add
        # until it is full again, so adding is right most of the time.
        return _set(spend, max(spend.taken, capacity - slack)) if effort.sure else _add(spend, capacity)
    # The set is right if others took at most ``wanted`` more than the overflow. The first term
    # covers the high estimate of their takes. The second term covers a client that has cut the
    # overflow since the view: the limit is then about the usual gap below full.
    wanted = max(expected + spread - over, min(expected + spread, _usual_gap(pace, spend.position, offered)))
    if wanted > slack and not effort.sure:
        return None
    return _set(spend, max(spend.taken, capacity - int(min(slack, wanted))))


def shortfall(view: View[Any], position: int, taken: int, now: TimeBounds) -> float:
    """Return how many millitokens a take may lack, by what the view shows and what others have taken since.

    0 if the tokens are there by the high estimate of their takes, and a few more takes that may be in flight.
    """
    level = view.level(position, now[0])
    pace = view.pace
    if pace is None:
        return max(0.0, float(taken - level))
    expected, spread = _used_by_others(view, position, now)
    lacking: float = taken + expected + spread + _LEAST_GAP * pace.size(position) - level
    return max(0.0, lacking)


def _add(spend: Spend, capacity: int) -> Bounds:
    if spend.taken - spend.earned > capacity - spend.most:
        # The time is so uncertain that no balance is both surely enough and surely not above the
        # capacity.
        return _set(spend, capacity)
    return spend.position, spend.taken, spend.taken - spend.earned, capacity - spend.most, None


def _set(spend: Spend, target: int) -> Bounds:
    floor = target - spend.most
    return spend.position, spend.taken, max(floor, spend.taken - spend.earned), None, floor - spend.taken


def _yielded(level: int, taken: int, yielding: int) -> int:
    return (taken + level) // 2 if yielding == HALFWAY else taken


def _used_by_others(view: View[Any], position: int, now: TimeBounds) -> tuple[float, float]:
    """Return what others are expected to have taken since the view was seen, and the width of that estimate."""
    pace = view.pace
    age_ms = now[1] - view.seen_ms
    if pace is None or age_ms <= 0:
        return 0.0, 0.0
    expected = pace.expected(position, age_ms)
    # The takes of many clients arrive like a Poisson process: the variance of their count is its
    # mean.
    return expected, _DEVIATIONS * sqrt(expected * pace.size(position))


def _takes_while_filling(pace: Pace, spend: Spend, slack: int, offered: float) -> float:
    """Return how often others take from a limit while it refills from ``slack`` below full.

    Others may write to the bucket without taking from this limit. So their usage of this limit also
    bounds the result, in amounts as large as this take.
    """
    used = pace.expected(spend.position, 1)
    if used >= offered:
        return inf
    return min(pace.writes / pace.elapsed_ms, used / max(1, spend.taken)) * slack / (offered - used)


def _usual_gap(pace: Pace, position: int, offered: float) -> float:
    """Return how far below full a limit usually is, if others use it at their pace while it refills.

    This is the work that waits in a queue. It is small at a low load, and grows without bound as
    the load approaches 1.
    """
    # No division by zero: a load of 1 or more counts as a crowd, and returns before this call.
    load = pace.expected(position, 1) / offered
    return pace.size(position) * (_LEAST_GAP + _QUEUED * load / (1 - load))
