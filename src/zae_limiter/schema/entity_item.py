"""Convert entities to items and back, and describe the writes that create and delete them.

A deleted entity leaves a tombstone that keeps its version. So versions never fall, and every client
notices if an entity was deleted and created again with another parent or cascade.
"""

from typing import Any

from zae_limiter.core.config import EntityFacts
from zae_limiter.core.entity import Entity, flat_metadata, metadata_text, nested_metadata
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import (
    AtLeast,
    AttributeAbsent,
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


def key(namespace_id: str, entity_id: str) -> Key:
    """Return the key of an entity's item."""
    return Key(keys.pk_entity(namespace_id, entity_id), keys.sk_meta())


def to_item(namespace_id: str, entity: Entity, version: int) -> dict[str, Any]:
    """Return the item of an entity."""
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
    if entity.parent_id is not None:
        item["GSI1PK"] = keys.gsi1_pk_parent(namespace_id, entity.parent_id)
        item["GSI1SK"] = keys.gsi1_sk_child(entity.id)
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
    )


def create(namespace_id: str, entity: Entity, seen: EntityFacts | None) -> Put:
    """Write a new entity; ``seen`` is the tombstone of an earlier one, or None."""
    version = 1 if seen is None else seen.version + 1
    return Put(to_item(namespace_id, entity, version), _still_gone(seen))


def tombstone(namespace_id: str, entity_id: str, seen: EntityFacts) -> Put:
    """Delete an entity that was ``seen``, if it has no children."""
    item = _bare_item(namespace_id, entity_id, seen.version + 1) | {attributes.DELETED: True}
    # Hazard: a child may be created after the read. It raises the counter, and this condition then
    # refuses the delete.
    childless = Equals(_CHILDREN, 0) if seen.counts_children else AttributeAbsent(_CHILDREN)
    return Put(item, (Equals(attributes.CONFIG_VERSION, seen.version), childless))


def adopt(namespace_id: str, parent_id: str) -> Update:
    """Count a child that is about to be created; refused if the parent does not exist."""
    return Update(
        key(namespace_id, parent_id),
        add={_CHILDREN: 1},
        when=(ItemExists(), Differs(attributes.DELETED, True)),
    )


def part_with(namespace_id: str, parent_id: str) -> Update:
    """Stop counting a child that is about to be deleted."""
    return Update(key(namespace_id, parent_id), add={_CHILDREN: -1}, when=(AtLeast(_CHILDREN, 1),))


def children_of(item: Item) -> int:
    """Return the number of children of an entity.

    Raises:
        CorruptItemError: The counter is damaged.
    """
    return fields.optional_number(item, _CHILDREN) or 0


def _bare_item(namespace_id: str, entity_id: str, version: int) -> dict[str, Any]:
    pk, sk = key(namespace_id, entity_id)
    item: dict[str, Any] = {"PK": pk, "SK": sk, attributes.ENTITY_ID: entity_id, attributes.CONFIG_VERSION: version}
    # A tombstone keeps this sort key, so that no list of entities contains it.
    return item | keys.gsi4_attributes(pk)


def _still_gone(seen: EntityFacts | None) -> Conditions:
    if seen is None:
        return (ItemAbsent(),)
    return (Equals(attributes.CONFIG_VERSION, seen.version), Equals(attributes.DELETED, True))
