"""Store the entities and limits of the demo, and nothing else."""

from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.scenario import ENTITY_LIMITS, PROJECTS, RESOURCE, RESOURCE_LIMITS, Raise, members
from zae_limiter.core.errors import EntityExistsError

PRINCIPAL = "zae-limiter demo"


async def prepare(repository: Repository) -> None:
    """Create missing entities, and reset the limits to those that the demo starts with."""
    for entity_id, parent_id in members(PROJECTS):
        if await repository.get_entity(entity_id) is None:
            await _create(repository, entity_id, parent_id)
    if await repository.get_resource_defaults(RESOURCE) != list(RESOURCE_LIMITS):
        await repository.set_resource_defaults(RESOURCE, RESOURCE_LIMITS, PRINCIPAL)
    for entity_id, resource, limits in ENTITY_LIMITS:
        if await repository.get_limits(entity_id, resource) != list(limits):
            await repository.set_limits(entity_id, limits, resource, PRINCIPAL)


async def store_raise(repository: Repository, change: Raise) -> None:
    """Store the higher limit, and keep the other limits of the entity."""
    kept = await repository.get_limits(change.entity_id, change.resource)
    limits = [change.after if limit.name == change.after.name else limit for limit in kept]
    await repository.set_limits(change.entity_id, limits, change.resource, PRINCIPAL)


async def _create(repository: Repository, entity_id: str, parent_id: str | None) -> None:
    try:
        await repository.create_entity(
            entity_id, parent_id=parent_id, cascade=parent_id is not None, principal=PRINCIPAL
        )
    except EntityExistsError:
        # Another demo was faster.
        return
