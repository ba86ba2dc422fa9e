"""The public class that opens a table and has the admin methods."""  # generated from _async by tools/mirror.py; do not edit

import logging
import os
from random import Random
from typing import TYPE_CHECKING, Any, Unpack

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.admin import AdminVerbs
from zae_limiter._sync.open import Opening, located, open_scope
from zae_limiter._sync.protocol import ScopedRepository
from zae_limiter._sync.store.namespaces import NamespaceStore
from zae_limiter._sync.store.scope import Closable, Scope
from zae_limiter.clock import Clock, SystemClock
from zae_limiter.core.errors import RateLimiterUnavailable, RepositoryClosedError, ValidationError
from zae_limiter.core.location import (
    DynamoLocation,
    choose_url,
    deployed_at,
    deployed_name,
    shown_name,
    without_credentials,
)
from zae_limiter.core.names import check_namespace
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import BackendCapabilities, OnUnavailable
from zae_limiter.runtime.threads import ParallelMode
from zae_limiter.schema.config_item import system_place

if TYPE_CHECKING:
    from zae_limiter._sync.builder import SyncRepositoryBuilder
    from zae_limiter._sync.deprecated import Named
    from zae_limiter.infra.stack import StackListener

_log = logging.getLogger("zae_limiter")


class SyncRepository(ScopedRepository, AdminVerbs, Closable):
    """The stored limits and buckets of one namespace.

    Example:
        ```python
        repo = SyncRepository.open("memory://")
        repo.set_system_defaults([Limit.per_minute("rpm", 100)])
        ```
    """

    def __init__(self, scope: Scope | None = None, *, owns_table: bool = True, **named: "Unpack[Named]") -> None:
        """Use an open scope. A name instead of a scope is deprecated: the first method call then opens the table.

        Raises:
            ValidationError: There is neither a scope nor a name, or there are both.
        """
        if scope is None:
            # Imported here, so that a repository that is open does not load the deprecated classes.
            from zae_limiter._sync.deprecated import LateRepository, late_form, warn_deprecated

            # Not in __new__, which would get the arguments of a subclass's own constructor.
            self.__class__ = late_form(type(self), LateRepository)
            assert isinstance(self, LateRepository)
            LateRepository.__init__(self, named, owns_table=owns_table)
            warn_deprecated(type(self).__name__)
            return
        if named:
            raise ValidationError("repository", sorted(named), "is open already: pass these where you open it")
        self._scope = scope
        self._owns_table = owns_table
        self._closed = False

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
        remembered_buckets: int = 100_000,
        settle_within: float = 0.0,
        parallel_mode: ParallelMode = "auto",
        clock: Clock | None = None,
        random: Random | None = None,
        session: Any = None,
    ) -> "SyncRepository":
        """Open the table of a URL: ``memory://``, ``sqlite:///file.db`` or ``dynamodb://name?region=us-east-1``.

        Without a URL, the environment variable ``ZAE_LIMITER_URL`` is used, or else a SQLite file in the user's data
        directory. Which one was opened, and why, is logged at level INFO. ``session`` is a botocore or boto3 session
        for DynamoDB. Without one, botocore finds the credentials.

        With ``settle_within`` above 0, a settlement waits up to this many seconds. It is written with the next take
        from its bucket, or with the other settlements of the interval. A process that is killed loses what waits.

        Raises:
            ValidationError: The URL or an option is invalid, or only ``ZAEL_STACK`` or ``ZAEL_NAMESPACE`` is set.
            NamespaceNotFoundError: The namespace does not exist.
            InfrastructureError: The file cannot be used; the error says why.
            VersionError: The table has another schema, or requires a newer client.
        """
        check_namespace(namespace)
        settings = make_settings(
            config_cache_ttl_s=config_cache_ttl,
            on_unavailable=on_unavailable,
            bucket_ttl_multiplier=bucket_ttl_multiplier,
            deadline_s=deadline_s,
            reject_locally_s=reject_locally_s,
            remembered_buckets=remembered_buckets,
            settle_within_s=settle_within,
        )
        chosen = choose_url(url, os.environ)
        opening = Opening(located(chosen.url), settings, clock or SystemClock(), random or Random(), session)
        opened = cls(open_scope(opening, runtime.Parallel(parallel_mode), namespace))
        _log.info("Opened %s, because %s", repr(opened), chosen.reason)
        return opened

    @classmethod
    def connect(  # noqa: PLR0913 - the signature of the specification
        cls,
        name: str,
        region: str | None = None,
        *,
        endpoint_url: str | None = None,
        namespace: str = "default",
        config_cache_ttl: float = 60,
        auto_update: bool | None = None,
        deadline_s: float = 1.0,
        remembered_buckets: int = 100_000,
        settle_within: float = 0.0,
        parallel_mode: ParallelMode = "auto",
        session: Any = None,
    ) -> "SyncRepository":
        """Connect to a deployed limiter.

        ``auto_update`` controls the update of an aggregator that is older than this client. If True, it is always
        updated. If False, an older aggregator is an error. If None, it is updated on AWS if the caller has permission.

        Raises:
            ValidationError: A name or an option is invalid, or no region is configured.
            InfrastructureNotFoundError: The limiter does not exist.
            NamespaceNotFoundError: The namespace does not exist.
            InfrastructureError: There are no credentials, or the configuration cannot be used.
            VersionError: The table has another schema or requires a newer client, or the aggregator is too old.
        """
        builder = cls.builder(name, region, endpoint_url=endpoint_url, parallel_mode=parallel_mode, session=session)
        builder.namespace(namespace).config_cache_ttl(config_cache_ttl).auto_update(auto_update).deadline_s(deadline_s)
        builder.remembered_buckets(remembered_buckets).settle_within(settle_within)
        return builder.connect()

    @classmethod
    def builder(
        cls,
        name: str,
        region: str | None = None,
        *,
        endpoint_url: str | None = None,
        parallel_mode: ParallelMode = "auto",
        session: Any = None,
    ) -> "SyncRepositoryBuilder[SyncRepository]":
        """Configure a limiter on DynamoDB; ``build()`` then deploys and opens it."""
        # Imported here, because a process that limits in memory or in a file does not need it.
        from zae_limiter._sync.builder import SyncRepositoryBuilder

        return SyncRepositoryBuilder(DynamoLocation(name, region, endpoint_url), cls, parallel_mode, session)

    def ensure_infrastructure(self) -> None:
        """Deploy the stack that a deprecated constructor has named; do nothing for a repository that is open.

        Raises:
            UnsupportedByBackendError: The table is a file or in memory, so it has no infrastructure.
            RepositoryClosedError: The repository is closed.
            InfrastructureError: The deployment failed; the error says why, and what to do.
        """
        if self._closed:
            raise RepositoryClosedError(without_credentials(self._url))
        deployed_name(self.name, "ensure_infrastructure")

    def create_stack(self, listener: "StackListener | None" = None) -> None:
        """Create the stack of this limiter, or update it to this version and to the options that the builder set.

        The stack keeps all other options. A repository that was not built changes none. The aggregator gets the code
        of this installation, unless its code is newer. ``listener`` is called for every step.

        Raises:
            UnsupportedByBackendError: The table is a file or in memory, so it has no stack.
            RepositoryClosedError: The repository is closed.
            VersionError: The table has another schema or requires a newer client; nothing was changed.
            InfrastructureError: The deployment failed; the error says why, and what to do.
        """
        # Imported here, because a process that only limits does not deploy.
        from zae_limiter._sync.deployment import deploy_stack

        location = self._deployed("create_stack", "it needs no stack, because opening it creates it")
        client = self._scope.client
        deploy_stack(location, client.stack_options, listener, session=client.session)

    def delete_stack(self, *, keep_archive: bool = True, listener: "StackListener | None" = None) -> None:
        """Delete the stack of this limiter with its table and **all data**, and close the repository.

        The bucket of archived audit events stays if ``keep_archive``. If the deletion fails, the repository stays open.
        ``listener`` is called for every step.

        Raises:
            UnsupportedByBackendError: The table is a file or in memory, so it has no stack.
            RepositoryClosedError: The repository is closed.
            StackOperationError: The stack is protected, or the deletion failed; the error says why.
        """
        # Imported here, because a process that only limits does not deploy.
        from zae_limiter._sync.deployment import delete_stack

        location = self._deployed("delete_stack", "close it, and delete its file if it has one")
        client = self._scope.client
        delete_stack(location, keep_archive=keep_archive, listener=listener, session=client.session)
        # Also closed by a repository of another namespace: all share the table, which is gone.
        self._closed = True
        client.close()

    def namespace(self, name: str) -> "SyncRepository":
        """Return a repository for another namespace of the same table; they share the connection.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
        """
        client = self._scope.client
        found = NamespaceStore(client).find(name)
        return SyncRepository(client.scope(name, found.id), owns_table=False)

    @property
    def scope(self) -> Scope:
        """The table, the namespace and its caches.

        Raises:
            StorageError: The repository is not open yet.
        """
        return self._scope

    @property
    def name(self) -> str:
        """The name of the stack on DynamoDB; in memory or a file, the URL of the table."""
        return shown_name(self._url)

    @property
    def namespace_name(self) -> str:
        """The name of the namespace."""
        return self._scope.namespace

    @property
    def namespace_id(self) -> str:
        """The id of the namespace, which prefixes its keys in the table."""
        return self._scope.namespace_id

    @property
    def capabilities(self) -> BackendCapabilities:
        """The features of the table."""
        return self._scope.table.capabilities

    def ping(self) -> bool:
        """Return whether the table responds; False after ``close()``."""
        try:
            self._scope.table.get(system_place(self._scope.namespace_id).key)
        except (RateLimiterUnavailable, RepositoryClosedError):
            return False
        return True

    def close(self) -> None:
        """Close the table permanently, for all its namespaces; a second call does nothing.

        After that, every method that needs the table raises ``RepositoryClosedError``. So do calls in flight. Closing a
        repository that ``namespace`` returned has no effect.
        """
        if self._owns_table:
            self._closed = True
            self._scope.client.close()

    def _deployed(self, operation: str, hint: str) -> DynamoLocation:
        """Return the location of the table, for an operation on its stack."""
        if self._closed:
            raise RepositoryClosedError(self.name)
        return deployed_at(self._scope.client.location, operation, hint)

    @property
    def _url(self) -> str:
        return self._scope.client.location

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"{type(self).__name__}({without_credentials(self._url)!r}, namespace={self.namespace_name!r}{state})"
