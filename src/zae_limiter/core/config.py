"""Which limits are in force for an entity and a resource: four levels, over records already read.

The nearest level that has limits wins: entity and resource, entity ``_default_``, resource, system.
Reading and caching records is done elsewhere.
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
    """The limits of one level; ``deleted`` is the tombstone of such a record, which keeps its version."""

    limits: tuple[Limit, ...]
    version: int
    on_unavailable: OnUnavailable | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What a bucket needs to know of its entity; ``deleted`` is the tombstone of an entity.

    ``counts_children``: it has, or once had, children.
    """

    parent_id: str | None
    cascade: bool
    version: int
    deleted: bool = False
    counts_children: bool = False


@dataclass(frozen=True, slots=True)
class ConfigRecords:
    """Everything that is read to find the limits in force, None for what is not there."""

    entity_resource: ConfigRecord | None = None
    entity_default: ConfigRecord | None = None
    resource: ConfigRecord | None = None
    system: ConfigRecord | None = None
    meta: EntityFacts | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The limits in force, empty without any; ``stamp`` rises with every change of anything they depend on.

    ``facts`` is None when there is no such entity, which may well have limits.
    """

    limits: tuple[Limit, ...]
    stamp: int
    source: ConfigSource | None
    on_unavailable: OnUnavailable | None
    facts: EntityFacts | None


class ResolvedLimits(NamedTuple):
    """The limits in force, what to do while the store is away, and the level they come from; None: not set."""

    limits: list[Limit] | None
    on_unavailable: OnUnavailable | None
    source: ConfigSource | None


def resolve(records: ConfigRecords) -> Resolution:
    """Find the limits in force."""
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
    """The nearest level that has limits, and these; a record without limits is no level."""
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
    """The sum of all versions: none ever falls, so a change anywhere raises it and needs no clock."""
    read = (records.entity_resource, records.entity_default, records.resource, records.system, records.meta)
    return sum(record.version for record in read if record is not None)


def make_cursor(resource: str, entity_id: str) -> str:
    """Where a list of the entities with limits for a resource goes on: after that entity."""
    return urlsafe_b64encode(f"{resource} {entity_id}".encode()).decode()


def entity_of_cursor(cursor: object, resource: str) -> str:
    """The entity after which a list goes on.

    Raises:
        ValidationError: It is no cursor, or one of another resource's list.
    """
    check_text("cursor", cursor, _MAX_CURSOR)
    try:
        listed, _, entity_id = b64decode(str(cursor), b"-_", validate=True).decode("ascii").partition(" ")
        check_entity_id(entity_id)
    except (ValueError, ValidationError):
        listed, entity_id = "", ""
    if listed != resource:
        raise ValidationError("cursor", cursor, f"must be one that listing the entities of {resource!r} returned")
    return entity_id
