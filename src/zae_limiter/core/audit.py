"""AuditEvent: who changed what, and when. Writing and keeping events is done elsewhere."""

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
    """The changes that leave an event."""

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
    """One change; ``action`` is plain text where a newer version wrote one that is not known here."""

    event_id: str
    timestamp: str
    action: AuditAction | str
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditChange:
    """What an event tells of a change, before it has an id and a time."""

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
    """An id that sorts by time, then by a number of 64 bits; clients count up from one that chance chose."""
    return f"{now_ms:013d}-{number % 2**_NUMBER_BITS:016x}"


def check_event_id(value: object, field: str = "event_id") -> None:
    """Require the id of an event.

    Raises:
        ValidationError: it is none.
    """
    if type(value) is not str or not _EVENT_ID.fullmatch(value):
        raise InvalidIdentifierError(field, value, "must be the event_id of an audit event")


def resource_audit_id(resource: str) -> str:
    """The id under which the events of a resource's defaults are kept."""
    return f"{_RESOURCE_AUDIT_PREFIX}{resource}"


def namespace_audit_id(namespace: str) -> str:
    """The id under which the events of a namespace are kept."""
    return f"{_NAMESPACE_AUDIT_PREFIX}{namespace}"


def is_namespace_audit_id(entity_id: str) -> bool:
    """Say whether the events under an id are those of a namespace."""
    return entity_id.startswith(_NAMESPACE_AUDIT_PREFIX)


def check_audit_id(value: object, field: str = "entity_id") -> None:
    """Require an id that events may be kept under: of an entity, or one of those that start with ``$``.

    Raises:
        ValidationError: it is none.
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
    """Require the name of whoever makes a change, or None.

    Raises:
        ValidationError: it is neither.
    """
    if value is not None:
        check_text("principal", value, _MAX_PRINCIPAL)
