"""Describe audit events: who changed what, and when. ``store/audit.py`` writes and reads them."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from zae_limiter.core.errors import InvalidIdentifierError
from zae_limiter.core.names import check_entity_id, check_namespace, check_resource, check_text
from zae_limiter.core.timestamp import iso_from_ms

SYSTEM_AUDIT_ID = "$SYSTEM"
_RESOURCE_AUDIT_PREFIX = "$RESOURCE:"
_NAMESPACE_AUDIT_PREFIX = "$NAMESPACE:"
_MAX_PRINCIPAL = 256
_NUMBER_BITS = 64
_EVENT_ID = re.compile(r"[0-9]{13,}-[0-9a-f]{16}")


class AuditAction(StrEnum):
    """The kinds of change that are audited."""

    ENTITY_CREATED = "entity_created"
    ENTITY_DELETED = "entity_deleted"
    LIMITS_SET = "limits_set"
    LIMITS_DELETED = "limits_deleted"
    RESOURCE_DEFAULTS_SET = "resource_defaults_set"
    RESOURCE_DEFAULTS_DELETED = "resource_defaults_deleted"
    SYSTEM_DEFAULTS_SET = "system_defaults_set"
    SYSTEM_DEFAULTS_DELETED = "system_defaults_deleted"
    NAMESPACE_REGISTERED = "namespace_registered"
    NAMESPACE_DELETED = "namespace_deleted"
    NAMESPACE_RECOVERED = "namespace_recovered"
    NAMESPACE_PURGE_BEGUN = "namespace_purge_begun"
    NAMESPACE_PURGED = "namespace_purged"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One change. ``action`` is plain text if a newer version wrote an action that is unknown here."""

    event_id: str
    timestamp: str
    action: AuditAction | str
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditChange:
    """A change to audit, before the event has an id and a time."""

    action: AuditAction
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def record(change: AuditChange, now_ms: int, number: int) -> AuditEvent:
    """Make the event of a change at a time."""
    return AuditEvent(
        event_id=make_event_id(now_ms, number),
        timestamp=iso_from_ms(now_ms),
        action=change.action,
        entity_id=change.entity_id,
        principal=change.principal,
        resource=change.resource,
        details=change.details,
    )


def make_event_id(now_ms: int, number: int) -> str:
    """Return an id that sorts by time, then by a 64-bit number, which each client counts up from a random start."""
    return f"{now_ms:013d}-{number % 2**_NUMBER_BITS:016x}"


def check_event_id(value: object, field: str = "event_id") -> None:
    """Require a valid event id.

    Raises:
        InvalidIdentifierError: The value is not an event id.
    """
    if type(value) is not str or not _EVENT_ID.fullmatch(value):
        raise InvalidIdentifierError(field, value, "must be the event_id of an audit event")


def resource_audit_id(resource: str) -> str:
    """Return the id that the events of a resource's defaults are stored under."""
    return f"{_RESOURCE_AUDIT_PREFIX}{resource}"


def namespace_audit_id(namespace: str) -> str:
    """Return the id that the events of a namespace are stored under."""
    return f"{_NAMESPACE_AUDIT_PREFIX}{namespace}"


def is_namespace_audit_id(entity_id: str) -> bool:
    """Return whether an id is that of a namespace's events."""
    return entity_id.startswith(_NAMESPACE_AUDIT_PREFIX)


def check_audit_id(value: object, field: str = "entity_id") -> None:
    """Require an id that events can be stored under: an entity id, or one of the ids that start with ``$``.

    Raises:
        ValidationError: The value is neither.
    """
    if type(value) is not str or not value.startswith("$"):
        check_entity_id(value, field)
    elif value.startswith(_RESOURCE_AUDIT_PREFIX):
        check_resource(value.removeprefix(_RESOURCE_AUDIT_PREFIX), field)
    elif value.startswith(_NAMESPACE_AUDIT_PREFIX):
        check_namespace(value.removeprefix(_NAMESPACE_AUDIT_PREFIX), field)
    elif value != SYSTEM_AUDIT_ID:
        raise InvalidIdentifierError(field, value, "must be an entity id, $SYSTEM, $RESOURCE:name or $NAMESPACE:name")


def check_principal(value: object) -> None:
    """Require the name of the user or program that makes a change, or None.

    Raises:
        ValidationError: The value is neither.
    """
    if value is not None:
        check_text("principal", value, _MAX_PRINCIPAL)
