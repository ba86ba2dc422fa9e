"""Deploys the stack around a table of DynamoDB, and keeps its aggregator at the client's version."""  # generated from _async by tools/mirror.py; do not edit

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.open import Opening, open_client, open_scope, own_version
from zae_limiter._sync.store.namespaces import NamespaceStore
from zae_limiter._sync.store.scope import Client, Scope
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.errors import InfrastructureError, InfrastructureNotFoundError
from zae_limiter.core.location import DynamoLocation
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.version import (
    FunctionUpdate,
    VersionRecord,
    check_client,
    check_function,
    compare,
    may_replace,
)
from zae_limiter.infra.options import StackOptions
from zae_limiter.runtime.threads import Parallel

if TYPE_CHECKING:
    from zae_limiter.infra.clients import Clients
    from zae_limiter.infra.stack import StackListener

_log = logging.getLogger("zae_limiter")

# A new table responds slowly, and no acquire waits for it.
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class RequestedStack:
    """The requested options of a stack, a listener for progress, and whether to replace the aggregator's code."""

    options: StackOptions | None
    listener: "StackListener | None"
    replace: bool


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """A limiter on DynamoDB: how to open it, and whether to update an aggregator that is older than the client."""

    opening: Opening
    location: DynamoLocation
    update: FunctionUpdate

    def connect(self, parallel: Parallel, namespace: str) -> Scope:
        """Open a deployed limiter, and update its aggregator to the client's version if that is configured.

        Raises:
            InfrastructureNotFoundError: The limiter does not exist.
            NamespaceNotFoundError: The namespace does not exist.
            VersionError: The versions are incompatible.
        """
        return open_scope(self.opening, parallel, namespace, self._keep_new)

    def provide(self, options: StackOptions | None, listener: "StackListener | None" = None) -> None:
        """Create or update the stack, the version record and the default namespace.

        Nothing is changed if the table requires a newer client.

        Raises:
            VersionError: The versions are incompatible.
            InfrastructureError: The deployment failed; the error says why.
        """
        settings = replace(self.opening.settings, deadline_s=_DEADLINE_S)
        client = open_client(replace(self.opening, settings=settings), Parallel("serial"))
        try:
            seen = self._seen(client)
            if options is not None or seen is None:
                self._provide_stack(client, seen, options, listener)
            else:
                self._keep_new(client, seen)
            NamespaceStore(client).register(DEFAULT_NAMESPACE)
        finally:
            client.table.close()

    def _seen(self, client: Client) -> VersionRecord | None:
        """Return the version record of the table, None if it has none; raise if this client must not change it."""
        try:
            seen = VersionStore(client).read()
        except InfrastructureNotFoundError:
            return None
        if seen is not None:
            check_client(seen, own_version())
            if self.update is FunctionUpdate.NEVER:
                check_function(seen, own_version())
        return seen

    def _provide_stack(
        self,
        client: Client,
        seen: VersionRecord | None,
        options: StackOptions | None,
        listener: "StackListener | None",
    ) -> None:
        clients = self._clients()
        replaced = may_replace(seen, own_version(), self.update)
        wanted = RequestedStack(options, listener, replaced)
        has_function = runtime.in_thread(_provide, clients, self.location.name, wanted)
        kept = None if seen is None else seen.lambda_version
        version = (own_version() if replaced else kept) if has_function else None
        VersionStore(client).set_deployed(version, None if options is None else options.audit_retention_days)

    def _keep_new(self, client: Client, record: VersionRecord | None) -> None:
        """Update an aggregator that is older than the client, if that is configured."""
        if record is None or not compare(record, own_version()).function_outdated:
            return
        match self.update:
            case FunctionUpdate.NEVER:
                check_function(record, own_version())
            case FunctionUpdate.ALWAYS:
                self._update(client, self._clients())
            case FunctionUpdate.ON_AWS:
                self._update_on_aws(client, record)

    def _update_on_aws(self, client: Client, record: VersionRecord) -> None:
        """Update the aggregator if the client has permission; the limiter works with an older one as well."""
        # A configured endpoint is that of DynamoDB. The Lambda endpoint is unknown then.
        if self.location.endpoint_url is not None:
            return
        try:
            clients = self._clients()
            if not runtime.in_thread(clients.is_local, "lambda"):
                self._update(client, clients)
        except InfrastructureError as error:
            facts = (self.location.name, record.lambda_version, own_version(), error)
            _log.warning("the aggregator of %s stays at version %s, older than this client's %s: %s", *facts)

    def _update(self, client: Client, clients: "Clients") -> None:
        runtime.in_thread(_upload, clients, self.location.name)
        VersionStore(client).set_deployed(own_version())

    def _clients(self) -> "Clients":
        # Imported here, because a process that only limits does not need these clients.
        from zae_limiter.infra.clients import Clients

        return Clients(self.location.region, self.location.endpoint_url, self.opening.session)


def _provide(clients: "Clients", name: str, wanted: RequestedStack) -> bool:
    """Create or update a stack, and return whether it has an aggregator."""
    from zae_limiter.infra.provision import provide, provide_missing
    from zae_limiter.infra.stack import ignore

    listener = wanted.listener or ignore
    if wanted.options is None:
        return provide_missing(name, clients, listener)
    provide(name, clients, wanted.options, listener, keep_code=not wanted.replace)
    return wanted.options.enable_aggregator


def _upload(clients: "Clients", name: str) -> None:
    """Replace the aggregator's code by that of this package."""
    from zae_limiter.infra.function import AggregatorFunction
    from zae_limiter.infra.lambda_package import build_package

    AggregatorFunction(name, clients).upload(build_package())
