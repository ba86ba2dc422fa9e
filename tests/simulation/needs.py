"""Conditions that a mutation may require of a plan besides its faults, so that the broken rule matters."""

from tests.simulation.levels import LEVELS
from tests.simulation.plan import EXPIRY, OWN, SHARDS, Plan, scenario_of

CASCADE, SEVERAL_LIMITS, MANY_CLIENTS = "cascade", "several limits", "at least four clients"
SOON_EXPIRED, OFTEN_OWN = "buckets that soon expire", "own limits often"
OWN_BEFORE_QUIET, ALL_CREDITED = "own limits before a quiet interval", "nearly everything taken and credited"
THREE_LEVELS = "at least three levels"
OWN_MISSING_ONE, CONSTANT_RESHARDING = "own limits without a configured one", "shards split and merged all the time"

_SOON_MS = 4_000
_SELDOM = 0.05
_MANY = 4
_SEVERAL_LEVELS = 3


def meets(plan: Plan, needs: frozenset[str]) -> bool:
    """Return whether a plan has all these faults and traits."""
    traits = needs & _TRAITS
    if not needs - traits <= plan.faults:
        return False
    return not traits or traits <= _traits_of(plan)


_TRAITS = frozenset(
    (
        CASCADE,
        SEVERAL_LIMITS,
        MANY_CLIENTS,
        SOON_EXPIRED,
        OFTEN_OWN,
        OWN_BEFORE_QUIET,
        ALL_CREDITED,
        OWN_MISSING_ONE,
        CONSTANT_RESHARDING,
        THREE_LEVELS,
    )
)


def _traits_of(plan: Plan) -> set[str]:
    scenario = scenario_of(plan)
    slowest_ms = max(limit.fill_time_ms for limit in scenario.limits)
    has = {
        CASCADE: bool(scenario.tree.links),
        THREE_LEVELS: LEVELS in plan.faults and scenario.tree.depth >= _SEVERAL_LEVELS,
        SEVERAL_LIMITS: len(scenario.limits) > 1,
        MANY_CLIENTS: plan.clients >= _MANY,
        OFTEN_OWN: OWN in plan.faults and scenario.own > _SELDOM,
        OWN_BEFORE_QUIET: bool(scenario.habits.own_before_quiet),
        ALL_CREDITED: bool(scenario.habits.greedy),
        OWN_MISSING_ONE: bool(scenario.habits.own_missing_one),
        CONSTANT_RESHARDING: bool(scenario.habits.reshard_pause_s),
        SOON_EXPIRED: EXPIRY in plan.faults and SHARDS not in plan.faults and slowest_ms <= _SOON_MS,
    }
    return {trait for trait, held in has.items() if held}
