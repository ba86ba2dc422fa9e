"""The admin methods for entities."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Collection
from copy import deepcopy
from datetime import datetime
from typing import Any

from zae_limiter._sync.store.entities import EntityStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.audit import AuditAction, AuditChange
from zae_limiter.core.config import ALL_ENTITIES, entity_of_cursor, make_cursor
from zae_limiter.core.entity import Entity, check_block, check_cascade_resources, check_entity, parent_details
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.names import MAX_AMOUNT, check_entity_id, check_resource, check_whole_number
from zae_limiter.core.timestamp import iso_from_ms


class EntityVerbs:
    """Creates, reads, lists, moves, blocks and deletes entities."""

    _scope: Scope

    def create_entity(
        self,
        entity_id: str,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, Any] | None = None,
        principal: str | None = None,
        cascade_resources: Collection[str] | None = None,
    ) -> Entity:
        """Create an entity; with ``cascade``, every acquire also takes from its parent.

        If the parent cascades too, its own parent follows, and so on, up to eight levels. ``cascade_resources`` are the
        resources for which the entity cascades, None for all. ``metadata`` is a dictionary of values as in JSON, which
        is returned exactly as it was given.

        Raises:
            EntityExistsError: The entity exists already.
            EntityNotFoundError: The parent does not exist.
            TooManyBucketsError: It would cascade to too many levels.
            ValidationError: An argument is invalid.
            KindNotAllowedError: The table does not allow such a cascade yet, and this client may not allow it.
        """
        created_at = iso_from_ms(self._scope.now_ms())
        resources = check_cascade_resources(cascade_resources)
        metadata = {} if metadata is None else metadata
        entity = Entity(entity_id, name, parent_id, cascade, metadata, created_at, resources)
        check_entity(entity)
        # The caller may change its dictionary later.
        entity = replace(entity, metadata=deepcopy(entity.metadata))
        details = {"name": name, **parent_details(entity)}
        change = AuditChange(AuditAction.ENTITY_CREATED, entity_id, principal, None, details)
        EntityStore(self._scope).create(entity, change)
        return entity

    def set_parent(
        self,
        entity_id: str,
        parent_id: str | None,
        cascade: bool | None = None,
        cascade_resources: Collection[str] | None = None,
        principal: str | None = None,
    ) -> Entity:
        """Give an entity another parent, or no parent if ``parent_id`` is None, and return the entity.

        ``cascade`` None keeps whether it cascades. ``cascade_resources`` are the resources for which it does, None for
        all. Other clients notice within the lifetime of their cached limits. Open leases settle with the buckets that
        they took from.

        Raises:
            EntityNotFoundError: The entity or the parent does not exist.
            TooManyBucketsError: It would cascade to too many levels.
            ValidationError: An argument is invalid, or the parent is below the entity.
            KindNotAllowedError: The table does not allow such a cascade yet, and this client may not allow it.
        """
        check_entity_id(entity_id)
        resources = check_cascade_resources(cascade_resources)
        if cascade is not None and type(cascade) is not bool:
            raise ValidationError("cascade", cascade, "must be True, False or None")
        return EntityStore(self._scope).move(entity_id, parent_id, cascade, resources, principal)

    def block_entity(
        self,
        entity_id: str,
        resource: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        principal: str | None = None,
    ) -> None:
        """Refuse all requests of an entity, and of those that cascade to it, with ``EntityBlockedError``.

        With a resource, only requests for it are refused. ``until`` is an aware datetime, None for no end. The clock of
        the server counts. Other clients notice within the lifetime of their cached limits.

        Raises:
            EntityNotFoundError: The entity does not exist.
            ValidationError: An argument is invalid, or the entity has too many blocks.
            KindNotAllowedError: The table does not allow blocks yet, and this client may not allow them.
        """
        check_entity_id(entity_id)
        block = check_block(resource, reason, until, self._scope.now_ms())
        details = {"reason": reason, "until": None if block.until_ms is None else iso_from_ms(block.until_ms)}
        change = AuditChange(AuditAction.ENTITY_BLOCKED, entity_id, principal, resource, details)
        EntityStore(self._scope).block(entity_id, block, change)

    def unblock_entity(self, entity_id: str, resource: str | None = None, principal: str | None = None) -> None:
        """Remove the block of a resource, or all blocks of an entity if it is None; without a block, do nothing.

        Raises:
            EntityNotFoundError: The entity does not exist.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource)
        change = AuditChange(AuditAction.ENTITY_UNBLOCKED, entity_id, principal, resource)
        EntityStore(self._scope).unblock(entity_id, resource, change)

    def set_bypass(self, entity_id: str, bypass: bool, principal: str | None = None) -> None:
        """Let no limit reject the requests of an entity, or end that. What it uses is still counted.

        Raises:
            EntityNotFoundError: The entity does not exist.
            ValidationError: ``bypass`` is neither True nor False.
            KindNotAllowedError: The table does not allow a bypass yet, and this client may not allow it.
        """
        check_entity_id(entity_id)
        if type(bypass) is not bool:
            raise ValidationError("bypass", bypass, "must be True or False")
        change = AuditChange(AuditAction.BYPASS_SET, entity_id, principal, None, {"bypass": bypass})
        EntityStore(self._scope).set_bypass(entity_id, bypass, change)

    def get_entity(self, entity_id: str) -> Entity | None:
        """Return an entity, None if it does not exist."""
        check_entity_id(entity_id)
        return EntityStore(self._scope).get(entity_id)

    def delete_entity(self, entity_id: str, principal: str | None = None) -> None:
        """Delete an entity with its limits and buckets; its usage and audit events are kept.

        Raises:
            EntityNotFoundError: The entity does not exist.
            EntityHasChildrenError: The entity has children; delete these first.
        """
        check_entity_id(entity_id)
        change = AuditChange(AuditAction.ENTITY_DELETED, entity_id, principal)
        EntityStore(self._scope).delete(entity_id, change)

    def list_entities(
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
        found, last = EntityStore(self._scope).listed(limit, after)
        return found, None if last is None else make_cursor(ALL_ENTITIES, last)

    def get_children(self, parent_id: str) -> list[Entity]:
        """Return the children of an entity, in the order of their ids."""
        check_entity_id(parent_id, "parent_id")
        return EntityStore(self._scope).children(parent_id)
