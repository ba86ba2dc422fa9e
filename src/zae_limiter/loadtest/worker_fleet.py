"""Decide which workers of a distributed load test to start and to stop. Pure.

A worker is *pending* until it connects to the master, then *connected*. It is *overdue* if it is
pending for too long, and *worn* if it has used most of its time. The others are *fresh*.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONNECT_WITHIN_S = 30.0
"""A worker that is not connected after this many seconds is replaced."""
WORN_SHARE = 0.8
"""A worker is replaced when it has used this share of its time."""
FEWEST_FAILED_STARTS = 3
"""Give up after this many workers in a row that never connected, or after one fleet of them if that is more."""


@dataclass(frozen=True, slots=True)
class FleetWorker:
    """A worker that was invoked. ``has_connected`` stays True when the connection ends.

    ``has_ended`` is True if the worker ended, or if the master lost it.
    """

    worker_id: str
    invoked_s: float
    has_connected: bool = False
    is_stopping: bool = False
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class FleetRules:
    """The number of workers to keep, how many may run at the same time, and how long one may run."""

    wanted: int
    most: int
    worker_time_s: float
    connect_within_s: float = CONNECT_WITHIN_S
    worn_share: float = WORN_SHARE


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """The number of workers to start, and the ids of those to stop. ``gives_up`` is True if workers do not start."""

    start: int
    stop: tuple[str, ...]
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The workers that run and are not stopping, oldest first."""

    fresh: Sequence[FleetWorker]
    worn: Sequence[FleetWorker]
    pending: Sequence[FleetWorker]
    overdue: Sequence[FleetWorker]


def decide_fleet(workers: Sequence[FleetWorker], rules: FleetRules, now_s: float) -> FleetDecision:
    """Return what keeps the wanted number of workers connected.

    A worn worker runs until a fresh one is connected in its place. If no further worker may run at
    the same time, it is stopped first.
    """
    if _failed_starts(workers, rules, now_s) >= max(FEWEST_FAILED_STARTS, rules.wanted):
        return FleetDecision(0, tuple(one.worker_id for one in workers if not one.has_ended), gives_up=True)
    by_state = _sorted(workers, rules, now_s)
    lacking = max(0, rules.wanted - len(by_state.fresh) - len(by_state.pending))
    running = sum(not one.has_ended for one in workers)
    room = max(0, rules.most - running)
    # A surplus worker is stopped when it is connected, so that a pending one is only stopped if it is overdue.
    surplus = by_state.fresh[: max(0, len(by_state.fresh) - rules.wanted)]
    stopped = [*by_state.overdue, *surplus, *_worn_to_stop(by_state, rules.wanted, lacking - room)]
    return FleetDecision(min(lacking, room), tuple(one.worker_id for one in stopped))


def wanted_workers(users: int, users_per_worker: int, fewest: int, most: int) -> int:
    """Return how many workers run this many users: between ``fewest`` and ``most``."""
    return min(most, max(fewest, math.ceil(users / users_per_worker)))


def _sorted(workers: Sequence[FleetWorker], rules: FleetRules, now_s: float) -> _Sorted:
    active = sorted((one for one in workers if not (one.has_ended or one.is_stopping)), key=lambda one: one.invoked_s)
    connected = [one for one in active if one.has_connected]
    waiting = [one for one in active if not one.has_connected]
    return _Sorted(
        fresh=[one for one in connected if not _is_worn(one, rules, now_s)],
        worn=[one for one in connected if _is_worn(one, rules, now_s)],
        pending=[one for one in waiting if not _is_overdue(one, rules, now_s)],
        overdue=[one for one in waiting if _is_overdue(one, rules, now_s)],
    )


def _worn_to_stop(by_state: _Sorted, wanted: int, without_room: int) -> Sequence[FleetWorker]:
    """Return the worn workers that are replaced already, and those that leave no room for their replacement."""
    replaced = len(by_state.fresh) + len(by_state.worn) - wanted
    return by_state.worn[: max(0, replaced, without_room)]


def _failed_starts(workers: Sequence[FleetWorker], rules: FleetRules, now_s: float) -> int:
    """Return how many workers never connected, counted from the newest to the first that did."""
    failed = 0
    for one in sorted(workers, key=lambda one: one.invoked_s, reverse=True):
        if one.has_connected:
            return failed
        failed += one.has_ended or one.is_stopping or _is_overdue(one, rules, now_s)
    return failed


def _is_overdue(worker: FleetWorker, rules: FleetRules, now_s: float) -> bool:
    return not worker.has_connected and now_s - worker.invoked_s > rules.connect_within_s


def _is_worn(worker: FleetWorker, rules: FleetRules, now_s: float) -> bool:
    return now_s - worker.invoked_s >= rules.worn_share * rules.worker_time_s
