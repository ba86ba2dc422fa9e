"""Convert audit events to items and back, and describe their writes and queries.

An event is always written in one transaction with the change that it records.
"""

from typing import Any

from zae_limiter.core.audit import AuditEvent, known_action
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import ItemAbsent, Key, Put, Query

_EVENT_ID = "event_id"
_TIMESTAMP = "timestamp"
_ACTION = "action"
_PRINCIPAL = "principal"
_DETAILS = "details"


def key(namespace_id: str, entity_id: str, event_id: str) -> Key:
    """Return the key of an event's item."""
    return Key(keys.pk_audit(namespace_id, entity_id), keys.sk_audit(event_id))


def to_item(namespace_id: str, event: AuditEvent, ttl_s: int | None) -> dict[str, Any]:
    """Return the item of an event. It expires at ``ttl_s``, in epoch seconds, or never if that is None."""
    pk, sk = key(namespace_id, event.entity_id, event.event_id)
    item: dict[str, Any] = {
        "PK": pk,
        "SK": sk,
        _EVENT_ID: event.event_id,
        _TIMESTAMP: event.timestamp,
        _ACTION: str(event.action),
        attributes.ENTITY_ID: event.entity_id,
        _PRINCIPAL: event.principal,
        attributes.RESOURCE: event.resource,
        _DETAILS: dict(event.details),
        **keys.gsi4_attributes(pk, keys.gsi4_sk_audit(event.event_id)),
    }
    return item if ttl_s is None else item | {attributes.TTL: ttl_s}


def from_item(item: Item) -> AuditEvent:
    """Return the event of an item.

    Raises:
        CorruptItemError: The item is damaged.
    """
    return AuditEvent(
        event_id=fields.text(item, _EVENT_ID),
        timestamp=fields.text(item, _TIMESTAMP),
        action=known_action(fields.text(item, _ACTION)),
        entity_id=fields.text(item, attributes.ENTITY_ID),
        principal=fields.optional_text(item, _PRINCIPAL),
        resource=fields.optional_text(item, attributes.RESOURCE),
        details=fields.mapping(item, _DETAILS),
    )


def write(namespace_id: str, event: AuditEvent, ttl_s: int | None) -> Put:
    """Write an event that does not exist yet."""
    return Put(to_item(namespace_id, event, ttl_s), (ItemAbsent(),))


def newest_first(namespace_id: str, entity_id: str, limit: int, before: str | None) -> Query:
    """Find the events of an id, newest first: those older than the event ``before``, or all if it is None."""
    pk = keys.pk_audit(namespace_id, entity_id)
    start = None if before is None else {"PK": pk, "SK": keys.sk_audit(before)}
    return Query(pk, prefix=keys.SK_AUDIT_PREFIX, descending=True, limit=limit, start=start)
