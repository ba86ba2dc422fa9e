"""Describe audit events: who changed what, and when. ``store/audit.py`` writes and reads them."""

import re
from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any, Self

from zae_limiter.core.errors import InvalidIdentifierError, ValidationError
from zae_limiter.core.lazy_dataclass import asdict, dataclass, field, fields
from zae_limiter.core.names import check_entity_id, check_namespace, check_resource, check_text
from zae_limiter.core.timestamp import iso_from_ms

SYSTEM_AUDIT_ID = "$SYSTEM"
_RESOURCE_AUDIT_PREFIX = "$RESOURCE:"
_NAMESPACE_AUDIT_PREFIX = "$NAMESPACE:"
_MAX_PRINCIPAL = 256
_NUMBER_BITS = 64
_EVENT_ID = r"[0-9]{13,}-[0-9a-f]{16}"


class AuditAction(StrEnum):
    """The kinds of change that are audited."""

    ENTITY_CREATED = "entity_created"
    ENTITY_DELETED = "entity_deleted"
    ENTITY_MOVED = "entity_moved"
    ENTITY_BLOCKED = "entity_blocked"
    ENTITY_UNBLOCKED = "entity_unblocked"
    BYPASS_SET = "bypass_set"
    BUCKETS_RESET = "buckets_reset"
    CREDITED = "credited"
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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make an event from the result of ``to_dict``.

        Raises:
            ValidationError: A field is missing, unknown or of another type.
        """
        if not isinstance(data, Mapping):
            raise ValidationError("audit event", data, f"must be a mapping, not {type(data).__name__}")
        known = [entry.name for entry in fields(cls)]
        if data.keys() != set(known):
            raise ValidationError("audit event", dict(data), f"must have exactly the fields {', '.join(known)}")
        for name in ("event_id", "timestamp", "action", "entity_id"):
            _require(name, data[name], str, "text")
        for name in ("principal", "resource"):
            _require(name, data[name], str | None, "text or None")
        _require("details", data["details"], Mapping, "a mapping")
        return cls(**{**data, "action": known_action(data["action"]), "details": deepcopy(dict(data["details"]))})

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a dictionary, ready for JSON."""
        return {**asdict(self), "action": str(self.action)}


@dataclass(frozen=True, slots=True)
class AuditChange:
    """A change to audit, before the event has an id and a time."""

    action: AuditAction
    entity_id: str
    principal: str | None = None
    resource: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def known_action(text: str) -> AuditAction | str:
    """Return the action of a text; the text itself if a newer version wrote it."""
    return AuditAction(text) if text in set(AuditAction) else str(text)


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


def previous_event_id(event_id: str) -> str:
    """Return the largest possible event id that sorts before a valid one."""
    time, _, number = event_id.partition("-")
    before = int(time) * 2**_NUMBER_BITS + int(number, 16) - 1
    # No event is older than the epoch.
    return make_event_id(*divmod(max(before, 0), 2**_NUMBER_BITS))


def check_event_id(value: object, field: str = "event_id") -> None:
    """Require a valid event id.

    Raises:
        InvalidIdentifierError: The value is not an event id.
    """
    if type(value) is not str or not re.fullmatch(_EVENT_ID, value):
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
        check_resource(value.removeprefix(_RESOURCE_AUDIT_PREFIX), field, allow_all=True)
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


def _require(name: str, value: object, kind: Any, wanted: str) -> None:
    if not isinstance(value, kind):
        raise ValidationError(name, value, f"must be {wanted}, not {type(value).__name__}")
