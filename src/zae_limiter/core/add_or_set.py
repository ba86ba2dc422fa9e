"""How a take is written to a limit while others are at work: add, set, or look first.

A client alone knows whether a limit is full. Among others it must guess, and a wrong guess costs a refused write.
Two ways are open: to *add* is right up to the capacity; to *set* the balance to a target is right from that target
up, and gives away what is above it. So a target a little below the capacity is right more often, for a few tokens.

Who guesses wrong learns the truth from the refusal. Tune the constants with ``bench/full_mark.py``.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.view import Pace, View

SLACK_DIVISOR = 64
"""A guess may give away at most this part of the capacity, and only while others are at work."""

HALFWAY, UTMOST = 1, 2

_DEVIATIONS = 2.0
_LEAST_GAP = 3.0
_QUEUED = 8.0
_CROWD = 5.0

Bounds = tuple[int, int, int, int | None, int | None]
"""How a take is written to one limit: its position and what is taken, the lowest and the highest balance (None: no
bound) at which that is right, and the balance to set, None to subtract what is taken. A bare tuple: one is made for
every limit of every acquire."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How a take is written: ``sure`` never answers Unsure; ``yielding`` gives tokens away rather than be refused.

    ``yielding`` is 0 for the full level, HALFWAY down to what is asked for where it is full, or UTMOST: just what is
    asked for, everywhere.
    """

    sure: bool = False
    yielding: int = 0


@dataclass(slots=True)
class Spend:
    """What is taken of one limit, and the least and the most it can have earned."""

    position: int
    taken: int
    earned: int
    most: int


def guess(view: View[Any], spend: Spend, now: TimeBounds, effort: Effort) -> Bounds | None:
    """Return how a take is written to one limit where others are at work, None if it is better to look first."""
    share = view.layout.shared.shares[spend.position]
    balance = view.numbers[spend.position]
    capacity = share.capacity_milli
    over = balance + spend.most - capacity
    if effort.yielding == UTMOST or (effort.yielding and over > 0):
        return _set(spend, _yielded(min(capacity, balance + spend.earned), spend.taken, effort.yielding))
    expected, spread = _used_by_others(view, spend.position, now)
    if over <= 0 or expected - spread >= over:
        drained = balance + spend.earned - expected < spend.taken
        return None if drained and not effort.sure else _add(spend, capacity)
    pace = view.pace
    assert pace is not None, "who is alone, and yields nothing, does not guess"
    offered = share.amount_milli / share.period_ms / share.shard_count
    slack = capacity // SLACK_DIVISOR
    if _takes_while_filling(pace, spend, slack, offered) >= _CROWD:
        # Whoever finds it full sets it back by all the slack, and then all others add until it is full again.
        return _set(spend, max(spend.taken, capacity - slack)) if effort.sure else _add(spend, capacity)
    wanted = max(expected + spread - over, min(expected + spread, _usual_gap(pace, spend.position, offered)))
    if wanted > slack and not effort.sure:
        return None
    return _set(spend, max(spend.taken, capacity - int(min(slack, wanted))))


def _add(spend: Spend, capacity: int) -> Bounds:
    if spend.taken - spend.earned > capacity - spend.most:
        # The time is so unsure that no balance is surely enough and surely not too much.
        return _set(spend, capacity)
    return spend.position, spend.taken, spend.taken - spend.earned, capacity - spend.most, None


def _set(spend: Spend, target: int) -> Bounds:
    floor = target - spend.most
    return spend.position, spend.taken, max(floor, spend.taken - spend.earned), None, floor - spend.taken


def _yielded(level: int, taken: int, yielding: int) -> int:
    return (taken + level) // 2 if yielding == HALFWAY else taken


def _used_by_others(view: View[Any], position: int, now: TimeBounds) -> tuple[float, float]:
    """Return what others are expected to have taken since the view was seen, and how far off that may be."""
    pace = view.pace
    age_ms = now[1] - view.seen_ms
    if pace is None or age_ms <= 0:
        return 0.0, 0.0
    expected = pace.expected(position, age_ms)
    return expected, _DEVIATIONS * sqrt(expected * pace.size(position))


def _takes_while_filling(pace: Pace, spend: Spend, slack: int, offered: float) -> float:
    """Return how often others take from a limit in the time that it takes to fill from ``slack`` below full.

    They may write without taking from this limit, so what they take of it counts, in amounts like this one.
    """
    used = pace.expected(spend.position, 1)
    if used >= offered:
        return inf
    return min(pace.writes / pace.elapsed_ms, used / max(1, spend.taken)) * slack / (offered - used)


def _usual_gap(pace: Pace, position: int, offered: float) -> float:
    """Return how far below full a limit is, as a rule, that others use at their pace and time refills.

    It is the work waiting in a queue: hardly any while they take little, without bound as they take nearly all.
    """
    load = pace.expected(position, 1) / offered
    return pace.size(position) * (_LEAST_GAP + _QUEUED * load / (1 - load))
