"""The cases of several buckets whose cost is documented: levels, limits across resources, and ``also``.

``test_level_cost`` checks the costs, and ``bench/costs.py --levels`` prints them.
"""

from functools import partial
from itertools import pairwise

from tests.dynamodb.cost_cases import ENTITY, LIMITS, PARENT, RESOURCE, Case, CostScenario
from zae_limiter import ALL_RESOURCES, Also, Limit

LEVELS = (
    ENTITY,
    PARENT,
    "0b8f2c61-5d3e-4a97-b1c8-6e4f7a902d13",
    "7e15d9a4-c2b6-4f80-93ad-5b0c8e6f1274",
    "a36c0e58-91f7-4d2b-8e4c-d7f9b2516a80",
)
"""An entity and those above it, nearest first."""

OTHER = "e94b7d12-3a6f-48c5-a0d9-1f8c5b7e2360"
LIMITS_ACROSS = [Limit.per_minute("rpm", 60)]


async def create_levels(scenario: CostScenario, levels: int) -> str:
    """Create a chain, the highest entity first, and return the lowest one."""
    *below, top = LEVELS[:levels]
    create = scenario.others.limiter.create_entity
    await create(top)
    above = top
    for entity in reversed(below):
        await create(entity, parent_id=above, cascade=True)
        above = entity
    return above


async def admitted(scenario: CostScenario, levels: int) -> None:
    await create_levels(scenario, levels)
    await scenario.take(rpm=1)
    scenario.measure(levels)
    await scenario.take(rpm=1, tpm=500)


async def adjusted(scenario: CostScenario, levels: int) -> None:
    await create_levels(scenario, levels)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        scenario.measure(levels)


async def known_exhausted(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    await scenario.others.limiter.set_limits(LEVELS[3], [Limit.per_minute("rpm", 1), LIMITS[1]])
    await scenario.take(rpm=1)
    scenario.measure()
    await scenario.rejected(rpm=1)


async def exhausted_when_last_seen(scenario: CostScenario) -> None:
    """Let the views of all levels become too old to reject."""
    await create_levels(scenario, 5)
    await scenario.others.limiter.set_limits(LEVELS[3], [Limit.per_day("rpm", 1), LIMITS[1]])
    await scenario.take(rpm=1)
    scenario.advance(5_000)
    scenario.measure()
    await scenario.rejected(rpm=1)


async def nearly_exhausted(scenario: CostScenario) -> None:
    """Let others take the last tokens of a level whose view shows that they have been taking."""
    await create_levels(scenario, 5)
    await scenario.others.limiter.set_limits(LEVELS[3], [Limit.per_minute("rpm", 20), LIMITS[1]])
    for _ in range(4):
        await scenario.take(rpm=1)
        await scenario.others_take(LEVELS[3], rpm=3)
    await scenario.others_take(LEVELS[3], rpm=3)
    scenario.measure()
    await scenario.rejected(rpm=2)


async def nearly_exhausted_admits(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    await scenario.others.limiter.set_limits(LEVELS[3], [Limit.per_minute("rpm", 20), LIMITS[1]])
    for _ in range(4):
        await scenario.take(rpm=1)
        await scenario.others_take(LEVELS[3], rpm=3)
    scenario.measure(1, 4)
    await scenario.take(rpm=1)


async def refused(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    await scenario.take(rpm=1)
    await scenario.others_take(LEVELS[4], tpm=6_000)
    scenario.measure(5, 4)
    await scenario.rejected(tpm=500)


async def cold(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    await scenario.others_take(rpm=1)
    scenario.measure(5)
    await scenario.take(rpm=1, tpm=500)


async def cold_and_created(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    scenario.measure(5)
    await scenario.take(rpm=1, tpm=500)


async def cold_with_wrong_hints(scenario: CostScenario) -> None:
    """Move each level after the one below it, so that no record names what is above its parent."""
    await create_levels(scenario, 5)
    others = (ENTITY, *(f"{entity[:-1]}x" for entity in LEVELS[1:]))
    for entity in others[1:]:
        await scenario.others.limiter.create_entity(entity)
    for child, parent in pairwise(others):
        await scenario.others.limiter.set_parent(child, parent, cascade=True)
    await scenario.others.limiter.invalidate_config_cache()
    await scenario.others_take(rpm=1)
    scenario.measure(5)
    await scenario.take(rpm=1, tpm=500)


async def limits_read_again(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    await scenario.take("somebody-else", rpm=1)
    await scenario.take(rpm=1)
    scenario.advance(60_000)
    await scenario.take("somebody-else", rpm=1)
    scenario.measure(5)
    await scenario.take(rpm=1, tpm=500)


async def across_resources(scenario: CostScenario) -> None:
    await scenario.others.limiter.set_limits(ENTITY, LIMITS_ACROSS, resource=ALL_RESOURCES)
    await scenario.take(rpm=1)
    scenario.measure(2)
    await scenario.take(rpm=1, tpm=500)


async def across_resources_of_others(scenario: CostScenario) -> None:
    await scenario.others.limiter.set_limits(OTHER, LIMITS_ACROSS, resource=ALL_RESOURCES)
    await scenario.take(rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def across_resources_on_every_level(scenario: CostScenario) -> None:
    await create_levels(scenario, 5)
    for entity in LEVELS:
        await scenario.others.limiter.set_limits(entity, LIMITS_ACROSS, resource=ALL_RESOURCES)
    await scenario.take(rpm=1)
    scenario.measure(10)
    await scenario.take(rpm=1, tpm=500)


async def _take_also(scenario: CostScenario, *also: Also) -> None:
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}, also=also):
        pass


async def also_another_entity(scenario: CostScenario) -> None:
    other = Also(OTHER, RESOURCE, {"rpm": 1})
    await _take_also(scenario, other)
    scenario.measure(2)
    await _take_also(scenario, other)


async def also_below_the_same_parent(scenario: CostScenario) -> None:
    await create_levels(scenario, 2)
    await scenario.others.limiter.create_entity(OTHER, parent_id=PARENT, cascade=True)
    other = Also(OTHER, RESOURCE, {"rpm": 1})
    await _take_also(scenario, other)
    scenario.measure(3)
    await _take_also(scenario, other)


LEVEL_CASES = (
    *(
        Case(f"{levels} level{'s' * (levels > 1)}, all admitted", partial(admitted, levels=levels))
        for levels in (1, 2, 3, 5)
    ),
    Case("5 levels, one is nearly exhausted and admits", nearly_exhausted_admits),
    Case("5 levels, one is known to be exhausted", known_exhausted),
    Case("5 levels, one was exhausted when last seen", exhausted_when_last_seen),
    Case("5 levels, refused by one that is nearly exhausted", nearly_exhausted),
    Case("5 levels, refused by one that seemed to have enough", refused),
    Case("5 levels, adjust", partial(adjusted, levels=5)),
    Case("5 levels, first call of a client", cold),
    Case("5 levels, first call, every entity above was moved", cold_with_wrong_hints),
    Case("5 levels, first call, all buckets created", cold_and_created),
    Case("5 levels, limits read again after the cache TTL", limits_read_again),
    Case("1 level, limits across resources", across_resources),
    Case("1 level, only others have limits across resources", across_resources_of_others),
    Case("5 levels, each with limits across resources", across_resources_on_every_level),
    Case("also, another entity", also_another_entity),
    Case("also, another entity below the same parent", also_below_the_same_parent),
)
