"""Stored limits, as users set and read them."""

from collections.abc import Sequence

from zae_limiter._async.store.configs import ConfigStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import SYSTEM_AUDIT_ID, AuditAction, Change, resource_audit_id
from zae_limiter.core.config import ResolvedLimits
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.names import DEFAULT_RESOURCE, check_entity_id, check_resource
from zae_limiter.core.status import CacheStats, OnUnavailable, check_on_unavailable
from zae_limiter.schema.config_item import ConfigPlace, entity_place, resource_place, system_place


class ConfigVerbs:
    """Sets and reads limits at every level."""

    _scope: Scope

    async def set_limits(
        self,
        entity_id: str,
        limits: Sequence[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
    ) -> None:
        """Store the limits of an entity, for one resource or for all that have none of their own.

        Raises:
            ValidationError: A name or a limit is not what it must be.
        """
        place = self._entity_place(entity_id, resource)
        checked = check_limits(limits)
        change = Change(AuditAction.LIMITS_SET, entity_id, principal, resource, _details(checked))
        await ConfigStore(self._scope).set(place, checked, change)
        self._scope.caches.forget_limits_of(entity_id)

    async def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the limits stored for an entity; empty if there are none."""
        return await self._stored(self._entity_place(entity_id, resource))

    async def set_resource_defaults(self, resource: str, limits: Sequence[Limit], principal: str | None = None) -> None:
        """Store the limits of every entity for a resource.

        Raises:
            ValidationError: A name or a limit is not what it must be.
        """
        place = self._resource_place(resource)
        checked, audit_id = check_limits(limits), resource_audit_id(resource)
        change = Change(AuditAction.RESOURCE_DEFAULTS_SET, audit_id, principal, resource, _details(checked))
        await ConfigStore(self._scope).set(place, checked, change)
        self._scope.caches.forget_limits()

    async def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits stored for a resource; empty if there are none."""
        return await self._stored(self._resource_place(resource))

    async def set_system_defaults(
        self,
        limits: Sequence[Limit],
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
    ) -> None:
        """Store the limits of every entity and resource without others, and what to do while the store is away.

        ``on_unavailable=None`` leaves what was stored of it.

        Raises:
            ValidationError: A limit is not what it must be.
        """
        choice = check_on_unavailable(on_unavailable)
        checked = check_limits(limits)
        details = _details(checked) | ({} if choice is None else {"on_unavailable": choice.value})
        change = Change(AuditAction.SYSTEM_DEFAULTS_SET, SYSTEM_AUDIT_ID, principal, None, details)
        place = system_place(self._scope.namespace_id)
        await ConfigStore(self._scope).set_system(place, checked, choice, change)
        self._scope.caches.forget_limits()

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits stored for the system, and what to do while the store is away."""
        found = await ConfigStore(self._scope).get(system_place(self._scope.namespace_id))
        return ([], None) if found is None else (list(found.limits), found.on_unavailable)

    async def resolve_limits(self, entity_id: str, resource: str) -> ResolvedLimits:
        """Return the limits in force for an entity and a resource, and where they come from."""
        check_entity_id(entity_id)
        check_resource(resource)
        found = (await ConfigStore(self._scope).known((entity_id, resource))).resolution
        return ResolvedLimits(list(found.limits) or None, found.on_unavailable, found.source)

    async def invalidate_config_cache(self) -> None:
        """Read all limits again when they are next needed."""
        self._scope.caches.forget_limits()

    def get_cache_stats(self) -> CacheStats:
        """Say how the cache of limits is doing."""
        return self._scope.caches.stats(self._scope.settings.config_cache_ttl_ms / 1000)

    def _entity_place(self, entity_id: str, resource: str) -> ConfigPlace:
        check_entity_id(entity_id)
        check_resource(resource, allow_default=True)
        return entity_place(self._scope.namespace_id, entity_id, resource)

    def _resource_place(self, resource: str) -> ConfigPlace:
        check_resource(resource)
        return resource_place(self._scope.namespace_id, resource)

    async def _stored(self, place: ConfigPlace) -> list[Limit]:
        found = await ConfigStore(self._scope).get(place)
        return [] if found is None else list(found.limits)


def _details(limits: Sequence[Limit]) -> dict[str, object]:
    return {"limits": [limit.to_dict() for limit in limits]}
