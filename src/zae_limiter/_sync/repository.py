"""SyncRepository: opens a table, and the public admin verbs."""  # generated from _async by tools/mirror.py; do not edit

import os
from collections.abc import Sequence
from random import Random
from types import TracebackType

from zae_limiter._sync.opening import Opening, open_client
from zae_limiter._sync.runtime import Parallel, ParallelMode
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.namespaces import NamespaceStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.clock import Clock, SystemClock
from zae_limiter.core.audit import SYSTEM_AUDIT_ID, AuditAction, Change, resource_audit_id
from zae_limiter.core.config import ResolvedLimits
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.names import DEFAULT_RESOURCE, check_entity_id, check_namespace, check_resource
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import BackendCapabilities, CacheStats, OnUnavailable, check_on_unavailable
from zae_limiter.schema.config_item import ConfigPlace, entity_place, resource_place, system_place

URL_VARIABLE = "ZAE_LIMITER_URL"


class SyncRepository:
    """Where limits and buckets are kept, seen through one namespace.

    Example:
        ```python
        repo = SyncRepository.open("memory://")
        repo.set_system_defaults([Limit.per_minute("rpm", 100)])
        ```
    """

    def __init__(self, scope: Scope, *, owns_table: bool) -> None:
        self._scope = scope
        self._owns_table = owns_table
        self._configs = ConfigStore(scope)

    @classmethod
    def open(  # noqa: PLR0913 - the signature of the specification
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        config_cache_ttl: float = 60,
        on_unavailable: OnUnavailable | str | None = None,
        bucket_ttl_multiplier: int = 7,
        deadline_s: float = 1.0,
        reject_locally_s: float = 1.0,
        parallel_mode: ParallelMode = "auto",
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> "SyncRepository":
        """Open the table a URL names: ``memory://``, ``sqlite:///file.db`` or ``dynamodb://name?region=us-east-1``.

        Without a URL it is ``ZAE_LIMITER_URL``'s, else a SQLite file in the user's data directory.

        Raises:
            ValidationError: The URL or an option is not what it must be.
            NamespaceNotFoundError: There is no such namespace.
            InfrastructureError: The file cannot be used; the error says why.
        """
        check_namespace(namespace)
        settings = make_settings(
            config_cache_ttl_s=config_cache_ttl,
            on_unavailable=on_unavailable,
            bucket_ttl_multiplier=bucket_ttl_multiplier,
            deadline_s=deadline_s,
            reject_locally_s=reject_locally_s,
        )
        chosen = url if url is not None else os.environ.get(URL_VARIABLE) or None
        opening = Opening(chosen, settings, clock or SystemClock(), random or Random())
        client = open_client(opening, Parallel(parallel_mode))
        try:
            scope = client.scope(namespace, opening.namespace_id(client.table, namespace))
        except BaseException:
            client.table.close()
            raise
        return cls(scope, owns_table=True)

    def namespace(self, name: str) -> "SyncRepository":
        """Return the same repository seen through another namespace; connection and caches are shared.

        Raises:
            NamespaceNotFoundError: There is no such namespace.
        """
        client = self._scope.client
        found = NamespaceStore(client.table, client.clock, client.random).find(name)
        return SyncRepository(client.scope(name, found.id), owns_table=False)

    @property
    def scope(self) -> Scope:
        """The table, the namespace, and the client's memory of it."""
        return self._scope

    @property
    def name(self) -> str:
        """Where the table is."""
        return self._scope.client.location

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the table can do."""
        return self._scope.table.capabilities

    def ping(self) -> bool:
        """Say whether the table answers."""
        try:
            self._scope.table.get(system_place(self._scope.namespace_id).key)
        except RateLimiterUnavailable:
            return False
        return True

    def close(self) -> None:
        """Let go of the table; closing a repository that ``namespace`` returned leaves the table open."""
        if self._owns_table:
            self._scope.table.close()

    def __enter__(self) -> "SyncRepository":
        """Enter."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def set_limits(
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
        self._configs.set(place, checked, change)
        self._scope.caches.forget_limits_of(entity_id)

    def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the limits stored for an entity; empty if there are none."""
        return self._stored(self._entity_place(entity_id, resource))

    def set_resource_defaults(self, resource: str, limits: Sequence[Limit], principal: str | None = None) -> None:
        """Store the limits of every entity for a resource.

        Raises:
            ValidationError: A name or a limit is not what it must be.
        """
        place = self._resource_place(resource)
        checked, audit_id = check_limits(limits), resource_audit_id(resource)
        change = Change(AuditAction.RESOURCE_DEFAULTS_SET, audit_id, principal, resource, _details(checked))
        self._configs.set(place, checked, change)
        self._scope.caches.forget_limits()

    def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits stored for a resource; empty if there are none."""
        return self._stored(self._resource_place(resource))

    def set_system_defaults(
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
        self._configs.set_system(place, checked, choice, change)
        self._scope.caches.forget_limits()

    def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits stored for the system, and what to do while the store is away."""
        found = self._configs.get(system_place(self._scope.namespace_id))
        return ([], None) if found is None else (list(found.limits), found.on_unavailable)

    def resolve_limits(self, entity_id: str, resource: str) -> ResolvedLimits:
        """Return the limits in force for an entity and a resource, and where they come from."""
        check_entity_id(entity_id)
        check_resource(resource)
        found = (self._configs.known((entity_id, resource))).resolution
        return ResolvedLimits(list(found.limits) or None, found.on_unavailable, found.source)

    def invalidate_config_cache(self) -> None:
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

    def _stored(self, place: ConfigPlace) -> list[Limit]:
        found = self._configs.get(place)
        return [] if found is None else list(found.limits)


def _details(limits: Sequence[Limit]) -> dict[str, object]:
    return {"limits": [limit.to_dict() for limit in limits]}
