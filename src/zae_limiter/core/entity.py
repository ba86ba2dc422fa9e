"""Define entities, which tokens are taken for, and check them. Limits and buckets are stored elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.names import check_entity_id, check_text, check_whole_number

MAX_METADATA_ENTRIES = 50
MAX_METADATA_TEXT = 1024
MAX_DISPLAY_NAME = 256
_MAX_METADATA_NUMBER = 10**30

MetadataValue = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Entity:
    """A user, key or project that is limited. With ``cascade`` every take is also made from the parent."""

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: dict[str, MetadataValue] = field(default_factory=dict)
    created_at: str | None = None

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
    if entity.parent_id is not None:
        check_entity_id(entity.parent_id, "parent_id")
    if entity.parent_id == entity.id:
        raise ValidationError("parent_id", entity.parent_id, "an entity cannot be its own parent")
    if type(entity.cascade) is not bool:
        raise ValidationError("cascade", entity.cascade, "must be True or False")
    if entity.cascade and entity.parent_id is None:
        raise ValidationError("cascade", entity.cascade, "needs a parent to cascade to; pass parent_id")
    check_metadata(entity.metadata)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Require metadata that every backend can store: a small flat dictionary.

    Raises:
        ValidationError: It has another type, too many entries, or an invalid key or value.
    """
    if type(metadata) is not dict:
        raise ValidationError("metadata", metadata, f"must be a dict, not {type(metadata).__name__}")
    if len(metadata) > MAX_METADATA_ENTRIES:
        raise ValidationError("metadata", metadata, f"must have at most {MAX_METADATA_ENTRIES} entries")
    for name, value in metadata.items():
        check_text("metadata key", name, MAX_DISPLAY_NAME)
        if not name:
            raise ValidationError("metadata key", name, "must not be empty")
        if type(value) is str:
            check_text(f"metadata[{name!r}]", value, MAX_METADATA_TEXT)
        elif value is not None and type(value) is not bool:
            check_whole_number(f"metadata[{name!r}]", value, -_MAX_METADATA_NUMBER, _MAX_METADATA_NUMBER)
