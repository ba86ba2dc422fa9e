"""Reads the buckets of an entity or of a resource for reports, in pages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter._async.store.configs import ConfigStore
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.sharded_buckets import ShardedBuckets
from zae_limiter.core.names import ALL_RESOURCES, DEFAULT_RESOURCE
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import Balance, BucketState, EntityCapacity
from zae_limiter.schema import entity_item, keys
from zae_limiter.schema.bucket_balances import balances_of, full_balances
from zae_limiter.schema.bucket_item import capacity_of, states_of
from zae_limiter.schema.bucket_layout import owner_of
from zae_limiter.schema.operations import Key, Query

_AT_ONCE = 100
_BALANCES_AT_ONCE = 50
"""Fewer than of other reports, because the limits in force of each bucket are resolved too."""


class Walk:
    """The progress of a traversal of the buckets in an index.

    ``query`` reads the next page, None after the last. ``open_shards`` are the shards of the bucket at the end of the
    last page: the next page may contain more of them.
    """

    def __init__(self, query: Query) -> None:
        self.query: Query | None = query
        self.open_shards: list[Item] = []


class _BalancePage(NamedTuple):
    """Balances of some buckets, and whether one has limits of the entity for all resources."""

    balances: list[Balance]
    has_default: bool


class BucketQueries:
    """Reads the buckets of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._buckets = ShardedBuckets(scope.client)
        self._index = IndexReader(scope.table)

    async def of_entity(self, entity_id: str, resource: str | None) -> list[BucketState]:
        """Return the limits of an entity's buckets, for one resource or, if None, for all."""
        pk = keys.gsi3_pk_entity(self._scope.namespace_id, entity_id)
        prefix = keys.GSI_BUCKET_PREFIX if resource is None else keys.gsi3_sk_bucket_prefix(resource)
        walk = Walk(Query(pk, "GSI3", prefix=prefix, limit=_AT_ONCE))
        states: list[BucketState] = []
        while walk.query is not None:
            for shards in await self._next_buckets(walk):
                states += states_of(shards, self._scope.table.now()[0])
        return states

    async def balances(self, entity_id: str) -> list[Balance]:
        """Return what is left of the limits of an entity: of its buckets, and of its own limits without a bucket."""
        records = await ConfigStore(self._scope).of_entity(entity_id)
        # Limits across resources may be those that all entities have.
        unused = {*records, ALL_RESOURCES} - {DEFAULT_RESOURCE}
        pk = keys.gsi3_pk_entity(self._scope.namespace_id, entity_id)
        walk = Walk(Query(pk, "GSI3", prefix=keys.GSI_BUCKET_PREFIX, limit=_BALANCES_AT_ONCE))
        pages = []
        while walk.query is not None:
            buckets = {owner_of(shards[0]).resource: shards for shards in await self._next_buckets(walk)}
            unused -= buckets.keys()
            pages.append(await self._balances_of(entity_id, buckets))
        pages.append(await self._balances_of(entity_id, dict.fromkeys(unused, ())))
        balances = [balance for page in pages for balance in page.balances]
        default = records.get(DEFAULT_RESOURCE)
        if default is not None and not any(page.has_default for page in pages):
            balances += full_balances((entity_id, DEFAULT_RESOURCE), default.limits, self._scope.table.now())
        return sorted(balances, key=lambda balance: balance.resource)

    async def _balances_of(self, entity_id: str, buckets: Mapping[str, Sequence[Item]]) -> _BalancePage:
        """Return the balances of some buckets of an entity; those without shards do not exist."""
        in_force = await ConfigStore(self._scope).known_all([(entity_id, resource) for resource in buckets])
        now = self._scope.table.now()
        balances: list[Balance] = []
        for (resource, shards), known in zip(buckets.items(), in_force, strict=True):
            balances += balances_of((entity_id, resource), shards, known.terms, now)
        return _BalancePage(balances, any("entity_default" in known.resolution.sources for known in in_force))

    def walk_resource(self, resource: str) -> Walk:
        """Begin a traversal of the buckets of a resource, in the order of their entities."""
        pk = keys.gsi2_pk_resource(self._scope.namespace_id, resource)
        return Walk(Query(pk, "GSI2", prefix=keys.GSI_BUCKET_PREFIX, limit=_AT_ONCE))

    async def next_capacities(self, walk: Walk, limit_name: str) -> list[EntityCapacity]:
        """Return capacity and available tokens of a limit for the entities of the next page, over all shards."""
        buckets = await self._next_buckets(walk)
        now_ms = self._scope.table.now()[0]
        entities = []
        for shards in buckets:
            owner, found = keys.parse_bucket_pk(shards[0]["PK"]), capacity_of(shards, limit_name, now_ms)
            if owner is not None and found is not None:
                capacity, left = found.capacity_milli // 1000, found.level_milli // 1000
                entities.append(EntityCapacity(owner.entity_id, capacity, left, found.unit))
        return entities

    async def without_parents(self, entities: Sequence[EntityCapacity]) -> list[EntityCapacity]:
        """Return the entities that have no parent, including those that were never created."""
        found = await self._read([entity_item.key(self._scope.namespace_id, one.entity_id) for one in entities])
        return [one for one, item in zip(entities, found, strict=True) if item is None or _is_parent(item)]

    async def _next_buckets(self, walk: Walk) -> list[list[Item]]:
        """Return the buckets of the next page, each with all its shards."""
        assert walk.query is not None, "the traversal has another page"
        page = await self._index.read(walk.query)
        found = await self._read([Key(item["PK"], item["SK"]) for item in page.items])
        items = walk.open_shards + [item for item in found if item is not None]
        # Shards of one bucket are adjacent in an index, but a page may end between them. So the last bucket of a page
        # is kept for the next one.
        end = len(items) if page.next is None else _last_begins(items)
        walk.open_shards = items[end:]
        walk.query = walk.query.after(page)
        return await self._buckets.completed(items[:end])

    async def _read(self, wanted: Sequence[Key]) -> list[Item | None]:
        items: list[Item | None] = []
        for start in range(0, len(wanted), _AT_ONCE):
            items += await self._scope.table.batch_get(wanted[start : start + _AT_ONCE])
        return items


def _last_begins(items: Sequence[Item]) -> int:
    """Return the position of the first shard of the last bucket."""
    end = len(items)
    while end and _bucket(items[end - 1]) == _bucket(items[-1]):
        end -= 1
    return end


def _bucket(item: Item) -> keys.BucketKey | None:
    shard = keys.parse_bucket_pk(item["PK"])
    return None if shard is None else shard._replace(shard_id=0)


def _is_parent(item: Item) -> bool:
    entity = entity_item.from_item(item)
    return entity is None or entity.is_parent
