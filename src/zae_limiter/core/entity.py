"""Define entities, which tokens are taken for, and check them. Limits and buckets are stored elsewhere."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any

from zae_limiter.core.config import Block, EntityFacts
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.names import check_entity_id, check_resource, check_text, check_whole_number
from zae_limiter.core.timestamp import ms_from_utc, utc_from_ms

MAX_METADATA_ENTRIES = 50
MAX_METADATA_TEXT = 1024
MAX_METADATA_DEPTH = 8
MAX_NESTED_METADATA_BYTES = 32 * 1024
MAX_DISPLAY_NAME = 256
MAX_CASCADE_RESOURCES = 100
MAX_BLOCKS = 50
MAX_BLOCK_REASON = 256
_MAX_METADATA_NUMBER = 10**30

MetadataValue = str | int | float | bool | None | list["MetadataValue"] | dict[str, "MetadataValue"]


@dataclass(frozen=True, slots=True)
class EntityBlock:
    """A block of an entity, for one resource, or for all if ``resource`` is None. ``until`` None: it has no end."""

    resource: str | None = None
    reason: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """A user, key or project that is limited. With ``cascade`` every take is also made from the parent.

    ``cascade_resources`` are the resources for which that is so, None for all. ``blocks`` refuse its requests, also
    some that have ended already. With ``bypass`` no limit rejects its requests.
    """

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: dict[str, MetadataValue] = field(default_factory=dict)
    created_at: str | None = None
    cascade_resources: tuple[str, ...] | None = None
    blocks: tuple[EntityBlock, ...] = ()
    bypass: bool = False

    @property
    def is_parent(self) -> bool:
        """Whether the entity has no parent."""
        return self.parent_id is None

    @property
    def is_child(self) -> bool:
        """Whether the entity has a parent."""
        return self.parent_id is not None


def check_entity(entity: Entity) -> None:
    """Require an entity that can be stored.

    Raises:
        ValidationError: The id, name, parent, cascade or metadata is invalid.
    """
    check_entity_id(entity.id)
    if entity.name is not None:
        check_text("name", entity.name, MAX_DISPLAY_NAME)
    check_parent(entity)
    check_metadata(entity.metadata)


def check_parent(entity: Entity) -> None:
    """Require a parent and a cascade that fit together.

    Raises:
        ValidationError: The parent, the cascade or its resources are invalid.
    """
    if entity.parent_id is not None:
        check_entity_id(entity.parent_id, "parent_id")
    if entity.parent_id == entity.id:
        raise ValidationError("parent_id", entity.parent_id, "an entity cannot be its own parent")
    if type(entity.cascade) is not bool:
        raise ValidationError("cascade", entity.cascade, "must be True or False")
    if entity.cascade and entity.parent_id is None:
        raise ValidationError("cascade", entity.cascade, "needs a parent to cascade to; pass parent_id")
    if entity.cascade_resources is not None and not entity.cascade:
        raise ValidationError("cascade_resources", entity.cascade_resources, "needs cascade=True")


def check_cascade_resources(resources: object) -> tuple[str, ...] | None:
    """Return the resources that cascade, sorted and without duplicates, None for all.

    Raises:
        ValidationError: The value is not a list of resources, or has too many.
    """
    if resources is None:
        return None
    if not isinstance(resources, list | tuple | set | frozenset):
        raise ValidationError("cascade_resources", resources, "must be a list of resources, or None for all")
    if not 0 < len(resources) <= MAX_CASCADE_RESOURCES:
        raise ValidationError("cascade_resources", resources, f"must have 1 to {MAX_CASCADE_RESOURCES} resources")
    for resource in resources:
        check_resource(resource, "cascade_resources")
    return tuple(sorted(set(resources)))


def check_block(resource: object, reason: object, until: object, now_ms: int) -> Block:
    """Return a block of an entity.

    Raises:
        ValidationError: The resource or the reason is invalid, or ``until`` is not an aware datetime in the future.
    """
    if resource is not None:
        check_resource(resource)
    if reason is not None:
        check_text("reason", reason, MAX_BLOCK_REASON)
    if until is None:
        return Block(resource, reason, None)  # type: ignore[arg-type]  # they were checked
    if not isinstance(until, datetime) or until.utcoffset() is None:
        raise ValidationError("until", until, "must be a datetime with a time zone, or None")
    until_ms = ms_from_utc(until)
    if until_ms <= now_ms:
        raise ValidationError("until", until.isoformat(), "must be in the future")
    return Block(resource, reason, until_ms)  # type: ignore[arg-type]  # they were checked


def blocks_with(blocks: Sequence[Block], new: Block, now_ms: int) -> tuple[Block, ...]:
    """Return the blocks of an entity after a new one, which replaces that of the same resource; ended ones are dropped.

    Raises:
        ValidationError: The entity has too many blocks.
    """
    kept = [one for one in blocks if one.resource != new.resource and one.refuses(one.resource or "", now_ms)]
    if len(kept) >= MAX_BLOCKS:
        raise ValidationError("resource", new.resource, f"the entity has {MAX_BLOCKS} blocks already; unblock some")
    return tuple(sorted([*kept, new], key=lambda one: one.resource or ""))


def blocks_without(blocks: Sequence[Block], resource: str | None) -> tuple[Block, ...]:
    """Return the blocks of an entity without that of a resource, or without all if it is None."""
    return () if resource is None else tuple(one for one in blocks if one.resource != resource)


def shown_blocks(blocks: Sequence[Block]) -> tuple[EntityBlock, ...]:
    """Return blocks as users see them."""
    return tuple(
        EntityBlock(one.resource, one.reason, None if one.until_ms is None else utc_from_ms(one.until_ms))
        for one in blocks
    )


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Require metadata that every backend can store: a small dictionary of values as in JSON.

    Raises:
        ValidationError: It has another type, is too large or too deep, or has an invalid key or value.
    """
    if type(metadata) is not dict:
        raise ValidationError("metadata", metadata, f"must be a dict, not {type(metadata).__name__}")
    if len(metadata) > MAX_METADATA_ENTRIES:
        raise ValidationError("metadata", metadata, f"must have at most {MAX_METADATA_ENTRIES} entries")
    _check_value("metadata", metadata, 0)
    size = len(metadata_text(nested_metadata(metadata)).encode())
    if size > MAX_NESTED_METADATA_BYTES:
        reason = f"its lists, dictionaries and floats must have at most {MAX_NESTED_METADATA_BYTES} bytes of JSON"
        raise ValidationError("metadata", metadata, f"{reason}, not {size}")


