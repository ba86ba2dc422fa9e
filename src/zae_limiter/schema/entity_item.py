"""Convert entities to items and back, and describe the writes that create and delete them.

A deleted entity leaves a tombstone that keeps its version. So versions never fall, and every client
notices if an entity was deleted and created again with another parent or cascade.
"""

import json
from collections.abc import Sequence
from typing import Any

from zae_limiter.core.config import Block, EntityFacts
from zae_limiter.core.entity import Entity, flat_metadata, metadata_text, nested_metadata, shown_blocks
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.names import check_entity_id
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import (
    AtLeast,
    AttributeAbsent,
    Check,
    Conditions,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Put,
    Update,
)

_CHILDREN = "children"
_METADATA = "metadata"
# Text, because a number of DynamoDB has fewer exponents than a float. Versions before it read the map alone.
_NESTED_METADATA = "metadata_json"
_CASCADE_RESOURCES = "cascade_resources"
_ANCESTORS = "ancestors"
_BLOCKS = "blocks"
_BYPASS = "bypass"
# No name contains it.
_SEPARATOR = "#"
# The end of the year 9999, which is the latest that a datetime can be.
_LATEST_MS = 253_402_300_799_999


def key(namespace_id: str, entity_id: str) -> Key:
    """Return the key of an entity's item."""
    return Key(keys.pk_entity(namespace_id, entity_id), keys.sk_meta())


def to_item(namespace_id: str, entity: Entity, version: int, ancestors: Sequence[str] = ()) -> dict[str, Any]:
    """Return the item of a new entity; ``ancestors`` are the entities that it cascades to, nearest first."""
    item = _bare_item(namespace_id, entity.id, version) | {
        "GSI4SK": keys.gsi4_sk_entity(entity.id),
        "name": entity.name,
        attributes.PARENT_ID: entity.parent_id,
        attributes.CASCADE: entity.cascade,
        _METADATA: flat_metadata(entity.metadata),
        "created_at": entity.created_at,
    }
    nested = nested_metadata(entity.metadata)
    if nested:
        item[_NESTED_METADATA] = metadata_text(nested)
    return item | _parent_attributes(namespace_id, entity.id, entity.parent_id, entity.cascade_resources, ancestors)


def _parent_attributes(
    namespace_id: str,
    entity_id: str,
    parent_id: str | None,
    cascade_resources: Sequence[str] | None,
    ancestors: Sequence[str],
) -> dict[str, Any]:
    """Return the attributes that an entity has only if it has a parent."""
    item: dict[str, Any] = {}
    if parent_id is not None:
        item["GSI1PK"] = keys.gsi1_pk_parent(namespace_id, parent_id)
        item["GSI1SK"] = keys.gsi1_sk_child(entity_id)
    if cascade_resources is not None:
        item[_CASCADE_RESOURCES] = _SEPARATOR.join(cascade_resources)
    if ancestors:
        item[_ANCESTORS] = _SEPARATOR.join(ancestors)
    return item


def from_item(item: Item) -> Entity | None:
    """Return the entity of an item, None for a tombstone.

    Raises:
        CorruptItemError: The item is damaged.
    """
    if fields.flag(item, attributes.DELETED):
        return None
    return Entity(
        id=fields.text(item, attributes.ENTITY_ID),
        name=fields.optional_text(item, "name"),
        parent_id=fields.optional_text(item, attributes.PARENT_ID),
        cascade=fields.flag(item, attributes.CASCADE),
        metadata=fields.mapping(item, _METADATA) | fields.json_object(item, _NESTED_METADATA),
        created_at=fields.optional_text(item, "created_at"),
        cascade_resources=_texts(item, _CASCADE_RESOURCES),
        blocks=shown_blocks(_blocks_of(item)),
        bypass=fields.flag(item, _BYPASS),
    )


def facts_from_item(item: Item) -> EntityFacts:
    """Return what a bucket needs to know about an entity.

    Raises:
        CorruptItemError: The item is damaged.
    """
    return EntityFacts(
        parent_id=fields.optional_text(item, attributes.PARENT_ID),
        cascade=fields.flag(item, attributes.CASCADE),
        version=fields.number(item, attributes.CONFIG_VERSION),
        deleted=fields.flag(item, attributes.DELETED),
        counts_children=_CHILDREN in item,
        cascade_resources=_texts(item, _CASCADE_RESOURCES),
        ancestors=_ancestors_of(item),
        blocks=_blocks_of(item),
        bypass=fields.flag(item, _BYPASS),
    )


def create(namespace_id: str, entity: Entity, seen: EntityFacts | None, ancestors: Sequence[str] = ()) -> Put:
    """Write a new entity; ``seen`` is the tombstone of an earlier one, or None.

    ``ancestors`` are the entities that it cascades to, nearest first.
    """
    version = 1 if seen is None else seen.version + 1
    return Put(to_item(namespace_id, entity, version, ancestors), _still_gone(seen))


def move(namespace_id: str, entity: Entity, seen: EntityFacts, ancestors: Sequence[str]) -> Update:
    """Give an entity that was ``seen`` the parent and the cascade of ``entity``.

    ``ancestors`` are the entities that it then cascades to, nearest first. It is refused if the entity got its first
    child since: that child would then cascade to one level more.
    """
    changed: dict[str, Any] = {attributes.PARENT_ID: entity.parent_id, attributes.CASCADE: entity.cascade}
    parts = _parent_attributes(namespace_id, entity.id, entity.parent_id, entity.cascade_resources, ancestors)
    optional = ("GSI1PK", "GSI1SK", _CASCADE_RESOURCES, _ANCESTORS)
    removed = tuple(name for name in optional if name not in parts)
    update = _change(namespace_id, entity.id, seen, changed | parts, removed)
    return update if seen.counts_children else replace(update, when=(*update.when, AttributeAbsent(_CHILDREN)))


