"""Convert config records to items and back, and describe their writes and queries.

A config record has the limits of the system, a resource or an entity. Every write requires the
version that was seen and raises it by 1. A delete leaves a tombstone that keeps the version, so
that versions never fall. The registries count, per resource, the records that have limits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core.calendar import parse_schedule
from zae_limiter.core.config import ConfigRecord, ConfigRecords
from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import ALL_RESOURCES, DEFAULT_RESOURCE
from zae_limiter.core.outcome import Item
from zae_limiter.core.status import OnUnavailable
from zae_limiter.schema import attributes, entity_item, fields, keys
from zae_limiter.schema.limit_options import options_of, stored_options
from zae_limiter.schema.operations import Conditions, Equals, ItemAbsent, Key, Page, Put, Query, Update


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """Which config record: of an entity and a resource, of a resource, or of the system if both are None."""

    namespace_id: str
    entity_id: str | None = None
    resource: str | None = None

    @property
    def key(self) -> Key:
        """The key of the record's item."""
        if self.entity_id is not None:
            return Key(keys.pk_entity(self.namespace_id, self.entity_id), keys.sk_config(self.resource))
        if self.resource is not None:
            return Key(keys.pk_resource(self.namespace_id, self.resource), keys.sk_config())
        return Key(keys.pk_system(self.namespace_id), keys.sk_config())

    @property
    def registry(self) -> Key | None:
        """The key of the registry that counts the record, None for the system's record."""
        if self.resource is None:
            return None
        return (resource_registry if self.entity_id is None else entity_registry)(self.namespace_id)


def system_place(namespace_id: str) -> ConfigPlace:
    """Return the place of the defaults of a namespace."""
    return ConfigPlace(namespace_id)


def resource_place(namespace_id: str, resource: str) -> ConfigPlace:
    """Return the place of the defaults of a resource."""
    return ConfigPlace(namespace_id, resource=resource)


def entity_place(namespace_id: str, entity_id: str, resource: str) -> ConfigPlace:
    """Return the place of the limits of an entity for a resource, or for ``_default_``."""
    return ConfigPlace(namespace_id, entity_id, resource)


def to_item(place: ConfigPlace, record: ConfigRecord) -> dict[str, Any]:
    """Return the item of a record. A tombstone is only in GSI4, where a purge finds it."""
    key = place.key
    item: dict[str, Any] = {"PK": key.pk, "SK": key.sk, attributes.CONFIG_VERSION: record.version}
    item |= keys.gsi4_attributes(key.pk)
    if place.resource is not None:
        item[attributes.RESOURCE] = place.resource
    if place.entity_id is not None:
        item[attributes.ENTITY_ID] = place.entity_id
    if record.deleted:
        return item | {attributes.DELETED: True}
    if place.entity_id is not None and place.resource is not None:
        item["GSI3PK"] = keys.gsi3_pk_entity_config(place.namespace_id, place.resource)
        item["GSI3SK"] = keys.gsi3_sk_entity(place.entity_id)
    if record.on_unavailable is not None:
        item[attributes.ON_UNAVAILABLE] = record.on_unavailable.value
    if record.inherit:
        item[attributes.INHERIT] = True
    for limit in record.limits:
        item |= _limit_attributes(limit)
    return item


def from_item(item: Item) -> ConfigRecord:
    """Return the record of an item; its limits are sorted by name.

    Raises:
        CorruptItemError: The item is damaged.
    """
    version = fields.number(item, attributes.CONFIG_VERSION)
    if fields.flag(item, attributes.DELETED):
        return ConfigRecord((), version, deleted=True)
    on_unavailable = fields.optional_choice(item, attributes.ON_UNAVAILABLE, OnUnavailable)
    return ConfigRecord(_limits_of(item), version, on_unavailable, inherit=fields.flag(item, attributes.INHERIT))


def write(
    place: ConfigPlace,
    limits: Sequence[Limit],
    seen: ConfigRecord | None,
    on_unavailable: OnUnavailable | None = None,
    inherit: bool = False,
) -> Put:
    """Set the limits of a place whose record was ``seen``, None if there was none."""
    record = ConfigRecord(tuple(limits), _next_version(seen), on_unavailable, inherit=inherit)
    return Put(to_item(place, record), _unchanged_since(seen))


def tombstone(place: ConfigPlace, seen: ConfigRecord) -> Put:
    """Delete the limits of a place whose record was ``seen``."""
    return Put(to_item(place, ConfigRecord((), _next_version(seen), deleted=True)), _unchanged_since(seen))


def register(place: ConfigPlace, seen: ConfigRecord | None) -> Update | None:
    """Count a record that is about to be created; None if it is counted already or has no registry."""
    return None if _is_live(seen) else _count(place, +1)


def unregister(place: ConfigPlace, seen: ConfigRecord | None) -> Update | None:
    """Stop counting a record that is about to be deleted; None if it is not counted."""
    return _count(place, -1) if _is_live(seen) else None


def registered(item: Item) -> list[str]:
    """Return the resources that a registry counts, sorted; an absent registry is the empty item.

    Raises:
        CorruptItemError: A counter is damaged.
    """
    columns = {name: attributes.parse_registry_column(name) for name in item}
    return sorted(resource for name, resource in columns.items() if resource and fields.number(item, name) > 0)


def resource_registry(namespace_id: str) -> Key:
    """Return the key of the registry of resources that have defaults."""
    return Key(keys.pk_system(namespace_id), keys.sk_resources())


def entity_registry(namespace_id: str) -> Key:
    """Return the key of the registry of resources for which entities have their own limits."""
    return Key(keys.pk_system(namespace_id), keys.sk_entity_config_resources())


