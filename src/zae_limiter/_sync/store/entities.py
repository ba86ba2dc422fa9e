"""Creates, reads, moves, blocks and deletes entities, with their limits and buckets."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping, Sequence

from zae_limiter._sync.store.audit import PlannedChange, make_change, make_changes
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.store.sharded_buckets import ShardedBuckets, highest_shards
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.audit import AuditAction, AuditChange, check_principal
from zae_limiter.core.cascade import check_levels
from zae_limiter.core.config import Block, EntityFacts
from zae_limiter.core.entity import Entity, blocks_with, blocks_without, check_parent, move_details
from zae_limiter.core.errors import (
    EntityExistsError,
    EntityHasChildrenError,
    EntityNotFoundError,
    TooManyBucketsError,
    ValidationError,
)
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Item
from zae_limiter.schema import config_item, entity_item, keys, namespace_lists
from zae_limiter.schema.operations import Key, Operation, Query, Update

_CONFIGS_AT_ONCE = 40
_PAGE = 100
_MOST_ANCESTORS = 64
"""The most entities above another, whether they cascade or not. The transaction of a move checks each of them."""


class EntityStore:
    """The entities of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._namespace_id = scope.namespace_id
        self._index = IndexReader(scope.table)

    def get(self, entity_id: str) -> Entity | None:
        """Return an entity, None if it does not exist."""
        item = self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        return None if item is None else entity_item.from_item(item)

    def create(self, entity: Entity, change: AuditChange) -> None:
        """Create an entity, with an audit event.

        Raises:
            EntityExistsError: The entity exists already.
            EntityNotFoundError: The parent does not exist.
            TooManyBucketsError: It would cascade to too many levels.
            KindNotAllowedError: Such entities are not allowed yet, and this client may not allow them.
        """

        def decide() -> list[Operation]:
            seen = self._facts(entity.id)
            if seen is not None and not seen.deleted:
                raise EntityExistsError(entity.id)
            if entity.parent_id is None:
                return [entity_item.create(self._namespace_id, entity, seen)]
            # Every ancestor is read, and so the parent too, which has to exist.
            above = self._above(entity.id, entity.parent_id)
            ancestors = _cascaded(entity, above)
            self._allow(entity, ancestors, change, has_children=False)
            created = entity_item.create(self._namespace_id, entity, seen, ancestors)
            # Hazard: a parent that is moved meanwhile would be one more level, which older code does not know. So it
            # must be as it was read.
            return [created, entity_item.adopt(self._namespace_id, entity.parent_id, above[entity.parent_id])]

        self._change(entity.id, change, decide)

    def move(
        self,
        entity_id: str,
        parent_id: str | None,
        cascade: bool | None,
        cascade_resources: tuple[str, ...] | None,
        principal: str | None,
    ) -> Entity:
        """Give an entity another parent, cascade and resources that cascade, with an audit event; return it.

        ``cascade`` None keeps whether it cascades.

        Raises:
            EntityNotFoundError: The entity or the parent does not exist.
            ValidationError: The parent is below the entity.
            TooManyBucketsError: It would cascade to too many levels.
            KindNotAllowedError: Such entities are not allowed yet, and this client may not allow them.
        """
        moved: Entity | None = None

        def decide() -> PlannedChange:
            nonlocal moved
            before = self._require(entity_id)
            kept, seen = entity_item.from_item(before), entity_item.facts_from_item(before)
            assert kept is not None, "the entity exists"
            cascades = seen.cascade and parent_id is not None if cascade is None else cascade
            moved = replace(kept, parent_id=parent_id, cascade=cascades, cascade_resources=cascade_resources)
            check_parent(moved)
            change = AuditChange(AuditAction.ENTITY_MOVED, entity_id, principal, None, move_details(seen, moved))
            return PlannedChange(self._move(moved, seen, change), (change,))

        try:
            check_principal(principal)
            make_changes(self._scope, decide)
        finally:
            # In any case: a change that was cancelled, or whose response was lost, may have been carried out.
            self._scope.caches.forget_limits_of(entity_id)
        assert moved is not None, "the move was decided"
        return moved

    def _move(self, entity: Entity, seen: EntityFacts, change: AuditChange) -> list[Operation]:
        """Return the operations that move an entity that was ``seen``."""
        above = {} if entity.parent_id is None else self._above(entity.id, entity.parent_id)
        ancestors = _cascaded(entity, above)
        self._allow(entity, ancestors, change, has_children=seen.counts_children)
        operations: list[Operation] = [entity_item.move(self._namespace_id, entity, seen, ancestors)]
        old, new = seen.parent_id, entity.parent_id
        # Hazard: two moves at the same time may form a cycle together, although none does by itself. So every entity
        # above must be as it was read, in the same transaction.
        if new is not None and new != old:
            operations.append(entity_item.adopt(self._namespace_id, new, above[new]))
        if old is not None and old != new:
            operations.append(entity_item.part_with(self._namespace_id, old, above.get(old)))
        written = {old, new} if old != new else set()
        checked = [(one, facts) for one, facts in above.items() if one not in written]
        return operations + [entity_item.unchanged(self._namespace_id, one, facts) for one, facts in checked]

    def block(self, entity_id: str, block: Block, change: AuditChange) -> None:
        """Block an entity, with an audit event. A block of the same resource is replaced.

        Raises:
            EntityNotFoundError: The entity does not exist.
            ValidationError: The entity has too many blocks.
            KindNotAllowedError: Blocks are not allowed yet, and this client may not allow them.
        """

        def decide() -> list[Operation]:
            seen = self._live_facts(entity_id)
            blocks = blocks_with(seen.blocks, block, self._scope.now_ms())
            # After the checks, because a kind is never removed.
            VersionStore(self._scope.client).allow("blocks", change.principal)
            return [entity_item.block(self._namespace_id, entity_id, seen, blocks)]

        self._change(entity_id, change, decide)

    def unblock(self, entity_id: str, resource: str | None, change: AuditChange) -> None:
        """Remove the block of a resource, or all blocks if it is None, with an audit event; do nothing if none exists.

        Raises:
            EntityNotFoundError: The entity does not exist.
        """

        def decide() -> list[Operation]:
            seen = self._live_facts(entity_id)
            blocks = blocks_without(seen.blocks, resource)
            unchanged = blocks == seen.blocks
            return [] if unchanged else [entity_item.block(self._namespace_id, entity_id, seen, blocks)]

        self._change(entity_id, change, decide)

    def set_bypass(self, entity_id: str, value: bool, change: AuditChange) -> None:
        """Let no bucket reject the requests of an entity, or end that, with an audit event.

        Raises:
            EntityNotFoundError: The entity does not exist.
            KindNotAllowedError: A bypass is not allowed yet, and this client may not allow it.
        """

        def decide() -> list[Operation]:
            seen = self._live_facts(entity_id)
            if seen.bypass is value:
                return []
            if value:
                # After the checks, because a kind is never removed.
                VersionStore(self._scope.client).allow("bypass", change.principal)
            return [entity_item.bypass(self._namespace_id, entity_id, seen, value)]

        self._change(entity_id, change, decide)

    def _change(
        self, entity_id: str, change: AuditChange, decide: Callable[[], Sequence[Operation]]
    ) -> None:
        try:
            make_change(self._scope, change, decide)
        finally:
            # In any case: a change that was cancelled, or whose response was lost, may have been carried out.
            self._scope.caches.forget_limits_of(entity_id)

    def _allow(
        self, entity: Entity, ancestors: Sequence[str], change: AuditChange, *, has_children: bool
    ) -> None:
        """Allow the kinds of items that an entity needs: older code would charge too few of its ancestors, or more."""
        levels = len(ancestors) > 1 or (has_children and bool(ancestors))
        used = {"levels": levels, "cascade_resources": entity.cascade_resources is not None}
        VersionStore(self._scope.client).allow_all([kind for kind in used if used[kind]], change.principal)

    def _above(self, entity_id: str, parent_id: str) -> dict[str, EntityFacts]:
        """Return the entities above an entity, the parent first, as they are now.

        Raises:
            EntityNotFoundError: The parent does not exist.
            ValidationError: The entity is among them.
            TooManyBucketsError: There are too many.
        """
        found: dict[str, EntityFacts] = {}
        above: str | None = parent_id
        while above is not None:
            if above == entity_id or above in found:
                raise ValidationError("parent_id", parent_id, f"is below {entity_id!r}: that would be a cycle")
            if len(found) == _MOST_ANCESTORS:
                raise TooManyBucketsError("parent_id", parent_id, f"has more than {_MOST_ANCESTORS} entities above it")
            facts = self._facts(above)
            if facts is None or facts.deleted:
                if not found:
                    raise EntityNotFoundError(above)
                break
            found[above] = facts
            above = facts.parent_id
        return found

    def delete(self, entity_id: str, change: AuditChange) -> None:
        """Delete an entity, its limits and its buckets; its usage and audit events are kept.

        Raises:
            EntityNotFoundError: The entity does not exist.
            EntityHasChildrenError: The entity has children.
        """
        item = self._require_childless(entity_id)
        # The limits are deleted first, in several transactions, because one has at most 100 operations. After an
        # interrupt the entity still exists, and the call can be repeated.
        configs = (self._index.read(Query(item["PK"], prefix=keys.SK_CONFIG_PREFIX))).items
        for start in range(0, len(configs), _CONFIGS_AT_ONCE):
            self._delete_configs(entity_id, configs[start : start + _CONFIGS_AT_ONCE], change)

        def decide() -> list[Operation]:
            facts = entity_item.facts_from_item(self._require_childless(entity_id))
            operations: list[Operation] = [entity_item.tombstone(self._namespace_id, entity_id, facts)]
            if facts.parent_id is not None:
                operations.append(entity_item.part_with(self._namespace_id, facts.parent_id))
            return operations

        self._change(entity_id, change, decide)
        self._delete_buckets(entity_id)

    def listed(self, limit: int | None, after: str | None) -> tuple[list[Entity], str | None]:
        """Return the entities after ``after`` in the order of their ids, and the last id if more may follow."""
        found: list[Entity] = []
        query: Query | None = namespace_lists.entities(self._namespace_id, after)
        while query is not None and (limit is None or len(found) < limit):
            size = _PAGE if limit is None else min(limit - len(found), _PAGE)
            page = self._index.read(replace(query, limit=size))
            found += self._alive(page.items)
            query = query.after(page)
        return found, None if query is None else found[-1].id

    def children(self, parent_id: str) -> list[Entity]:
        """Return the children of an entity, in the order of their ids."""
        index = keys.gsi1_pk_parent(self._namespace_id, parent_id)
        found = self._index.read(Query(index, index="GSI1", prefix=keys.GSI_CHILD_PREFIX))
        entities = []
        for start in range(0, len(found.items), _PAGE):
            some = self._alive(found.items[start : start + _PAGE])
            # The key of an item does not contain its parent, so an index entry alone proves nothing.
            entities += [entity for entity in some if entity.parent_id == parent_id]
        return entities

    def _alive(self, entries: Sequence[Item]) -> list[Entity]:
        """Return the entities of at most 100 index entries, without those that were deleted meanwhile."""
        if not entries:
            return []
        items = self._scope.table.batch_get([Key(entry["PK"], entry["SK"]) for entry in entries])
        entities = [entity_item.from_item(item) for item in items if item is not None]
        return [entity for entity in entities if entity is not None]

    def _require(self, entity_id: str) -> Item:
        item = self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        if item is None or entity_item.from_item(item) is None:
            raise EntityNotFoundError(entity_id)
        return item

    def _require_childless(self, entity_id: str) -> Item:
        item = self._require(entity_id)
        if entity_item.children_of(item):
            raise EntityHasChildrenError(entity_id)
        return item

    def _live_facts(self, entity_id: str) -> EntityFacts:
        """Return the facts of an entity.

        Raises:
            EntityNotFoundError: The entity does not exist.
        """
        seen = self._facts(entity_id)
        if seen is None or seen.deleted:
            raise EntityNotFoundError(entity_id)
        return seen

    def _facts(self, entity_id: str) -> EntityFacts | None:
        item = self._scope.table.get(entity_item.key(self._namespace_id, entity_id), consistent=True)
        return None if item is None else entity_item.facts_from_item(item)

    def _delete_configs(self, entity_id: str, items: Sequence[Item], change: AuditChange) -> None:
        """Delete the limits of an entity for some resources; read them again if another client has changed them."""

        def decide() -> list[Operation]:
            tombstones: list[Operation] = []
            counted: list[Update] = []
            for found in self._scope.table.batch_get([Key(one["PK"], one["SK"]) for one in items]):
                if found is None:
                    continue
                seen, resource = config_item.from_item(found), keys.parse_entity_config_sk(found["SK"])
                place = config_item.entity_place(self._namespace_id, entity_id, resource or "")
                fewer = config_item.unregister(place, seen)
                if fewer is not None:
                    tombstones.append(config_item.tombstone(place, seen))
                    counted.append(fewer)
            return [*tombstones, _together(counted)] if counted else []

        make_change(self._scope, change, decide)

    def _delete_buckets(self, entity_id: str) -> None:
        """Delete the buckets of an entity; a client that has one cached finds it missing and reads its limits again."""
        index = keys.gsi3_pk_entity(self._namespace_id, entity_id)
        found = self._index.read(Query(index, index="GSI3", prefix=keys.GSI_BUCKET_PREFIX))
        buckets = ShardedBuckets(self._scope.client)
        for bucket, known in highest_shards(Key(item["PK"], item["SK"]) for item in found.items).items():
            buckets.remove(bucket, known)


def _cascaded(entity: Entity, above: Mapping[str, EntityFacts]) -> list[str]:
    """Return the entities that an entity cascades to, nearest first, of those above it.

    Raises:
        TooManyBucketsError: There are too many.
    """
    found: list[str] = []
    cascades = entity.cascade
    for one, facts in above.items():
        if not cascades:
            break
        found.append(one)
        cascades = facts.cascade
    check_levels(entity.id, len(found) + 1)
    return found


def _together(updates: Sequence[Update]) -> Update:
    """Merge the updates of one item, because a transaction may contain only one operation per item."""
    first = updates[0]
    added = {name: amount for update in updates for name, amount in update.add.items()}
    return Update(first.key, added, first.set, first.remove, first.when)
