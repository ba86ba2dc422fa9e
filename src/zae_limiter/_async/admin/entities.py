"""The admin methods for entities."""

from copy import deepcopy
from typing import Any

from zae_limiter._async.store.entities import EntityStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import AuditAction, AuditChange
from zae_limiter.core.config import ALL_ENTITIES, entity_of_cursor, make_cursor
from zae_limiter.core.entity import Entity, check_entity
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.names import MAX_AMOUNT, check_entity_id, check_whole_number
from zae_limiter.core.timestamp import iso_from_ms


class EntityVerbs:
    """Creates, reads, lists and deletes entities."""

    _scope: Scope

    async def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, Any] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Create an entity; with ``cascade``, every acquire also consumes from its parent.

        ``metadata`` is a dictionary of values as in JSON, which is returned exactly as it was given.

        Raises:
            EntityExistsError: The entity exists already.
            EntityNotFoundError: The parent does not exist.
            ValidationError: An argument is invalid.
        """
        created_at = iso_from_ms(self._scope.now_ms())
        entity = Entity(entity_id, name, parent_id, cascade, {} if metadata is None else metadata, created_at)
        check_entity(entity)
        # The caller may change its dictionary later.
        entity = replace(entity, metadata=deepcopy(entity.metadata))
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

    async def list_entities(
        self, limit: int | None = None, cursor: str | None = None
    ) -> tuple[list[Entity], str | None]:
        """Return the entities that were created, in the order of their ids, and the cursor of the next page.

        ``limit`` is the length of a page, None for all entities. The cursor is None after the last page. An id that
        only has limits or buckets is not an entity. On DynamoDB a new entity may be missing for a moment, because the
        list is read through an index.

        Raises:
            ValidationError: The cursor is not from this method.
        """
        if limit is not None:
            check_whole_number("limit", limit, 1, MAX_AMOUNT)
        after = None if cursor is None else entity_of_cursor(cursor, ALL_ENTITIES)
        found, last = await EntityStore(self._scope).listed(limit, after)
        return found, None if last is None else make_cursor(ALL_ENTITIES, last)

    async def get_children(self, parent_id: str) -> list[Entity]:
        """Return the children of an entity, in the order of their ids."""
        check_entity_id(parent_id, "parent_id")
        return await EntityStore(self._scope).children(parent_id)
