"""Buckets as users look at them: those of an entity, and those of a resource."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence

from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.store.whole_buckets import WholeBuckets
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import BucketState, EntityCapacity
from zae_limiter.schema import entity_item, keys
from zae_limiter.schema.bucket_item import capacity_of, states_of
from zae_limiter.schema.operations import Key, Query

_AT_ONCE = 100


class StandingStore:
    """Reads the buckets of one namespace and changes none."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._buckets = WholeBuckets(scope.client)

    def of_entity(self, entity_id: str, resource: str | None) -> list[BucketState]:
        """Return the limits of an entity's buckets, of one resource or of all."""
        pk = keys.gsi3_pk_entity(self._scope.namespace_id, entity_id)
        prefix = keys.GSI_BUCKET_PREFIX if resource is None else keys.gsi3_sk_bucket_prefix(resource)
        items = self._find(Query(pk, "GSI3", prefix=prefix, limit=_AT_ONCE))
        buckets = self._buckets.completed(items)
        return [state for shards in buckets for state in states_of(shards)]

    def of_resource(self, resource: str, limit_name: str) -> list[EntityCapacity]:
        """Return what each entity may take of a limit, and has left, over all shards, in the order of their ids."""
        pk = keys.gsi2_pk_resource(self._scope.namespace_id, resource)
        now_ms = self._scope.table.now()[0]
        items = self._find(Query(pk, "GSI2", prefix=keys.GSI_BUCKET_PREFIX, limit=_AT_ONCE))
        entities = []
        for shards in self._buckets.completed(items):
            owner, found = keys.parse_bucket_pk(shards[0]["PK"]), capacity_of(shards, limit_name, now_ms)
            if owner is not None and found is not None:
                entities.append(EntityCapacity(owner.entity_id, found[0] // 1000, found[1] // 1000))
        return sorted(entities, key=lambda entity: entity.entity_id)

    def without_parents(self, entity_ids: Sequence[str]) -> set[str]:
        """Return those of the entities that have no parent; one that was never created has none."""
        wanted = [entity_item.key(self._scope.namespace_id, entity_id) for entity_id in entity_ids]
        entities = zip(entity_ids, self._read(wanted), strict=True)
        return {entity_id for entity_id, item in entities if item is None or _is_parent(item)}

    def _find(self, query: Query) -> list[Item]:
        """Return all items that an index leads to."""
        items: list[Item] = []
        while True:
            page = self._scope.table.query(query)
            found = self._read([Key(item["PK"], item["SK"]) for item in page.items])
            items += [item for item in found if item is not None]
            if page.next is None:
                return items
            query = Query(query.pk, query.index, prefix=query.prefix, limit=query.limit, start=page.next)

    def _read(self, wanted: Sequence[Key]) -> list[Item | None]:
        items: list[Item | None] = []
        for start in range(0, len(wanted), _AT_ONCE):
            items += self._scope.table.batch_get(wanted[start : start + _AT_ONCE])
        return items


def _is_parent(item: Item) -> bool:
    entity = entity_item.from_item(item)
    return entity is None or entity.is_parent
