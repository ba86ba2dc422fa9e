"""Define namespaces and their states: active, deleted (recoverable), purging, and then removed.

Each state change is a function from a namespace to a namespace. ``store/namespaces.py`` writes
them.
"""

from enum import StrEnum

from zae_limiter.core.errors import NamespaceStateError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.names import check_namespace, is_namespace_id

DEFAULT_NAMESPACE = "default"
_RANDOM_BYTES = 8


class NamespaceStatus(StrEnum):
    """The state of a namespace."""

    ACTIVE = "active"
    DELETED = "deleted"
    PURGING = "purging"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named, isolated part of the table. The keys of its items start with ``id``."""

    id: str
    name: str
    status: NamespaceStatus
    created_at: str
    deleted_at: str | None = None


def register(name: str, namespace_id: str, created_at: str) -> Namespace:
    """Make a new active namespace.

    Raises:
        ValidationError: The name is not a valid namespace name.
    """
    check_namespace(name)
    return Namespace(namespace_id, name, NamespaceStatus.ACTIVE, created_at)


def delete(namespace: Namespace, deleted_at: str) -> Namespace:
    """Mark an active namespace as deleted; its data stays.

    Raises:
        NamespaceStateError: The namespace is not active.
    """
    _require(namespace, "delete", NamespaceStatus.ACTIVE)
    return replace(namespace, status=NamespaceStatus.DELETED, deleted_at=deleted_at)


def recover(namespace: Namespace) -> Namespace:
    """Make a deleted namespace active again.

    Raises:
        NamespaceStateError: The namespace is active, or its data is being removed.
    """
    _require(namespace, "recover", NamespaceStatus.DELETED)
    return replace(namespace, status=NamespaceStatus.ACTIVE, deleted_at=None)


def purge(namespace: Namespace) -> Namespace:
    """Start or continue to remove the data of a deleted namespace.

    Raises:
        NamespaceStateError: The namespace is active.
    """
    _require(namespace, "purge", NamespaceStatus.DELETED, NamespaceStatus.PURGING)
    return replace(namespace, status=NamespaceStatus.PURGING)


def make_namespace_id(random_bytes: bytes) -> str:
    """Return an opaque id of 11 characters from 8 random bytes.

    It never starts with ``-``, because a command line would parse that as an option.
    """
    # Imported here, because few processes create a namespace.
    from base64 import urlsafe_b64encode

    text = urlsafe_b64encode(random_bytes[:_RANDOM_BYTES]).rstrip(b"=").decode()
    return f"0{text[1:]}" if text.startswith("-") else text


def check_namespace_id(value: object, field: str = "namespace_id") -> None:
    """Require a valid namespace id.

    Raises:
        ValidationError: The value is not a namespace id.
    """
    if type(value) is not str or not is_namespace_id(value):
        raise ValidationError(field, value, "a namespace id has 11 letters, digits, _ or -; list_namespaces() shows it")


def _require(namespace: Namespace, operation: str, *allowed: NamespaceStatus) -> None:
    if namespace.status not in allowed:
        raise NamespaceStateError(namespace.name, namespace.status.value, operation)
