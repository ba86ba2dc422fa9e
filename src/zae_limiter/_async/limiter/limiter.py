"""RateLimiter: the public verbs. The admin verbs are those of its repository."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from zae_limiter._async import runtime
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.protocol import RepositoryProtocol
from zae_limiter._async.verbs import AdminVerbs
from zae_limiter.core.acquire import amounts_of
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable

if TYPE_CHECKING:
    from zae_limiter.infra.discovery import LimiterInfo


class RateLimiter(AdminVerbs):
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

    def __init__(
        self, repository: RepositoryProtocol, *, speculative_writes: bool = True, group_commit: bool = True
    ) -> None:
        self._repository = repository
        self._scope = repository.scope
        self._client = BucketClient(repository.scope, speculative=speculative_writes, together=group_commit)

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
        return {one.name: one.available_milli(now) // 1000 for one in stands}

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

    @staticmethod
    async def list_deployed(region: str | None = None, endpoint_url: str | None = None) -> "list[LimiterInfo]":
        """Return the limiters that are deployed in a region, by name.

        Raises:
            ValidationError: No region is configured.
            InfrastructureError: There are no credentials, or AWS refuses, or cannot be reached.
        """
        # Whoever only limits does not pay for the clients.
        from zae_limiter.infra.clients import Clients
        from zae_limiter.infra.discovery import list_limiters

        return await runtime.in_thread(list_limiters, Clients(region, endpoint_url))

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
