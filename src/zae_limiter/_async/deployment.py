"""Deploys the stack around a table of DynamoDB, and keeps its aggregator at the client's version."""

import logging
from random import Random
from typing import TYPE_CHECKING, Any

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.open import Opening, open_client, open_scope
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client, Scope
from zae_limiter._async.store.versions import VersionStore, own_version
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import InfrastructureError, InfrastructureNotFoundError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.location import DynamoLocation
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import (
    FunctionUpdate,
    VersionRecord,
    check_client,
    check_function,
    compare,
    may_replace,
)
from zae_limiter.infra.given_options import KEEP_ALL, GivenOptions
from zae_limiter.runtime.aio import Parallel

if TYPE_CHECKING:
    from zae_limiter.infra.clients import Clients
    from zae_limiter.infra.stack import StackListener

_log = logging.getLogger("zae_limiter")

# A new table responds slowly, and no acquire waits for it.
_DEADLINE_S = 30.0


async def deploy_stack(
    location: DynamoLocation,
    options: GivenOptions | None,
    listener: "StackListener | None" = None,
    *,
    session: Any = None,
) -> None:
    """Create the stack of a limiter, or update it to these options, if any, and to this version.

    Raises:
        ValidationError: An option is invalid, or contradicts another one.
        VersionError: The table has another schema or requires a newer client; nothing was changed.
        InfrastructureError: The deployment failed; the error says why.
    """
    opening = Opening(location, make_settings(deadline_s=_DEADLINE_S), SystemClock(), Random(), session)
    await DeploymentPlan(opening, location, FunctionUpdate.ON_AWS).provide(options or KEEP_ALL, listener)


async def delete_stack(
    location: DynamoLocation, *, keep_archive: bool, listener: "StackListener | None" = None, session: Any = None
) -> None:
    """Delete the stack of a limiter with its table; the bucket of audit events stays if ``keep_archive``.

    Raises:
        StackOperationError: The stack is protected, or the deletion failed; the error says why.
    """
    await runtime.in_thread(_delete, location, session, keep_archive, listener)


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    """What the version record has about a stack; the retention is None if it stays as recorded."""

    has_function: bool
    audit_retention_days: int | None


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """A limiter on DynamoDB: how to open it, and whether to update an aggregator that is older than the client."""

    opening: Opening
    location: DynamoLocation
    update: FunctionUpdate

    async def connect(self, parallel: Parallel, namespace: str) -> Scope:
        """Open a deployed limiter, and update its aggregator to the client's version if that is configured.

        Raises:
            InfrastructureNotFoundError: The limiter does not exist.
            NamespaceNotFoundError: The namespace does not exist.
            VersionError: The versions are incompatible.
        """
        return await open_scope(self.opening, parallel, namespace, self._keep_new)

    async def provide(self, options: GivenOptions | None, listener: "StackListener | None" = None) -> None:
        """Create or update the stack, the version record and the default namespace.

        Nothing is changed if the table requires a newer client. If the options are None, an existing stack is left as
        it is.

        Raises:
            VersionError: The versions are incompatible.
            InfrastructureError: The deployment failed; the error says why.
        """
        settings = replace(self.opening.settings, deadline_s=_DEADLINE_S)
        async with await open_client(replace(self.opening, settings=settings), Parallel("serial")) as client:
            seen = await self._seen(client)
            if options is not None or seen is None:
                await self._provide_stack(client, seen, options, listener)
            else:
                await self._keep_new(client, seen)
            await NamespaceStore(client).register(DEFAULT_NAMESPACE)

    async def _seen(self, client: Client) -> VersionRecord | None:
        """Return the version record of the table, None if it has none; raise if this client must not change it."""
        try:
            seen = await VersionStore(client).read()
        except InfrastructureNotFoundError:
            return None
        if seen is not None:
            check_client(seen, own_version(), client.upgrade_command)
            if self.update is FunctionUpdate.NEVER:
                check_function(seen, own_version(), client.upgrade_command)
        return seen

    async def _provide_stack(
        self,
        client: Client,
        seen: VersionRecord | None,
        options: GivenOptions | None,
        listener: "StackListener | None",
    ) -> None:
        clients = self._clients()
        replaced = may_replace(seen, own_version(), self.update)
        facts = await runtime.in_thread(_provide, clients, self.location.name, options, listener, not replaced)
        kept = None if seen is None else seen.lambda_version
        version = (own_version() if replaced else kept) if facts.has_function else None
        await VersionStore(client).set_deployed(version, facts.audit_retention_days)

    async def _keep_new(self, client: Client, record: VersionRecord | None) -> None:
        """Update an aggregator that is older than the client, if that is configured."""
        if record is None or not compare(record, own_version()).function_outdated:
            return
        match self.update:
            case FunctionUpdate.NEVER:
                check_function(record, own_version(), client.upgrade_command)
            case FunctionUpdate.ALWAYS:
                await self._update(client, self._clients())
            case FunctionUpdate.ON_AWS:
                await self._update_on_aws(client, record)

    async def _update_on_aws(self, client: Client, record: VersionRecord) -> None:
        """Update the aggregator if the client has permission; the limiter works with an older one as well."""
        # A configured endpoint is that of DynamoDB. The Lambda endpoint is unknown then.
        if self.location.endpoint_url is not None:
            return
        try:
            clients = self._clients()
            if not await runtime.in_thread(clients.is_local, "lambda"):
                await self._update(client, clients)
        except InfrastructureError as error:
            facts = (self.location.name, record.lambda_version, own_version(), error)
            _log.warning("the aggregator of %s stays at version %s, older than this client's %s: %s", *facts)

    async def _update(self, client: Client, clients: "Clients") -> None:
        await runtime.in_thread(_upload, clients, self.location.name)
        await VersionStore(client).set_deployed(own_version())

    def _clients(self) -> "Clients":
        # Imported here, because a process that only limits does not need these clients.
        from zae_limiter.infra.clients import Clients

        return Clients(self.location.region, self.location.endpoint_url, self.opening.session)


def _provide(
    clients: "Clients", name: str, given: GivenOptions | None, listener: "StackListener | None", keep_code: bool
) -> RecordedFacts:
    """Create or update a stack, and return what to record about it; without options, leave an existing stack as it is.

    With ``keep_code`` the aggregator keeps its current code.
    """
    from zae_limiter.infra.provision import provide, provide_missing
    from zae_limiter.infra.stack import ignore

    if given is None:
        return RecordedFacts(provide_missing(name, clients, listener or ignore), None)
    options = provide(name, clients, given, listener or ignore, keep_code=keep_code).options
    return RecordedFacts(options.enable_aggregator, options.audit_retention_days)


def _delete(location: DynamoLocation, session: Any, keep_archive: bool, listener: "StackListener | None") -> None:
    from zae_limiter.infra.clients import Clients
    from zae_limiter.infra.stack import Stack, ignore

    stack = Stack(location.name, Clients(location.region, location.endpoint_url, session))
    stack.delete(keep_archive=keep_archive, listener=listener or ignore)


def _upload(clients: "Clients", name: str) -> None:
    """Replace the aggregator's code by that of this package."""
    from zae_limiter.infra.function import AggregatorFunction
    from zae_limiter.infra.lambda_package import build_package

    AggregatorFunction(name, clients).upload(build_package())
