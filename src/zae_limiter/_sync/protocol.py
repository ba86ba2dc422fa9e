"""SyncRepositoryProtocol: what the limiter needs of a repository."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import Protocol

from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.config import ResolvedLimits
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import BackendCapabilities, CacheStats, OnUnavailable


class SyncRepositoryProtocol(Protocol):
    """A place where limits and buckets are kept, seen through one namespace."""

    @property
    def scope(self) -> Scope:
        """The table, the namespace, and the client's memory of it."""

    @property
    def name(self) -> str:
        """Where it is."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What its table can do."""

    def ping(self) -> bool:
        """Say whether the table answers."""

    def close(self) -> None:
        """Let go of the table."""

    def set_limits(
        self, entity_id: str, limits: Sequence[Limit], resource: str = ..., principal: str | None = None
    ) -> None:
        """Store the limits of an entity, for one resource or for all that have none of their own."""

    def get_limits(self, entity_id: str, resource: str = ...) -> list[Limit]:
        """Return the limits stored for an entity."""

    def set_resource_defaults(self, resource: str, limits: Sequence[Limit], principal: str | None = None) -> None:
        """Store the limits of every entity for a resource."""

    def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits stored for a resource."""

    def set_system_defaults(
        self,
        limits: Sequence[Limit],
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
    ) -> None:
        """Store the limits of every entity and resource without others."""

    def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits stored for the system, and what to do while the store is away."""

    def resolve_limits(self, entity_id: str, resource: str) -> ResolvedLimits:
        """Return the limits in force for an entity and a resource, and where they come from."""

    def invalidate_config_cache(self) -> None:
        """Read all limits again when they are next needed."""

    def get_cache_stats(self) -> CacheStats:
        """Say how the cache of limits is doing."""
