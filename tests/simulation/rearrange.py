"""A simulated administrator who moves and blocks entities, and changes limits across resources."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.simulation.fleet import opened
from tests.simulation.levels import ACROSS, BLOCK, MOVE, OTHER_RESOURCE, RESOURCE, across_limits
from zae_limiter import ALL_RESOURCES, RateLimiter, RateLimiterUnavailable, ValidationError
from zae_limiter.core.settings import make_settings

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet, Process

_LEAST, _MOST = 3, 14


async def rearrange(process: "Process") -> None:
    """Move, block and limit entities now and then, sometimes two of them at the same time."""
    fleet = process.fleet
    changes = [fault for fault in (MOVE, MOVE, BLOCK, ACROSS) if fault in fleet.plan.faults]
    administrator = Administrator(process, await opened(process, make_settings()))
    random = process.random
    for _ in range(random.randint(_LEAST, _MOST)):
        await asyncio.sleep(fleet.scenario.seconds / 8 * random.random())
        match random.choice(changes):
            case "move":
                await administrator.move_some()
            case "block":
                await administrator.block_for_a_while()
            case _:
                await administrator.limit_across()


class Administrator:
    """Changes entities by a client without faults."""

    def __init__(self, process: "Process", limiter: RateLimiter) -> None:
        self._process = process
        self._fleet: Fleet = process.fleet
        self._random = process.random
        self._limiter = limiter
        self._everyone = self._fleet.scenario.everyone

    async def move_some(self) -> None:
        """Move one entity, or two at the same time so that together they might form a cycle."""
        random = self._random
        if len(self._everyone) < 2 or random.random() < 0.5:
            await self._move(random.choice(self._everyone), random.choice([None, *self._everyone]))
            return
        one, other = random.sample(self._everyone, 2)
        await asyncio.gather(self._move(one, other), self._move(other, one))

    async def block_for_a_while(self) -> None:
        """Block an entity until a time, or until it is unblocked; sometimes for ever."""
        fleet, random = self._fleet, self._random
        entity, resource = random.choice(self._everyone), random.choice((None, None, RESOURCE, OTHER_RESOURCE))
        now = datetime.fromtimestamp(self._process.port.now()[1] / 1000, UTC)
        until = now + timedelta(seconds=0.5 + 20 * random.random()) if random.random() < 0.5 else None
        limiter = self._limiter
        await self._try("block", lambda: limiter.block_entity(entity, resource, "test", until))
        if random.random() < 0.8:
            await asyncio.sleep(min(fleet.scenario.seconds / 4, 2 * fleet.scenario.cache_s + 5) * random.random())
            await self._try("unblock", lambda: limiter.unblock_entity(entity, resource))

    async def limit_across(self) -> None:
        """Set or delete the limits across resources of an entity, or of each entity."""
        fleet, random, limiter = self._fleet, self._random, self._limiter
        entity, drawn = random.choice(self._everyone), random.random()
        limits = list(across_limits(fleet.limits, random))
        fleet.configure(tuple(limits))
        if drawn < 0.5:
            await self._try("across", lambda: limiter.set_limits(entity, limits, ALL_RESOURCES))
        elif drawn < 0.8:
            await self._try("across", lambda: limiter.delete_limits(entity, ALL_RESOURCES))
        elif drawn < 0.9:
            await self._try("across", lambda: limiter.set_resource_defaults(ALL_RESOURCES, limits))
        else:
            await self._try("across", lambda: limiter.delete_resource_defaults(ALL_RESOURCES))

    async def _move(self, entity: str, parent: str | None) -> None:
        random, limiter = self._random, self._limiter
        cascade = parent is not None and random.random() < 0.8
        resources = (random.choice((RESOURCE, OTHER_RESOURCE)),) if cascade and random.random() < 0.25 else None
        await self._try("move", lambda: limiter.set_parent(entity, parent, cascade, resources))

    async def _try(self, what: str, change: Callable[[], Awaitable[object]]) -> None:
        try:
            await change()
        except (ValidationError, RateLimiterUnavailable):
            # A move that would form a cycle, or a table that did not answer.
            self._fleet.tally[f"{what} refused"] += 1
        else:
            self._fleet.tally[what] += 1
