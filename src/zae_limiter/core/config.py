"""Resolve the limits in force for an entity and a resource, from four levels of stored records.

The first level that has limits wins: entity and resource, entity ``_default_``, resource, system.
If its record inherits, limits that it does not name come from the next level, and so on.
``store/configs.py`` reads the records.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Self

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import check_entity_id, check_text
from zae_limiter.core.status import OnUnavailable

ConfigSource = Literal["entity", "entity_default", "resource", "system"]
"""The level whose limits are in force."""

_LEVELS: tuple[ConfigSource, ...] = ("entity", "entity_default", "resource", "system")

ALL_ENTITIES = "*"
"""Used instead of a resource in the cursors of the list of all entities. No resource has this name."""

_MAX_CURSOR = 1024


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The limits of one level. ``deleted`` marks a tombstone: a deleted record that keeps its version.

    With ``inherit``, limits that the record does not name come from the next level.
    """

    limits: tuple[Limit, ...]
    version: int
    on_unavailable: OnUnavailable | None = None
    deleted: bool = False
    inherit: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A block of an entity, for one resource, or for all if ``resource`` is None.

    ``until_ms`` is when it ends by the server's clock, None if it has no end.
    """

    resource: str | None = None
    reason: str | None = None
    until_ms: int | None = None

    def refuses(self, resource: str, now_ms: int) -> bool:
        """Return whether a request for a resource is refused at the earliest time that it may be now."""
        return self.resource in (None, resource) and (self.until_ms is None or now_ms < self.until_ms)


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What a bucket needs to know about its entity. ``deleted`` marks the tombstone of an entity.

    ``counts_children`` is True if the entity has or had children. ``cascade_resources`` are the resources that cascade,
    None for all. ``ancestors`` are the entities above, nearest first, as of the last change of the entity. Those of a
    parent that was moved since may differ, so they are a hint. With ``bypass`` no bucket rejects its requests.
    """

    parent_id: str | None
    cascade: bool
    version: int
    deleted: bool = False
    counts_children: bool = False
    cascade_resources: tuple[str, ...] | None = None
    ancestors: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    bypass: bool = False

    def cascades(self, resource: str) -> bool:
        """Return whether an acquire of this resource also takes from the parent."""
        chosen = self.cascade_resources is None or resource in self.cascade_resources
        return self.cascade and self.parent_id is not None and chosen


@dataclass(frozen=True, slots=True)
class Links:
    """What an acquire of one entity and resource depends on besides its limits.

    ``parent_id`` is the next entity to take from, None if there is none. ``all_resources`` is True if the entity has
    limits across resources, which are in a bucket of their own. ``blocks`` may refuse the request. With ``bypass`` no
    bucket rejects it.
    """

    parent_id: str | None = None
    all_resources: bool = False
    blocks: tuple[Block, ...] = ()
    bypass: bool = False


BARE = Links()
"""The links of a bucket across resources: it is taken from only together with another bucket of its entity."""


