"""The methods that read usage, buckets, audit events, the status and the version record."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.store.audit import read_all_events, read_events
from zae_limiter._async.store.bucket_queries import BucketQueries
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.versions import VersionStore
from zae_limiter.core.audit import AuditEvent, check_audit_id, check_event_id
from zae_limiter.core.errors import InfrastructureNotFoundError, RateLimiterUnavailable
from zae_limiter.core.location import DynamoLocation, parse_location
from zae_limiter.core.names import MAX_AMOUNT, check_entity_id, check_limit_name, check_resource, check_whole_number
from zae_limiter.core.status import Balance, BucketState, CapacityTotals, ResourceCapacity, Status
from zae_limiter.core.usage import UsageFilter, UsageSnapshot, UsageSummary, check_next_key
from zae_limiter.core.version import VersionRecord

if TYPE_CHECKING:
    from zae_limiter._async.store.usage import UsageStore

_LARGEST_PAGE = 10_000


class ReportVerbs:
    """Reads usage, buckets, audit events, the status and the version record; changes nothing."""

    _scope: Scope

    async def get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: str | datetime | None = None,
        end_time: str | datetime | None = None,
        limit: int = 100,
        next_key: Mapping[str, str] | None = None,
    ) -> tuple[list[UsageSnapshot], Mapping[str, str] | None]:
        """Return the usage of each window, and the key of the next page, None after the last.

        Without an entity and a resource, it is the usage of the whole namespace, the newest windows first. Otherwise
        windows are in ascending order. Windows are hourly, daily and monthly; a stack counts monthly ones only if it
        was deployed with them. ``start_time`` and ``end_time`` are the first and the last time at which a window may
        begin. Each is a ``datetime`` or ISO 8601; without an offset it is UTC. A page may be empty although more pages
        follow.

        Raises:
            ValidationError: A filter is invalid, or ``next_key`` is from another query.

        Example:
            ```python
            hours, _ = await repo.get_usage_snapshots("user-1", window_type="hourly")
            ```
        """
        wanted = UsageFilter(entity_id, resource, window_type, start_time, end_time)
        check_whole_number("limit", limit, 1, _LARGEST_PAGE)
        after = None if next_key is None else check_next_key(next_key, wanted)
        store = _usage_store(self._scope)
        await store.count()
        found = await store.find(wanted, limit, after)
        return found.snapshots, None if found.next is None else found.next.next_key

    async def get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: str | datetime | None = None,
        end_time: str | datetime | None = None,
    ) -> UsageSummary:
        """Return sums and means over all windows of one type, hourly by default.

        The filters are those of ``get_usage_snapshots``. Tokens that were taken from a bucket of a resource are in the
        snapshots of ``ALL_RESOURCES`` again. So these are left out, unless ``resource`` is ``ALL_RESOURCES``.

        Raises:
            ValidationError: A filter is invalid.
        """
        wanted = UsageFilter(entity_id, resource, window_type or "hourly", start_time, end_time)
        store = _usage_store(self._scope)
        await store.count()
        return (await store.totals(wanted)).summary()

    async def get_buckets(self, entity_id: str, resource: str | None = None) -> list[BucketState]:
        """Return the limits of an entity's buckets, with their balances at ``last_refill_ms``.

        Buckets are read in pages, so their states are not from one snapshot.

        Raises:
            ValidationError: A name is invalid.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource, allow_all=True)
        return await BucketQueries(self._scope).of_entity(entity_id, resource)

    async def get_balances(self, entity_id: str) -> list[Balance]:
        """Return what is left now of every limit of an entity, sorted by resource and name.

        They are the limits in force of every resource that the entity has used, or has limits of its own for, and
        those across resources. Limits for ``_default_`` are listed under this name until a listed
        resource has them. A bucket that was last used with limits of the caller is listed with these. What entities
        above have left is not included, and blocks are ignored. Buckets are read in pages, so balances are not from
        one snapshot.

        Raises:
            ValidationError: The id is invalid.

        Example:
            ```python
            for balance in await repo.get_balances("user-1"):
                print(balance.resource, balance.limit_name, balance.available, balance.used_pct)
            ```
        """
        check_entity_id(entity_id)
        return await BucketQueries(self._scope).balances(entity_id)

    async def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """Return the capacity and the available tokens of a limit, for all entities that have used a resource.

        With ``parents_only``, entities that have a parent are left out. Buckets are read in pages while acquires
        continue, so their states are not from one snapshot.

        Raises:
            ValidationError: A name is invalid.
        """
        check_resource(resource, allow_all=True)
        check_limit_name(limit_name, "limit_name")
        store = BucketQueries(self._scope)
        totals = CapacityTotals(resource, limit_name)
        walk = store.walk_resource(resource)
        while walk.query is not None:
            entities = await store.next_capacities(walk, limit_name)
            totals.add(await store.without_parents(entities) if parents_only else entities)
        return totals.capacity()

    async def get_audit_events(
        self, entity_id: str | None = None, limit: int = 100, start_event_id: str | None = None
    ) -> list[AuditEvent]:
        """Return the audit events of an entity, or of the whole namespace if it is None, newest first.

        In place of an entity's id, ``$SYSTEM`` finds the changes of the system defaults. ``$RESOURCE:name`` finds those
        of a resource's defaults, and ``$NAMESPACE:name`` those of a namespace. For the next page, ``start_event_id`` is
        the ``event_id`` of the last event. Events are kept for 90 days, or as long as the stack is configured to.

        Raises:
            ValidationError: An id or the limit is invalid.
        """
        if entity_id is not None:
            check_audit_id(entity_id)
        check_whole_number("limit", limit, 1, MAX_AMOUNT)
        if start_event_id is not None:
            check_event_id(start_event_id, "start_event_id")
        if entity_id is None:
            return await read_all_events(self._scope, limit, start_event_id)
        return await read_events(self._scope, entity_id, limit, start_event_id)

    async def get_version_record(self) -> VersionRecord | None:
        """Return the version record of the table, None if it has none."""
        return await VersionStore(self._scope.client).read()

    async def get_status(self) -> Status:
        """Return the status of the limiter: whether its table responds, its versions, and its infrastructure.

        A field is None if it does not apply to the backend, or if the caller lacks the permission to read it.
        """
        from importlib import metadata

        client = self._scope.client
        try:
            known = (await VersionStore(client).inspect()).status_fields()
        except (RateLimiterUnavailable, InfrastructureNotFoundError):
            known = {"available": False}
        known |= await runtime.in_thread(_around, client.location, client.session)
        return Status(client_version=metadata.version("zae-limiter"), **known)


def _usage_store(scope: Scope) -> "UsageStore":
    # Imported here, because a process that only limits does not count usage.
    from zae_limiter._async.store.usage import UsageStore

    return UsageStore(scope)


def _around(url: str, session: Any) -> dict[str, Any]:
    """Return the status fields of the infrastructure, empty for a file or memory."""
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        return {}
    # Imported here, because a process that only limits does not need these clients.
    from zae_limiter.infra.clients import Clients
    from zae_limiter.infra.status import look_around

    return look_around(location.name, Clients(location.region, location.endpoint_url, session))
