"""Store the entities and limits of the demo, in its own file."""

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

PRINCIPAL = "zae-limiter demo"


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