@dataclass(frozen=True, slots=True)
class ConfigRecords:
    """All records that decide the limits in force; None for a record that does not exist.

    ``entity_all`` and ``resource_all`` are limits across resources, of the entity and for each entity.
    """

    entity_resource: ConfigRecord | None = None
    entity_default: ConfigRecord | None = None
    resource: ConfigRecord | None = None
    system: ConfigRecord | None = None
    meta: EntityFacts | None = None
    entity_all: ConfigRecord | None = None
    resource_all: ConfigRecord | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The limits in force, empty if there are none. Any change of a record they depend on raises ``stamp``.

    ``source`` is the nearest level that has limits, and ``sources`` has the level of each of ``limits``. ``facts`` is
    None if the entity does not exist. It may have limits all the same. ``links`` is None if an acquire takes only from
    the bucket that these limits are for.
    """

    limits: tuple[Limit, ...]
    stamp: int
    source: ConfigSource | None
    on_unavailable: OnUnavailable | None
    facts: EntityFacts | None
    sources: tuple[ConfigSource, ...] = ()
    links: Links | None = None


class _Resolved(NamedTuple):
    limits: list[Limit] | None
    on_unavailable: OnUnavailable | None
    source: ConfigSource | None


class ResolvedLimits(_Resolved):
    """The limits in force, the policy for an unavailable store, and the level they come from; None if not set.

    It unpacks to these three. ``sources`` has the level of each limit, by its name: with inherited limits they differ.
    """

    # The default is for ``_replace``, which does not call the constructor.
    sources: Mapping[str, ConfigSource] = MappingProxyType({})

    def __new__(
        cls,
        limits: list[Limit] | None,
        on_unavailable: OnUnavailable | None,
        source: ConfigSource | None,
        sources: Mapping[str, ConfigSource] | None = None,
    ) -> Self:
        """Make the value. Without ``sources``, every limit comes from ``source``."""
        self = super().__new__(cls, limits, on_unavailable, source)
        same = {limit.name: source for limit in limits or () if source is not None}
        self.sources = same if sources is None else sources
        return self


def check_inherit(value: object) -> None:
    """Require True or False.

    Raises:
        ValidationError: The value is something else.
    """
    if type(value) is not bool:
        raise ValidationError("inherit", value, "must be True or False")


def resolve(records: ConfigRecords, resource: str) -> Resolution:
    """Resolve the limits in force of an entity for a resource."""
    system, meta = records.system, records.meta
    facts = None if meta is None or meta.deleted else meta
    return _resolution(records, facts, _links(records, facts, resource), system)


def resolve_all_resources(records: ConfigRecords) -> Resolution:
    """Resolve the limits in force of an entity across resources: its own, else those for each entity.

    They never come from ``_default_`` or the system, because those are meant for one resource each.
    """
    across = ConfigRecords(records.entity_all, resource=records.resource_all, meta=records.meta)
    return _resolution(across, None, BARE, None)


def _resolution(
    records: ConfigRecords, facts: EntityFacts | None, links: Links | None, system: ConfigRecord | None
) -> Resolution:
    found = _merged(records)
    return Resolution(
        limits=tuple(limit for limit, _ in found),
        stamp=_stamp(records),
        source=min((source for _, source in found), key=_LEVELS.index, default=None),
        on_unavailable=None if system is None or system.deleted else system.on_unavailable,
        facts=facts,
        sources=tuple(source for _, source in found),
        links=links,
    )


def _links(records: ConfigRecords, facts: EntityFacts | None, resource: str) -> Links | None:
    """Return what a request depends on besides the limits of its own bucket, None if it is nothing."""
    levels = (records.entity_all, records.resource_all)
    all_resources = any(record is not None and record.limits and not record.deleted for record in levels)
    if facts is None:
        return Links(all_resources=True) if all_resources else None
    parent_id = facts.parent_id if facts.cascades(resource) else None
    blocks = tuple(block for block in facts.blocks if block.resource in (None, resource))
    found = Links(parent_id, all_resources, blocks, facts.bypass)
    return None if found == BARE else found


def _merged(records: ConfigRecords) -> list[tuple[Limit, ConfigSource]]:
    """Return the limits in force, sorted by name, each with its level; a record without limits is skipped."""
    levels = (records.entity_resource, records.entity_default, records.resource, records.system)
    found: dict[str, tuple[Limit, ConfigSource]] = {}
    for source, record in zip(_LEVELS, levels, strict=True):
        if record is None or not record.limits or record.deleted:
            continue
        found = {limit.name: (limit, source) for limit in record.limits} | found
        if not record.inherit:
            break
    return [found[name] for name in sorted(found)]


def _stamp(records: ConfigRecords) -> int:
    """Return the sum of all versions. No version ever falls, so a change anywhere raises it without a clock."""
    levels = (records.entity_resource, records.entity_default, records.resource, records.system)
    read = (*levels, records.meta, records.entity_all, records.resource_all)
    return sum(record.version for record in read if record is not None)


def make_cursor(resource: str, entity_id: str) -> str:
    """Return the cursor that continues a list of entities with limits for a resource after this entity.

    ``ALL_ENTITIES`` in place of a resource continues the list of all entities.
    """
    return urlsafe_b64encode(f"{resource} {entity_id}".encode()).decode()


def entity_of_cursor(cursor: object, resource: str) -> str:
    """Return the entity after which a list continues.

    Raises:
        ValidationError: The value is not a cursor of a list for this resource, or of all entities.
    """
    check_text("cursor", cursor, _MAX_CURSOR)
    try:
        listed, _, entity_id = b64decode(str(cursor), b"-_", validate=True).decode("ascii").partition(" ")
        check_entity_id(entity_id)
    # A cursor comes from the user, so it may be any text.
    except ValueError:
        listed, entity_id = "", ""
    if listed != resource:
        whose = "all entities" if resource == ALL_ENTITIES else f"the entities of {resource!r}"
        raise ValidationError("cursor", cursor, f"must come from a list of {whose}")
    return entity_id
