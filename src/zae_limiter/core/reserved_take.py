"""Decide how a request is taken that must leave a reserve.

A take of n that must leave f is decided as a take of n + f, and writes n. So every row has its floor: the bounds are
those of the larger take, and the balance is changed by the smaller one. A credit of f in the same write would do the
same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.core.acquire import MixedTake, NextStep, Progress, Rebase, Take, next_step
from zae_limiter.core.add_or_set import Add, Bounds, Part, Reset
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.rebase import Rebasing
from zae_limiter.core.reserve import Reserve, floor_milli_of
from zae_limiter.core.slots import SlotTake
from zae_limiter.core.tracked import TrackedTake
from zae_limiter.core.view import Amounts, EffectiveLimits, View

ReserveFloors = Mapping[int, int]
"""What must remain of each limit on one shard, in millitokens, by the position of the limit."""


def floors_of(
    limits: Sequence[Limit], amounts: Amounts, reserve: Reserve, shard: int = 0, shard_count: int = 1
) -> ReserveFloors:
    """Return what a request must leave on one shard of each limit that it takes from."""
    return {
        position: floor_milli_of(limits[position], reserve, shard, shard_count) for position, milli in amounts if milli
    }


def floors_on(view: View[Any] | None, limits: Sequence[Limit], amounts: Amounts, reserve: Reserve) -> ReserveFloors:
    """Return what a request must leave of each of these limits on the shard of a view."""
    if view is None:
        return floors_of(limits, amounts, reserve)
    return floors_of(limits, amounts, reserve, view.layout.shard, view.layout.shard_count)


def raised(amounts: Amounts, floors: ReserveFloors) -> Amounts:
    """Return the amounts by which a request is decided: what it takes, and what it must leave."""
    return [(position, milli + floors.get(position, 0)) for position, milli in amounts]


def with_floors(view: View[Any] | None, terms: EffectiveLimits, amounts: Amounts, reserve: Reserve | None) -> Amounts:
    """Return the amounts by which a request is decided on the shard of a view."""
    return amounts if reserve is None else raised(amounts, floors_on(view, terms.limits, amounts, reserve))


def next_step_above(
    view: View[Any] | None,
    terms: EffectiveLimits,
    amounts: Amounts,
    now: TimeBounds,
    progress: Progress,
    reserve: Reserve | None,
) -> NextStep:
    """Return the next step for a request that must leave ``reserve``; None if it may take everything."""
    if reserve is None:
        return next_step(view, terms, amounts, now, progress)
    floors = floors_on(view, terms.limits, amounts, reserve)
    step = next_step(view, terms, raised(amounts, floors), now, progress)
    if isinstance(step, Take):
        return lowered(step, floors, terms.limits)
    if isinstance(step, Rebase) and step.takes:
        assert view is not None, "a bucket is rebased only once it was seen"
        return Rebase(_lowered_rebasing(step.rebasing, view, floors), takes=True)
    return step


def lowered(taking: Take, floors: ReserveFloors, limits: Sequence[Limit]) -> Take:
    """Return a take that was decided with its floors, and that leaves them."""
    bounds = lowered_bounds(taking.bounds, floors)
    if not isinstance(taking, MixedTake):
        return Take(bounds, taking.expires_s, taking.solvent)
    slots = [_lowered_slots(one, floors[one.position]) for one in taking.slots]
    tracked = [
        TrackedTake(
            _lowered_part(one.part, floors[one.part.position], limits[one.part.position]),
            one.epoch,
            one.charged - floors[one.part.position],
        )
        for one in taking.tracked
    ]
    return MixedTake(bounds, taking.expires_s, taking.solvent, slots, tracked)


def lowered_bounds(bounds: Sequence[Bounds], floors: ReserveFloors) -> list[Bounds]:
    """Return how a take that was decided with its floors is written to enforced rate limits."""
    return [
        (position, taken - floors[position], low, high, None if balance is None else balance + floors[position])
        for position, taken, low, high, balance in bounds
    ]


def _lowered_slots(taking: SlotTake, floor_milli: int) -> SlotTake:
    return replace(taking, taken=taking.taken - floor_milli, change=taking.change + floor_milli)


def _lowered_part(part: Part, floor_milli: int, limit: Limit) -> Part:
    spent = part.spent - floor_milli
    # A quota stores whole units.
    floor = floor_milli // 1000 if limit.is_quota else floor_milli
    if isinstance(part, Add):
        return Add(part.position, spent, part.change + floor, part.low, part.high)
    return Reset(part.position, spent, part.balance + floor, part.low, part.high)


def _lowered_rebasing(rebasing: Rebasing, view: View[Any], floors: ReserveFloors) -> Rebasing:
    """Return a rebase with a take that was decided with its floors, and that leaves them."""
    limits, positions = rebasing.terms.limits, rebasing.terms.positions
    names = [share.name for share in view.layout.shared.shares]

    def floor_of(name: str) -> int:
        return floors.get(positions.get(name, -1), 0)

    parts = [
        _lowered_part(part, floor_of(names[part.position]), limits[positions[names[part.position]]])
        if floor_of(names[part.position])
        else part
        for part in rebasing.parts
    ]
    added = []
    for fresh in rebasing.added:
        floor, limit = floor_of(fresh.baseline.name), fresh.baseline.limit
        back = floor // 1000 if limit.is_quota else floor
        added.append(replace(fresh, balance=fresh.balance + back, spent=fresh.spent - floor))
    return replace(
        rebasing,
        parts=parts,
        added=added,
        joined=[one._replace(milli=one.milli - floor_of(one.name)) for one in rebasing.joined],
        charges=[one._replace(milli=one.milli - floor_of(one.name)) for one in rebasing.charges],
    )
