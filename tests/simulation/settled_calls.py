"""Simulate one client whose calls take an estimate and are adjusted later, and count the write units of a call."""

import asyncio
from random import Random

from tests.simulation.world import World, simulate
from zae_limiter import Limit, RateLimiter
from zae_limiter.core.settings import Settings

LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 1_000_000_000)]
ESTIMATE, LONGEST_CALL_S = 500, 20.0


def units_per_call(per_second: float, within_s: float, seconds: float) -> float:
    """Return the write units per call on one bucket, refused writes included.

    Calls arrive at random times, and each is charged or credited the difference to its estimate when it ends. They are
    not grouped, so a call without a settlement costs one unit.
    """
    return simulate(_units_per_call, per_second, within_s, seconds)


async def _call(limiter: RateLimiter, random: Random) -> None:
    async with limiter.acquire("key", "gpt-4o", {"rpm": 1, "tpm": ESTIMATE}) as lease:
        await asyncio.sleep(random.random() * LONGEST_CALL_S)
        await lease.adjust(tpm=random.choice((-1, 1)) * random.randrange(1, ESTIMATE))


async def _units_per_call(per_second: float, within_s: float, seconds: float) -> float:
    world = World(1)
    repository = await world.client("client", Settings(settle_within_s=within_s))
    limiter, random, loop = RateLimiter(repository, group_commit=False), Random(1), asyncio.get_running_loop()
    await limiter.set_system_defaults(LIMITS)
    # Measured once as many calls end as begin.
    from_s = loop.time() + LONGEST_CALL_S
    units_before, calls, units = 0.0, 0, 0.0
    async with asyncio.TaskGroup() as tasks:
        while (now_s := loop.time()) < from_s + seconds:
            units = world.table.tally.write_units
            if now_s < from_s:
                units_before = units
            calls += now_s >= from_s
            tasks.create_task(_call(limiter, random))
            await asyncio.sleep(random.expovariate(per_second))
    return (units - units_before) / calls
