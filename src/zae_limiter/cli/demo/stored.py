"""Store the entities and limits of the demo, in its own file, and read what was used of them."""

from collections.abc import Iterable

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.scenario import (
    ENTITY_LIMITS,
    PROJECTS,
    RESOURCE,
    RESOURCE_LIMITS,
    STEP_LIMITS,
    Raise,
    members,
)
from zae_limiter.core.usage import window_at

PRINCIPAL = "zae-limiter demo"
_WINDOW_TYPE = "hourly"


async def prepare(repository: Repository) -> None:
    """Create the entities, and store the limits that the demo starts with."""
    for entity_id, parent_id in members(PROJECTS):
        await repository.create_entity(
            entity_id, parent_id=parent_id, cascade=parent_id is not None, principal=PRINCIPAL
        )
    await repository.set_resource_defaults(RESOURCE, RESOURCE_LIMITS, PRINCIPAL)
    for entity_id, resource, limits in (*ENTITY_LIMITS, *STEP_LIMITS):
        await repository.set_limits(entity_id, limits, resource, PRINCIPAL)


async def store_raise(repository: Repository, change: Raise) -> None:
    """Store the higher limit, and keep the other limits of the entity."""
    kept = await repository.get_limits(change.entity_id, change.resource)
    limits = [change.after if limit.name == change.after.name else limit for limit in kept]
    await repository.set_limits(change.entity_id, limits, change.resource, PRINCIPAL)


async def read_usage(limiter: RateLimiter, keys: Iterable[str], start_ms: int) -> dict[str, int]:
    """Return the tokens that each key has used, in the hour of the start and those that followed."""
    since = window_at(_WINDOW_TYPE, start_ms).start
    return {key: await _tokens(limiter, key, since) for key in keys}


async def _tokens(limiter: RateLimiter, key: str, since: str) -> int:
    # A run takes about an hour at most, so all windows fit on one page.
    hours, _ = await limiter.get_usage_snapshots(
        entity_id=key, resource=RESOURCE, window_type=_WINDOW_TYPE, start_time=since
    )
    return sum(hour.counters.get("tpm", 0) for hour in hours)
