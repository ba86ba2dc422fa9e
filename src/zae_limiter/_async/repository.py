"""Repository: opens a table, and the public admin verbs."""

import os
from random import Random
from types import TracebackType
from typing import Any

from zae_limiter._async.opening import Opening, located, open_client
from zae_limiter._async.runtime import Parallel, ParallelMode
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.verbs import AdminVerbs
from zae_limiter.clock import Clock, SystemClock
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.location import DynamoLocation
from zae_limiter.core.names import check_namespace, check_stack_name
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import BackendCapabilities, OnUnavailable
from zae_limiter.schema.config_item import system_place

URL_VARIABLE = "ZAE_LIMITER_URL"


class Repository(AdminVerbs):
    """Where limits and buckets are kept, seen through one namespace.

    Example:
        ```python
        repo = await Repository.open("memory://")
        await repo.set_system_defaults([Limit.per_minute("rpm", 100)])
        ```
    """

    def __init__(self, scope: Scope, *, owns_table: bool) -> None:
        self._scope = scope
        self._owns_table = owns_table

    @classmethod
    async def open(  # noqa: PLR0913 - the signature of the specification
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
        session: Any = None,
    ) -> "Repository":
        """Open the table a URL names: ``memory://``, ``sqlite:///file.db`` or ``dynamodb://name?region=us-east-1``.

        Without a URL it is ``ZAE_LIMITER_URL``'s, else a SQLite file in the user's data directory. ``session`` is a
        session of botocore or boto3 for DynamoDB to use; without one, credentials are found as botocore finds them.

        Raises:
            ValidationError: The URL or an option is not what it must be.
            NamespaceNotFoundError: There is no such namespace.
            InfrastructureError: The file cannot be used; the error says why.
            VersionError: The table is of another schema, or asks for a newer client.
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
        opening = Opening(located(chosen), settings, clock or SystemClock(), random or Random(), session)
        return await cls._opened(opening, Parallel(parallel_mode), namespace)

    @classmethod
    async def connect(  # noqa: PLR0913 - the signature of the specification
        cls,
        name: str,
        region: str | None = None,
        *,
        endpoint_url: str | None = None,
        namespace: str = "default",
        config_cache_ttl: float = 60,
        auto_update: bool = True,
        parallel_mode: ParallelMode = "auto",
        session: Any = None,
    ) -> "Repository":
        """Connect to a limiter that was deployed to DynamoDB.

        Raises:
            ValidationError: A name or an option is not what it must be, or no region is configured.
            InfrastructureNotFoundError: There is no such limiter.
            NamespaceNotFoundError: There is no such namespace.
            InfrastructureError: There are no credentials, or the configuration cannot be used.
            VersionError: The table is of another schema, or asks for a newer client.
        """
        check_namespace(namespace)
        check_stack_name(name)
        settings = make_settings(config_cache_ttl_s=config_cache_ttl)
        location = DynamoLocation(name, region, endpoint_url)
        opening = Opening(location, settings, SystemClock(), Random(), session)
        return await cls._opened(opening, Parallel(parallel_mode), namespace)

    @classmethod
    async def _opened(cls, opening: Opening, parallel: Parallel, namespace: str) -> "Repository":
        client = await open_client(opening, parallel)
        try:
            scope = client.scope(namespace, await opening.namespace_id(client, namespace))
            await opening.check_version(client)
        except BaseException:
            await client.table.close()
            raise
        return cls(scope, owns_table=True)

    async def namespace(self, name: str) -> "Repository":
        """Return the same repository seen through another namespace; connection and caches are shared.

        Raises:
            NamespaceNotFoundError: There is no such namespace.
        """
        client = self._scope.client
        found = await NamespaceStore(client).find(name)
        return Repository(client.scope(name, found.id), owns_table=False)

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

    async def ping(self) -> bool:
        """Say whether the table answers."""
        try:
            await self._scope.table.get(system_place(self._scope.namespace_id).key)
        except RateLimiterUnavailable:
            return False
        return True

    async def close(self) -> None:
        """Let go of the table; closing a repository that ``namespace`` returned leaves the table open."""
        if self._owns_table:
            await self._scope.table.close()

    async def __aenter__(self) -> "Repository":
        """Enter."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
