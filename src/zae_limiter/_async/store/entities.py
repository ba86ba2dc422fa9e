"""Creates, reads and deletes entities, with their limits and buckets."""

from collections.abc import Sequence

from zae_limiter._async.store.audit import make_change
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.sharded_buckets import ShardedBuckets, highest_shards
from zae_limiter.core.audit import AuditChange
from zae_limiter.core.config import EntityFacts
from zae_limiter.core.entity import Entity
from zae_limiter.core.errors import EntityExistsError, EntityHasChildrenError, EntityNotFoundError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Item
from zae_limiter.schema import config_item, entity_item, keys, namespace_lists
from zae_limiter.schema.operations import Key, Operation, Query, Update

_CONFIGS_AT_ONCE = 40
_PAGE = 100


class EntityStore:
    """The entities of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._namespace_id = scope.namespace_id
        self._index = IndexReader(scope.table)

    async def get(self, entity_id: str) -> Entity | None:
        """Return an entity, None if it does not exist."""
        item = await self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        return None if item is None else entity_item.from_item(item)

    async def create(self, entity: Entity, change: AuditChange) -> None:
        """Create an entity, with an audit event.

        Raises:
            EntityExistsError: The entity exists already.
            EntityNotFoundError: The parent does not exist.
        """

        async def decide() -> list[Operation]:
            seen = await self._facts(entity.id)
            if seen is not None and not seen.deleted:
                raise EntityExistsError(entity.id)
            operations: list[Operation] = [entity_item.create(self._namespace_id, entity, seen)]
            if entity.parent_id is not None:
                if await self.get(entity.parent_id) is None:
                    raise EntityNotFoundError(entity.parent_id)
                operations.append(entity_item.adopt(self._namespace_id, entity.parent_id))
            return operations

        await make_change(self._scope, change, decide)

    async def delete(self, entity_id: str, change: AuditChange) -> None:
        """Delete an entity, its limits and its buckets; its usage and audit events are kept.

        Raises:
            EntityNotFoundError: The entity does not exist.
            EntityHasChildrenError: The entity has children.
        """
        item = await self._require_childless(entity_id)
        # The limits are deleted first, in several transactions, because one has at most 100 operations. After an
        # interrupt the entity still exists, and the call can be repeated.
        configs = (await self._index.read(Query(item["PK"], prefix=keys.SK_CONFIG_PREFIX))).items
        for start in range(0, len(configs), _CONFIGS_AT_ONCE):
            await self._delete_configs(entity_id, configs[start : start + _CONFIGS_AT_ONCE], change)

        async def decide() -> list[Operation]:
            facts = entity_item.facts_from_item(await self._require_childless(entity_id))
            operations: list[Operation] = [entity_item.tombstone(self._namespace_id, entity_id, facts)]
            if facts.parent_id is not None:
                operations.append(entity_item.part_with(self._namespace_id, facts.parent_id))
            return operations

        await make_change(self._scope, change, decide)
        await self._delete_buckets(entity_id)

    async def listed(self, limit: int | None, after: str | None) -> tuple[list[Entity], str | None]:
        """Return the entities after ``after`` in the order of their ids, and the last id if more may follow."""
        found: list[Entity] = []
        query: Query | None = namespace_lists.entities(self._namespace_id, after)
        while query is not None and (limit is None or len(found) < limit):
            size = _PAGE if limit is None else min(limit - len(found), _PAGE)
            page = await self._index.read(replace(query, limit=size))
            found += await self._alive(page.items)
            query = query.after(page)
        return found, None if query is None else found[-1].id

    async def children(self, parent_id: str) -> list[Entity]:
        """Return the children of an entity, in the order of their ids."""
        index = keys.gsi1_pk_parent(self._namespace_id, parent_id)
        found = await self._index.read(Query(index, index="GSI1", prefix=keys.GSI_CHILD_PREFIX))
        entities = []
        for start in range(0, len(found.items), _PAGE):
            some = await self._alive(found.items[start : start + _PAGE])
            # The key of an item does not contain its parent, so an index entry alone proves nothing.
            entities += [entity for entity in some if entity.parent_id == parent_id]
        return entities

    async def _alive(self, entries: Sequence[Item]) -> list[Entity]:
        """Return the entities of at most 100 index entries, without those that were deleted meanwhile."""
        if not entries:
            return []
        items = await self._scope.table.batch_get([Key(entry["PK"], entry["SK"]) for entry in entries])
        entities = [entity_item.from_item(item) for item in items if item is not None]
        return [entity for entity in entities if entity is not None]

    async def _require_childless(self, entity_id: str) -> Item:
        item = await self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        if item is None or entity_item.from_item(item) is None:
            raise EntityNotFoundError(entity_id)
        if entity_item.children_of(item):
            raise EntityHasChildrenError(entity_id)
        return item

    async def _facts(self, entity_id: str) -> EntityFacts | None:
        item = await self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        return None if item is None else entity_item.facts_from_item(item)

    async def _delete_configs(self, entity_id: str, items: Sequence[Item], change: AuditChange) -> None:
        """Delete the limits of an entity for some resources; read them again if another client has changed them."""

        async def decide() -> list[Operation]:
            tombstones: list[Operation] = []
            counted: list[Update] = []
            for found in await self._scope.table.batch_get([Key(one["PK"], one["SK"]) for one in items]):
                if found is None:
                    continue
                seen, resource = config_item.from_item(found), keys.parse_entity_config_sk(found["SK"])
                place = config_item.entity_place(self._namespace_id, entity_id, resource or "")
                fewer = config_item.unregister(place, seen)
                if fewer is not None:
                    tombstones.append(config_item.tombstone(place, seen))
                    counted.append(fewer)
            return [*tombstones, _together(counted)] if counted else []

        await make_change(self._scope, change, decide)

    async def _delete_buckets(self, entity_id: str) -> None:
        """Delete the buckets of an entity; a client that has one cached finds it missing and reads its limits again."""
        index = keys.gsi3_pk_entity(self._namespace_id, entity_id)
        found = await self._index.read(Query(index, index="GSI3", prefix=keys.GSI_BUCKET_PREFIX))
        buckets = ShardedBuckets(self._scope.client)
        for bucket, known in highest_shards(Key(item["PK"], item["SK"]) for item in found.items).items():
            await buckets.remove(bucket, known)


def _together(updates: Sequence[Update]) -> Update:
    """Merge the updates of one item, because a transaction may contain only one operation per item."""
    first = updates[0]
    added = {name: amount for update in updates for name, amount in update.add.items()}
    return Update(first.key, added, first.set, first.remove, first.when)
