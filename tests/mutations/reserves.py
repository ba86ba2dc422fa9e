"""Mutations of reserves: what requests of a low priority must leave to others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.model.invariants import ADMITTED, RESERVE
from tests.model.slots_invariants import KEPT
from tests.mutations.mutation import Patch, Patches, model, mutation, patch, patched, simulation, slot_model
from tests.simulation.plan import DEFER, SHARDS
from tests.simulation.plan import RESERVE as WITH_RESERVE
from zae_limiter.core import multi_shard, reserved_take, take_and_settle
from zae_limiter.core.acquire import Rebase, next_step
from zae_limiter.core.multi_shard import take_across
from zae_limiter.core.reserved_take import ReserveFloors, next_step_above
from zae_limiter.core.take_and_settle import take_and_settle as decide_combined

Real = Callable[..., Any]


def _nothing(floors: Real) -> Real:
    """Leave nothing."""

    def decided(limits: Any, amounts: Any, *rest: Any) -> ReserveFloors:
        return {position: 0 for position, milli in amounts if milli}

    return decided


def _nothing_on(floors: Real) -> Real:
    """Leave nothing on the shard of a view."""
    return lambda view, limits, amounts, reserve: {position: 0 for position, milli in amounts if milli}


def _zero(floor: Real) -> Real:
    """Leave nothing on a shard."""
    return lambda *given: 0


def _by_the_view(lowered_bounds: Real) -> Real:
    """Require the reserve of the view, and not of the stored balance."""

    def decided(bounds: Any, floors: ReserveFloors) -> Any:
        made = lowered_bounds(bounds, floors)
        return [(at, taken, low - floors[at], high, balance) for at, taken, low, high, balance in made]

    return decided


def _slots_by_the_view(lowered_slots: Real) -> Real:
    """Require the free slots of the view, and not the stored ones."""

    def decided(taking: Any, floor_milli: int) -> Any:
        made = lowered_slots(taking, floor_milli)
        return replace(made, low=made.low - floor_milli)

    return decided


def _undivided(floor_milli_of: Real) -> Real:
    """Let every shard keep the whole reserve."""
    return lambda limit, reserve, shard=0, shard_count=1: floor_milli_of(limit, reserve)


def _only_where_it_adds(next_step_above: Real) -> Real:
    """Leave nothing where the limit is set: the level that is assumed need only suffice for what is taken."""

    def decided(view: Any, terms: Any, amounts: Any, now: Any, progress: Any, reserve: Any) -> Any:
        step = next_step_above(view, terms, amounts, now, progress, reserve)
        bare = next_step(view, terms, amounts, now, progress)
        both = zip(getattr(step, "bounds", ()), getattr(bare, "bounds", ()), strict=False)
        if reserve is not None and any(bounds[4] is not None for bounds, _ in both):
            return bare
        return step

    return decided


def _not_in_a_rebase(next_step_above: Real) -> Real:
    """Leave nothing in the write that moves the bucket to other limits."""

    def decided(view: Any, terms: Any, amounts: Any, now: Any, progress: Any, reserve: Any) -> Any:
        bare = next_step(view, terms, amounts, now, progress)
        return bare if isinstance(bare, Rebase) else next_step_above(view, terms, amounts, now, progress, reserve)

    return decided


def _never(next_step_above: Real) -> Real:
    """Decide as if there were no reserve."""
    return lambda view, terms, amounts, now, progress, reserve: next_step(view, terms, amounts, now, progress)


def _by(patches: Patches, decide: Real) -> Real:
    """Return a decision of the model with these patches."""

    def decided(*given: Any) -> Any:
        with patched(patches):
            return decide(*given)

    return decided


_IGNORED = patch(reserved_take, "floors_of", _nothing)
_OF_THE_VIEW = patch(reserved_take, "lowered_bounds", _by_the_view)
_WHOLE = (
    Patch(reserved_take, "floor_milli_of", _undivided),
    Patch(multi_shard, "floor_milli_of", _undivided),
)
_ACROSS = (Patch(multi_shard, "_floor", _zero), Patch(multi_shard, "floors_on", _nothing_on))
_SETTLING = patch(take_and_settle, "next_step_above", _never)

RESERVES = (
    mutation(
        "reserve ignored",
        "`n+f-E <= tk`",
        _IGNORED,
        simulation("reserve", WITH_RESERVE),
        model("reserves", RESERVE, 2, next_step=_by(_IGNORED, next_step_above)),
        slot_model("reserve", KEPT, 6),
    ),
    mutation(
        "reserve by the view alone",
        "`n+f-E <= tk`",
        _OF_THE_VIEW,
        simulation("reserve", WITH_RESERVE),
        model("reserves", RESERVE, 4, next_step=_by(_OF_THE_VIEW, next_step_above)),
    ),
    mutation(
        "reserve ignored where a take sets",
        "`T >= n+f` where it sets",
        (),
        model("reserves", RESERVE, 4, next_step=_only_where_it_adds(next_step_above)),
    ),
    mutation(
        "reserve ignored by a rebase",
        "a rebase leaves the reserve of the new limits",
        (),
        model("reserves rebased", RESERVE, 3, next_step=_not_in_a_rebase(next_step_above)),
    ),
    mutation(
        "reserve ignored by a take that settles",
        "a take that settles leaves the reserve after both",
        _SETTLING,
        simulation("reserve", WITH_RESERVE, DEFER),
        model("reserves combined", RESERVE, 2, combined=_by(_SETTLING, decide_combined)),
    ),
    mutation(
        "reserve not divided",
        "every shard keeps its part of the reserve",
        _WHOLE,
        model("reserves across", ADMITTED, 2, take_across=_by(_WHOLE, take_across)),
    ),
    mutation(
        "reserve ignored by a take across shards",
        "every shard keeps its part of the reserve",
        _ACROSS,
        simulation("reserve", WITH_RESERVE, SHARDS),
        model("reserves across", RESERVE, 5, take_across=_by(_ACROSS, take_across)),
    ),
    mutation(
        "reserve of slots by the view alone",
        "`tk >= n+f-F`",
        patch(reserved_take, "_lowered_slots", _slots_by_the_view),
        slot_model("reserve", KEPT, 6),
    ),
)