def entities_query(namespace_id: str, resource: str, limit: int | None, after: str | None) -> Query:
    """Find the entities with their own limits for a resource, sorted: those after ``after``, or all if it is None."""
    pk = keys.gsi3_pk_entity_config(namespace_id, resource)
    if after is None:
        return Query(pk, "GSI3", limit=limit)
    key = entity_place(namespace_id, after, resource).key
    start = {"PK": key.pk, "SK": key.sk, "GSI3PK": pk, "GSI3SK": keys.gsi3_sk_entity(after)}
    return Query(pk, "GSI3", limit=limit, start=start)


def entities_of(page: Page) -> list[str]:
    """Return the entities that ``entities_query`` found."""
    return [fields.text(item, "GSI3SK") for item in page.items]


class ResolutionKeys(NamedTuple):
    """The keys of the records that decide the limits in force for one resource."""

    entity_resource: Key
    entity_default: Key
    resource: Key
    system: Key
    meta: Key


class AllResourcesKeys(NamedTuple):
    """The keys of the records that decide the limits in force across resources, besides that of the entity."""

    entity_all: Key
    resource_all: Key


def resolution_keys(namespace_id: str, entity_id: str, resource: str) -> ResolutionKeys:
    """Return the keys of the records that decide the limits of an entity for a resource."""
    return ResolutionKeys(
        entity_place(namespace_id, entity_id, resource).key,
        entity_place(namespace_id, entity_id, DEFAULT_RESOURCE).key,
        resource_place(namespace_id, resource).key,
        system_place(namespace_id).key,
        entity_item.key(namespace_id, entity_id),
    )


def all_resources_keys(namespace_id: str, entity_id: str) -> AllResourcesKeys:
    """Return the keys of the records that decide the limits of an entity across resources."""
    return AllResourcesKeys(
        entity_place(namespace_id, entity_id, ALL_RESOURCES).key, resource_place(namespace_id, ALL_RESOURCES).key
    )


def resolution_records(
    keys: ResolutionKeys, across: AllResourcesKeys, found: Mapping[Key, Item | None]
) -> ConfigRecords:
    """Return the records among items that were read; None for an item that is absent or was not read.

    Raises:
        CorruptItemError: An item is damaged.
    """
    meta = found.get(keys.meta)
    return ConfigRecords(
        entity_resource=_record_of(found.get(keys.entity_resource)),
        entity_default=_record_of(found.get(keys.entity_default)),
        resource=_record_of(found.get(keys.resource)),
        system=_record_of(found.get(keys.system)),
        meta=None if meta is None else entity_item.facts_from_item(meta),
        entity_all=_record_of(found.get(across.entity_all)),
        resource_all=_record_of(found.get(across.resource_all)),
    )


def _record_of(item: Item | None) -> ConfigRecord | None:
    return None if item is None else from_item(item)


def _limit_attributes(limit: Limit) -> dict[str, Any]:
    numbers: dict[str, Any]
    if limit.schedule is not None:
        numbers = {attributes.QUOTA_AMOUNT: limit.capacity, attributes.QUOTA_SCHEDULE: limit.schedule.text}
    elif limit.hold_seconds:
        numbers = {attributes.CAPACITY: limit.capacity, attributes.HOLD: limit.hold_seconds}
    else:
        numbers = {
            attributes.CAPACITY: limit.capacity,
            attributes.REFILL_AMOUNT: limit.refill_amount,
            attributes.REFILL_PERIOD: limit.refill_period_seconds,
        }
    stored = numbers | stored_options(limit)
    return {attributes.config_attribute(limit.name, field): value for field, value in stored.items()}


def _limits_of(item: Item) -> tuple[Limit, ...]:
    parsed = {attributes.parse_config_attribute(name) for name in item}
    return tuple(_limit_of(item, name) for name in sorted({found.limit_name for found in parsed if found}))


def _limit_of(item: Item, limit_name: str) -> Limit:
    def name_of(field: str) -> str:
        return attributes.config_attribute(limit_name, field)

    def number(field: str) -> int:
        return fields.number(item, name_of(field))

    options = options_of(item, name_of)
    schedule = fields.optional_text(item, name_of(attributes.QUOTA_SCHEDULE))
    capacity = number(attributes.CAPACITY if schedule is None else attributes.QUOTA_AMOUNT)
    amount = period = hold = 0
    if name_of(attributes.HOLD) in item:
        hold = number(attributes.HOLD)
    elif schedule is None:
        amount, period = number(attributes.REFILL_AMOUNT), number(attributes.REFILL_PERIOD)
    try:
        return Limit(
            limit_name,
            capacity,
            amount,
            period,
            hold,
            schedule=None if schedule is None else parse_schedule(schedule),
            unit=options.unit,
            enforce=not options.soft,
            warn_at=options.thresholds,
        )
    except ValidationError as error:
        raise CorruptItemError(fields.location(item), str(error)) from error


def _next_version(seen: ConfigRecord | None) -> int:
    return 1 if seen is None else seen.version + 1


def _unchanged_since(seen: ConfigRecord | None) -> Conditions:
    return (ItemAbsent(),) if seen is None else (Equals(attributes.CONFIG_VERSION, seen.version),)


def _is_live(seen: ConfigRecord | None) -> bool:
    return seen is not None and not seen.deleted


def _count(place: ConfigPlace, step: int) -> Update | None:
    if place.registry is None or place.resource is None:
        return None
    column = attributes.registry_column(place.resource)
    return Update(place.registry, add={column: step}, set=keys.gsi4_attributes(place.registry.pk))
