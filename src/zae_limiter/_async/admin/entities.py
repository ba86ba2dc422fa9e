"""The admin methods for entities."""

from zae_limiter._async.store.entities import EntityStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import AuditAction, AuditChange
from zae_limiter.core.entity import Entity, MetadataValue, check_entity
from zae_limiter.core.names import check_entity_id
from zae_limiter.core.timestamp import iso_from_ms


class EntityVerbs:
    """Creates, reads and deletes entities."""

    _scope: Scope

    async def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, MetadataValue] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Create an entity; with ``cascade``, every acquire also consumes from its parent.

        Raises:
            EntityExistsError: The entity exists already.
            EntityNotFoundError: The parent does not exist.
            ValidationError: An argument is invalid.
        """
        created_at = iso_from_ms(self._scope.now_ms())
        entity = Entity(entity_id, name, parent_id, cascade, {} if metadata is None else metadata, created_at)
        check_entity(entity)
        details = {"name": name, "parent_id": parent_id, "cascade": cascade}
        change = AuditChange(AuditAction.ENTITY_CREATED, entity_id, principal, None, details)
        await EntityStore(self._scope).create(entity, change)
        self._scope.caches.forget_limits_of(entity_id)
        return entity

    async def get_entity(self, entity_id: str) -> Entity | None:
        """Return an entity, None if it does not exist."""
        check_entity_id(entity_id)
        return await EntityStore(self._scope).get(entity_id)

    async def delete_entity(self, entity_id: str, principal: str | None = None) -> None:
        """Delete an entity with its limits and buckets; its usage and audit events are kept.

        Raises:
            EntityNotFoundError: The entity does not exist.
            EntityHasChildrenError: The entity has children; delete these first.
        """
        check_entity_id(entity_id)
        change = AuditChange(AuditAction.ENTITY_DELETED, entity_id, principal)
        await EntityStore(self._scope).delete(entity_id, change)
        self._scope.caches.forget_limits_of(entity_id)

    async def get_children(self, parent_id: str) -> list[Entity]:
        """Return the children of an entity, in the order of their ids."""
        check_entity_id(parent_id, "parent_id")
        return await EntityStore(self._scope).children(parent_id)
