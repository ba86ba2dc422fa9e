"""Resolve the limits in force for an entity and a resource, from four levels of stored records.

The first level that has limits wins: entity and resource, entity ``_default_``, resource, system.
``store/configs.py`` reads the records.
"""

from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import check_entity_id, check_text
from zae_limiter.core.status import OnUnavailable

ConfigSource = Literal["entity", "entity_default", "resource", "system"]
"""The level whose limits are in force."""

_MAX_CURSOR = 1024


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The limits of one level. ``deleted`` marks a tombstone: a deleted record that keeps its version."""

    limits: tuple[Limit, ...]
    version: int
    on_unavailable: OnUnavailable | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What a bucket needs to know about its entity. ``deleted`` marks the tombstone of an entity.

    ``counts_children`` is True if the entity has or had children.
    """

    parent_id: str | None
    cascade: bool
    version: int
    deleted: bool = False
    counts_children: bool = False


@dataclass(frozen=True, slots=True)
class ConfigRecords:
    """All records that decide the limits in force; None for a record that does not exist."""

    entity_resource: ConfigRecord | None = None
    entity_default: ConfigRecord | None = None
    resource: ConfigRecord | None = None
    system: ConfigRecord | None = None
    meta: EntityFacts | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The limits in force, empty if there are none. Any change of a record they depend on raises ``stamp``.

    ``facts`` is None if the entity does not exist. It may have limits all the same.
    """

    limits: tuple[Limit, ...]
    stamp: int
    source: ConfigSource | None
    on_unavailable: OnUnavailable | None
    facts: EntityFacts | None


class ResolvedLimits(NamedTuple):
    """The limits in force, the policy for an unavailable store, and the level they come from; None if not set."""

    limits: list[Limit] | None
    on_unavailable: OnUnavailable | None
    source: ConfigSource | None


def resolve(records: ConfigRecords) -> Resolution:
    """Resolve the limits in force."""
    system, meta = records.system, records.meta
    source, limits = _nearest(records)
    return Resolution(
        limits=limits,
        stamp=_stamp(records),
        source=source,
        on_unavailable=None if system is None or system.deleted else system.on_unavailable,
        facts=None if meta is None or meta.deleted else meta,
    )


def _nearest(records: ConfigRecords) -> tuple[ConfigSource | None, tuple[Limit, ...]]:
    """Return the first level that has limits, and its limits; a record without limits is skipped."""
    levels: tuple[tuple[ConfigSource, ConfigRecord | None], ...] = (
        ("entity", records.entity_resource),
        ("entity_default", records.entity_default),
        ("resource", records.resource),
        ("system", records.system),
    )
    for source, record in levels:
        if record is not None and record.limits and not record.deleted:
            return source, record.limits
    return None, ()


def _stamp(records: ConfigRecords) -> int:
    """Return the sum of all versions. No version ever falls, so a change anywhere raises it without a clock."""
    read = (records.entity_resource, records.entity_default, records.resource, records.system, records.meta)
    return sum(record.version for record in read if record is not None)


def make_cursor(resource: str, entity_id: str) -> str:
    """Return the cursor that continues a list of entities with limits for a resource after this entity."""
    return urlsafe_b64encode(f"{resource} {entity_id}".encode()).decode()


def entity_of_cursor(cursor: object, resource: str) -> str:
    """Return the entity after which a list continues.

    Raises:
        ValidationError: The value is not a cursor of a list for this resource.
    """
    check_text("cursor", cursor, _MAX_CURSOR)
    try:
        listed, _, entity_id = b64decode(str(cursor), b"-_", validate=True).decode("ascii").partition(" ")
        check_entity_id(entity_id)
    # A cursor comes from the user, so it may be any text.
    except (ValueError, ValidationError):
        listed, entity_id = "", ""
    if listed != resource:
        raise ValidationError("cursor", cursor, f"must come from a list of the entities of {resource!r}")
    return entity_id