def block(namespace_id: str, entity_id: str, seen: EntityFacts, blocks: Sequence[Block]) -> Update:
    """Replace the blocks of an entity that was ``seen``."""
    if not blocks:
        return _change(namespace_id, entity_id, seen, {}, (_BLOCKS,))
    entries = [[one.resource, one.reason, one.until_ms] for one in blocks]
    return _change(namespace_id, entity_id, seen, {_BLOCKS: json.dumps(entries, separators=(",", ":"))}, ())


def bypass(namespace_id: str, entity_id: str, seen: EntityFacts, value: bool) -> Update:
    """Let no bucket reject the requests of an entity that was ``seen``, or end that."""
    if value:
        return _change(namespace_id, entity_id, seen, {_BYPASS: True}, ())
    return _change(namespace_id, entity_id, seen, {}, (_BYPASS,))


def unchanged(namespace_id: str, entity_id: str, seen: EntityFacts) -> Check:
    """Require that an entity is as it was ``seen``."""
    return Check(key(namespace_id, entity_id), _as_seen(seen))


def _change(
    namespace_id: str, entity_id: str, seen: EntityFacts, put: dict[str, Any], removed: tuple[str, ...]
) -> Update:
    put = {**put, attributes.CONFIG_VERSION: seen.version + 1}
    return Update(key(namespace_id, entity_id), set=put, remove=removed, when=_as_seen(seen))


def _as_seen(seen: EntityFacts) -> Conditions:
    return (Equals(attributes.CONFIG_VERSION, seen.version), Differs(attributes.DELETED, True))


def tombstone(namespace_id: str, entity_id: str, seen: EntityFacts) -> Put:
    """Delete an entity that was ``seen``, if it has no children."""
    item = _bare_item(namespace_id, entity_id, seen.version + 1) | {attributes.DELETED: True}
    # Hazard: a child may be created after the read. It raises the counter, and this condition then
    # refuses the delete.
    childless = Equals(_CHILDREN, 0) if seen.counts_children else AttributeAbsent(_CHILDREN)
    return Put(item, (Equals(attributes.CONFIG_VERSION, seen.version), childless))


def adopt(namespace_id: str, parent_id: str, seen: EntityFacts | None = None) -> Update:
    """Count a child that is about to be created or moved; refused if the parent is not as it was ``seen``.

    Without ``seen`` it is refused only if the parent does not exist.
    """
    exists: Conditions = (ItemExists(), Differs(attributes.DELETED, True))
    return Update(key(namespace_id, parent_id), add={_CHILDREN: 1}, when=exists if seen is None else _as_seen(seen))


def part_with(namespace_id: str, parent_id: str, seen: EntityFacts | None = None) -> Update:
    """Stop counting a child that is about to be deleted or moved; refused if the parent is not as it was ``seen``."""
    when: Conditions = (AtLeast(_CHILDREN, 1),)
    return Update(
        key(namespace_id, parent_id), add={_CHILDREN: -1}, when=when if seen is None else (*when, *_as_seen(seen))
    )


def children_of(item: Item) -> int:
    """Return the number of children of an entity.

    Raises:
        CorruptItemError: The counter is damaged.
    """
    return fields.optional_number(item, _CHILDREN) or 0


def _texts(item: Item, name: str) -> tuple[str, ...] | None:
    """Return the names of an attribute, None if it is absent."""
    found = fields.optional_text(item, name)
    return None if found is None else tuple(found.split(_SEPARATOR))


def _ancestors_of(item: Item) -> tuple[str, ...]:
    """Return the entities above an entity, as of its last change.

    Raises:
        CorruptItemError: They are damaged.
    """
    found = _texts(item, _ANCESTORS) or ()
    try:
        for one in found:
            check_entity_id(one)
    except ValidationError:
        fields.damaged(item, _ANCESTORS, "a list of entity ids")
    return found


def _blocks_of(item: Item) -> tuple[Block, ...]:
    """Return the blocks of an entity.

    Raises:
        CorruptItemError: They are damaged.
    """
    found = fields.optional_text(item, _BLOCKS)
    if found is None:
        return ()
    try:
        entries = json.loads(found)
        if all(_is_block(*entry) for entry in entries):
            return tuple(Block(*entry) for entry in entries)
    except (ValueError, TypeError, RecursionError):
        pass
    return fields.damaged(item, _BLOCKS, "a list of blocks")


def _is_block(resource: object, reason: object, until_ms: object) -> bool:
    texts = isinstance(resource, str | None) and isinstance(reason, str | None)
    return texts and (until_ms is None or (type(until_ms) is int and 0 <= until_ms <= _LATEST_MS))


def _bare_item(namespace_id: str, entity_id: str, version: int) -> dict[str, Any]:
    pk, sk = key(namespace_id, entity_id)
    item: dict[str, Any] = {"PK": pk, "SK": sk, attributes.ENTITY_ID: entity_id, attributes.CONFIG_VERSION: version}
    # A tombstone keeps this sort key, so that no list of entities contains it.
    return item | keys.gsi4_attributes(pk)


def _still_gone(seen: EntityFacts | None) -> Conditions:
    if seen is None:
        return (ItemAbsent(),)
    return (Equals(attributes.CONFIG_VERSION, seen.version), Equals(attributes.DELETED, True))
