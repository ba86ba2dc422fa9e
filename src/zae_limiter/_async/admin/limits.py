"""The admin methods for stored limits."""

from collections.abc import Sequence

from zae_limiter._async.store.configs import ConfigStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import SYSTEM_AUDIT_ID, AuditAction, AuditChange, resource_audit_id
from zae_limiter.core.config import ResolvedLimits, check_inherit, entity_of_cursor, make_cursor
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.names import DEFAULT_RESOURCE, MAX_AMOUNT, check_entity_id, check_resource, check_whole_number
from zae_limiter.core.status import CacheStats, OnUnavailable, check_on_unavailable
from zae_limiter.schema.config_item import (
    ConfigPlace,
    entity_place,
    entity_registry,
    resource_place,
    resource_registry,
    system_place,
)


class LimitVerbs:
    """Sets, reads, deletes and lists limits at every level."""

    _scope: Scope

    async def set_limits(
        self,
        entity_id: str,
        limits: Sequence[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        inherit: bool = False,
    ) -> None:
        """Store the limits of an entity for one resource. They replace those that were stored for it.

        With ``_default_`` they apply to all resources for which the entity has no limits of its own. With
        ``ALL_RESOURCES``, all resources of the entity share them, in addition to the limits of each resource. With
        ``inherit``, limits that are not given here come from the next level. Otherwise only the given limits are in
        force.

        Raises:
            ValidationError: A name or a limit is invalid.
            KindNotAllowedError: Such limits are not allowed yet, and this client may not allow them.
        """
        place = self._entity_place(entity_id, resource)
        checked = check_limits(limits)
        check_inherit(inherit)
        change = AuditChange(AuditAction.LIMITS_SET, entity_id, principal, resource, _details(checked, inherit))
        await ConfigStore(self._scope).set(place, checked, change, inherit=inherit)

    async def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the limits stored for an entity, empty if there are none."""
        return await self._stored(self._entity_place(entity_id, resource))

    async def delete_limits(
        self, entity_id: str, resource: str = DEFAULT_RESOURCE, principal: str | None = None
    ) -> None:
        """Delete the limits stored for an entity, so that the next level applies; do nothing if there are none."""
        place = self._entity_place(entity_id, resource)
        change = AuditChange(AuditAction.LIMITS_DELETED, entity_id, principal, resource)
        await ConfigStore(self._scope).delete(place, change)

    async def list_entities_with_custom_limits(
        self, resource: str, limit: int | None = None, cursor: str | None = None
    ) -> tuple[list[str], str | None]:
        """Return the entities with limits of their own for a resource, in order, and the cursor of the next page.

        ``limit`` is the length of a page, None for all entities. The cursor is None after the last page. ``_default_``
        finds the entities that have limits for all resources.

        Raises:
            ValidationError: The cursor is not from this method and resource.
        """
        check_resource(resource, allow_default=True, allow_all=True)
        if limit is not None:
            check_whole_number("limit", limit, 1, MAX_AMOUNT)
        after = None if cursor is None else entity_of_cursor(cursor, resource)
        found, last = await ConfigStore(self._scope).entities(resource, limit, after)
        return found, None if last is None else make_cursor(resource, last)

    async def list_resources_with_entity_configs(self) -> list[str]:
        """Return the resources for which entities have limits of their own, in order, including ``_default_``."""
        return await ConfigStore(self._scope).resources(entity_registry(self._scope.namespace_id))

    async def set_resource_defaults(
        self, resource: str, limits: Sequence[Limit], principal: str | None = None, inherit: bool = False
    ) -> None:
        """Store the limits of a resource, for all entities without limits of their own.

        With ``ALL_RESOURCES``, the resources of each entity share them, in addition to the limits of each resource.
        With ``inherit``, limits that are not given here come from the system defaults.

        Raises:
            ValidationError: A name or a limit is invalid.
            KindNotAllowedError: Such limits are not allowed yet, and this client may not allow them.
        """
        place = self._resource_place(resource)
        checked, audit_id = check_limits(limits), resource_audit_id(resource)
        check_inherit(inherit)
        details = _details(checked, inherit)
        change = AuditChange(AuditAction.RESOURCE_DEFAULTS_SET, audit_id, principal, resource, details)
        await ConfigStore(self._scope).set(place, checked, change, inherit=inherit)

    async def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits stored for a resource, empty if there are none."""
        return await self._stored(self._resource_place(resource))

    async def delete_resource_defaults(self, resource: str, principal: str | None = None) -> None:
        """Delete the limits stored for a resource, so that the system's apply; do nothing if there are none."""
        place = self._resource_place(resource)
        change = AuditChange(AuditAction.RESOURCE_DEFAULTS_DELETED, resource_audit_id(resource), principal, resource)
        await ConfigStore(self._scope).delete(place, change)

    async def list_resources_with_defaults(self) -> list[str]:
        """Return the resources that have limits of their own, in order."""
        return await ConfigStore(self._scope).resources(resource_registry(self._scope.namespace_id))

    async def set_system_defaults(
        self,
        limits: Sequence[Limit],
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
    ) -> None:
        """Store the limits for entities and resources without other limits, and the choice for an unavailable store.

        ``on_unavailable`` allows or blocks requests while the store is unavailable; None leaves it unchanged.

        Raises:
            ValidationError: A limit is invalid.
        """
        choice = check_on_unavailable(on_unavailable)
        checked = check_limits(limits)
        details = _details(checked, inherit=False) | ({} if choice is None else {"on_unavailable": choice.value})
        change = AuditChange(AuditAction.SYSTEM_DEFAULTS_SET, SYSTEM_AUDIT_ID, principal, None, details)
        place = system_place(self._scope.namespace_id)
        await ConfigStore(self._scope).set_system(place, checked, choice, change)

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits stored for the system, and the choice for an unavailable store, None if not set."""
        found = await ConfigStore(self._scope).get(system_place(self._scope.namespace_id))
        return ([], None) if found is None else (list(found.limits), found.on_unavailable)

    async def delete_system_defaults(self, principal: str | None = None) -> None:
        """Delete the limits of the system and the choice for an unavailable store; do nothing if there are none."""
        change = AuditChange(AuditAction.SYSTEM_DEFAULTS_DELETED, SYSTEM_AUDIT_ID, principal)
        await ConfigStore(self._scope).delete_system(system_place(self._scope.namespace_id), change)

    async def resolve_limits(self, entity_id: str, resource: str) -> ResolvedLimits:
        """Return the effective limits of an entity for a resource, and their source.

        The source is ``entity``, ``entity_default``, ``resource`` or ``system``, None if there are no limits. With
        inherited limits, it is the nearest level, and ``sources`` has the level of each limit.

        With ``ALL_RESOURCES``, these are the limits that all resources of the entity share.
        """
        check_entity_id(entity_id)
        check_resource(resource, allow_all=True)
        found = (await ConfigStore(self._scope).known((entity_id, resource))).resolution
        sources = {limit.name: source for limit, source in zip(found.limits, found.sources, strict=True)}
        return ResolvedLimits(list(found.limits) or None, found.on_unavailable, found.source, sources)

    async def invalidate_config_cache(self) -> None:
        """Drop all cached limits; they are read again at their next use."""
        self._scope.caches.forget_limits()

    def get_cache_stats(self) -> CacheStats:
        """Return the statistics of the cache of limits."""
        return self._scope.caches.stats(self._scope.settings.config_cache_ttl_ms / 1000)

    def _entity_place(self, entity_id: str, resource: str) -> ConfigPlace:
        check_entity_id(entity_id)
        check_resource(resource, allow_default=True, allow_all=True)
        return entity_place(self._scope.namespace_id, entity_id, resource)

    def _resource_place(self, resource: str) -> ConfigPlace:
        check_resource(resource, allow_all=True)
        return resource_place(self._scope.namespace_id, resource)

    async def _stored(self, place: ConfigPlace) -> list[Limit]:
        found = await ConfigStore(self._scope).get(place)
        return [] if found is None else list(found.limits)


def _details(limits: Sequence[Limit], inherit: bool) -> dict[str, object]:
    details: dict[str, object] = {"limits": [_recorded(limit) for limit in limits]}
    return details | {"inherit": True} if inherit else details


def _recorded(limit: Limit) -> dict[str, object]:
    """Return a limit as an audit event has it: without floats, which a table cannot store exactly."""
    warn_at = [f"{part:g}" for part in limit.warn_at]
    return limit.to_dict() | ({"warn_at": warn_at} if warn_at else {})
