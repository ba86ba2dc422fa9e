"""What was used, and what is left, as users ask for it."""

from collections.abc import Mapping

from zae_limiter._async.store.bucket_queries import BucketQueries
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.usage import UsageStore
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.names import check_entity_id, check_limit_name, check_resource, check_whole_number
from zae_limiter.core.status import BucketState, CapacityTotals, ResourceCapacity
from zae_limiter.core.usage import UsageFilter, UsageSnapshot, UsageSummary

_LARGEST_PAGE = 10_000


class UsageVerbs:
    """Reads usage and buckets."""

    _scope: Scope

    async def get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
        limit: int = 100,
        next_key: Mapping[str, str] | None = None,
    ) -> tuple[list[UsageSnapshot], Mapping[str, str] | None]:
        """Return what was used in each window, and where to go on, None after the last.

        Windows are hourly, daily and monthly. The times, in ISO 8601, are the first and the last at which a window may
        begin. A page may be empty though more follow.

        Raises:
            ValidationError: Neither entity nor resource is named, or a filter is not what it must be.

        Example:
            ```python
            hours, _ = await repo.get_usage_snapshots("user-1", window_type="hourly")
            ```
        """
        wanted = UsageFilter(entity_id, resource, window_type, start_time, end_time)
        check_whole_number("limit", limit, 1, _LARGEST_PAGE)
        _check_next_key(next_key, indexed=entity_id is None)
        store = UsageStore(self._scope)
        await store.count()
        found = await store.find(wanted, limit, next_key)
        return found.snapshots, found.next

    async def get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: str | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
    ) -> UsageSummary:
        """Return sums and means over windows of one kind, hourly ones unless another is named.

        Raises:
            ValidationError: Neither entity nor resource is named, or a filter is not what it must be.
        """
        wanted = UsageFilter(entity_id, resource, window_type or "hourly", start_time, end_time)
        store = UsageStore(self._scope)
        await store.count()
        return (await store.totals(wanted)).summary()

    async def get_buckets(self, entity_id: str, resource: str | None = None) -> list[BucketState]:
        """Return the limits of an entity's buckets, with their balances as of the last refill.

        Buckets are read some at a time: each is reported as of the moment it was read.

        Raises:
            ValidationError: A name is not what it must be.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource)
        return await BucketQueries(self._scope).of_entity(entity_id, resource)

    async def get_resource_capacity(
        self, resource: str, limit_name: str, parents_only: bool = False
    ) -> ResourceCapacity:
        """Return what all entities that have used a resource may take of a limit, and have left now.

        With ``parents_only`` those that have a parent do not count. Buckets are read some at a time: each is reported
        as of the moment it was read, and acquires go on between them.

        Raises:
            ValidationError: A name is not what it must be.
        """
        check_resource(resource)
        check_limit_name(limit_name, "limit_name")
        store = BucketQueries(self._scope)
        totals = CapacityTotals(resource, limit_name)
        walk = store.walk_resource(resource)
        while walk.query is not None:
            entities = await store.next_capacities(walk, limit_name)
            totals.add(await store.without_parents(entities) if parents_only else entities)
        return totals.capacity()


def _check_next_key(next_key: object, *, indexed: bool) -> None:
    """Refuse what no earlier page answered with."""
    names = {"PK", "SK", "GSI2PK", "GSI2SK"} if indexed else {"PK", "SK"}
    if next_key is None:
        return
    if not isinstance(next_key, Mapping) or set(next_key) != names or not all(type(next_key[n]) is str for n in names):
        raise ValidationError("next_key", next_key, "must be what an earlier page of the same query answered with")