def flat_metadata(metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return the entries that are text, whole numbers, booleans or None."""
    return {name: value for name, value in metadata.items() if not isinstance(value, float | list | dict)}


def nested_metadata(metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return the entries that ``flat_metadata`` leaves out."""
    return {name: value for name, value in metadata.items() if isinstance(value, float | list | dict)}


def metadata_text(metadata: Mapping[str, MetadataValue]) -> str:
    """Return metadata as JSON. It has every digit of a float, so the same value is read back."""
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _check_value(field: str, value: object, depth: int) -> None:
    """Check a value that is nested in ``depth`` lists and dictionaries."""
    kind = type(value)
    if kind is str:
        check_text(field, value, MAX_METADATA_TEXT)
    elif kind is int:
        check_whole_number(field, value, -_MAX_METADATA_NUMBER, _MAX_METADATA_NUMBER)
    elif kind is float:
        if not isfinite(value):  # type: ignore[arg-type]  # it is a float
            raise ValidationError(field, value, "must be a finite number")
    elif kind in (list, dict):
        _check_container(field, value, depth + 1)
    elif value is not None and kind is not bool:
        reason = f"must be str, int, float, bool, None, list or dict, not {kind.__name__}"
        raise ValidationError(field, value, reason)


def _check_container(field: str, value: Any, depth: int) -> None:
    # The metadata itself is not nested. The bound also ends a list that contains itself.
    if depth > MAX_METADATA_DEPTH + 1:
        raise ValidationError(field, value, f"must not be nested more than {MAX_METADATA_DEPTH} deep")
    if type(value) is list:
        for position, one in enumerate(value):
            _check_value(f"{field}[{position}]", one, depth)
        return
    for name, one in value.items():
        check_text("metadata key", name, MAX_DISPLAY_NAME)
        if not name:
            raise ValidationError("metadata key", name, "must not be empty")
        _check_value(f"{field}[{name!r}]", one, depth)


def parent_details(entity: Entity) -> dict[str, object]:
    """Return what an audit event says of the parent of an entity."""
    details: dict[str, object] = {"parent_id": entity.parent_id, "cascade": entity.cascade}
    if entity.cascade_resources is not None:
        details["cascade_resources"] = list(entity.cascade_resources)
    return details


def move_details(before: EntityFacts, moved: Entity) -> dict[str, object]:
    """Return what an audit event says of a move."""
    return {"before": before.parent_id, **parent_details(moved)}
