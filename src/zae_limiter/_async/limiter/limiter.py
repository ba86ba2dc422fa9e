"""RateLimiter: the public verbs. Every admin verb is the repository's, handed on."""

from collections.abc import Sequence
from types import TracebackType

from zae_limiter._async import runtime
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.protocol import RepositoryProtocol
from zae_limiter.core.acquire import amounts_of
from zae_limiter.core.config import ResolvedLimits
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import DEFAULT_RESOURCE
from zae_limiter.core.status import CacheStats, OnUnavailable


class RateLimiter:
    """Limits calls by what is stored in a repository.

    Example:
        ```python
        repo = await Repository.open("memory://")
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)])
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            await lease.adjust(tpm=120)
        ```
    """

    def __init__(self, repository: RepositoryProtocol, *, speculative_writes: bool = True) -> None:
        self._repository = repository
        self._client = BucketClient(repository.scope, speculative=speculative_writes)

    @property
    def repository(self) -> RepositoryProtocol:
        """The repository."""
        return self._repository

    @property
    def name(self) -> str:
        """Where the limiter keeps its data."""
        return self._repository.name

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        limits: Sequence[Limit] | None = None,
        on_unavailable: OnUnavailable | str | None = None,
    ) -> Lease:
        """Take from every limit named in ``consume``, or from none.

        Entering takes and yields the lease; leaving writes its adjustments; leaving by an exception gives all back.
        ``limits`` stand in for the stored ones.

        Raises:
            RateLimitExceeded: A limit lacks the tokens. On entering, as are all of these.
            ValidationError: Names, amounts or limits are not what they must be, or can never be admitted.
            RateLimiterUnavailable: The store is away, and ``on_unavailable`` is to block.
        """
        return Lease(self._client, (entity_id, resource), consume, limits, on_unavailable)

    async def available(self, entity_id: str, resource: str, limits: Sequence[Limit] | None = None) -> dict[str, int]:
        """Return what is available of each limit now, below zero where it is in debt."""
        stands, _ = await self._client.standings((entity_id, resource), limits)
        now = self._client.now()
        return {one.baseline.name: one.available_milli(now) // 1000 for one in stands}

    async def time_until_available(
        self, entity_id: str, resource: str, needed: dict[str, int], limits: Sequence[Limit] | None = None
    ) -> float:
        """Return the seconds until everything needed is available, if nobody takes from it meanwhile."""
        if type(needed) is not dict:
            raise ValidationError("needed", needed, "must be a dict of limit names and amounts")
        stands, terms = await self._client.standings((entity_id, resource), limits)
        now = self._client.now()
        waits = [stands[position].wait_ms(milli, now) for position, milli in amounts_of(needed, terms, "needed")]
        return max(waits, default=0) / 1000

    async def is_available(self, timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - the specification names it so
        """Say whether the store answers within the timeout."""
        try:
            return await runtime.within(timeout, self._repository.ping)
        except TimeoutError:
            return False

    async def close(self) -> None:
        """Close the repository."""
        await self._repository.close()

    async def __aenter__(self) -> "RateLimiter":
        """Enter."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def set_limits(
        self,
        entity_id: str,
        limits: Sequence[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
    ) -> None:
        """Store the limits of an entity, for one resource or for all that have none of their own."""
        await self._repository.set_limits(entity_id, limits, resource, principal)

    async def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE) -> list[Limit]:
        """Return the limits stored for an entity; empty if there are none."""
        return await self._repository.get_limits(entity_id, resource)

    async def set_resource_defaults(self, resource: str, limits: Sequence[Limit], principal: str | None = None) -> None:
        """Store the limits of every entity for a resource."""
        await self._repository.set_resource_defaults(resource, limits, principal)

    async def get_resource_defaults(self, resource: str) -> list[Limit]:
        """Return the limits stored for a resource; empty if there are none."""
        return await self._repository.get_resource_defaults(resource)

    async def set_system_defaults(
        self,
        limits: Sequence[Limit],
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
    ) -> None:
        """Store the limits of every entity and resource without others, and what to do while the store is away."""
        await self._repository.set_system_defaults(limits, on_unavailable, principal)

    async def get_system_defaults(self) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits stored for the system, and what to do while the store is away."""
        return await self._repository.get_system_defaults()

    async def resolve_limits(self, entity_id: str, resource: str) -> ResolvedLimits:
        """Return the limits in force for an entity and a resource, and where they come from."""
        return await self._repository.resolve_limits(entity_id, resource)

    async def invalidate_config_cache(self) -> None:
        """Read all limits again when they are next needed."""
        await self._repository.invalidate_config_cache()

    def get_cache_stats(self) -> CacheStats:
        """Say how the cache of limits is doing."""
        return self._repository.get_cache_stats()
