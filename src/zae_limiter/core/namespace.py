"""Namespace and its life cycle: active, deleted (and recoverable), purging, gone.

The steps are functions from a namespace to a namespace; writing them down is done elsewhere.
"""

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, replace
from enum import StrEnum

from zae_limiter.core.errors import NamespaceStateError, ValidationError
from zae_limiter.core.names import check_namespace

DEFAULT_NAMESPACE = "default"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{10}")
_RANDOM_BYTES = 8


class NamespaceStatus(StrEnum):
    """Where a namespace stands in its life."""

    ACTIVE = "active"
    DELETED = "deleted"
    PURGING = "purging"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A name for an isolated part of the table; ``id`` is what its keys start with."""

    id: str
    name: str
    status: NamespaceStatus
    created_at: str
    deleted_at: str | None = None


def register(name: str, namespace_id: str, created_at: str) -> Namespace:
    """Begin the life of a namespace.

    Raises:
        ValidationError: the name breaks the rule for names.
    """
    check_namespace(name)
    return Namespace(namespace_id, name, NamespaceStatus.ACTIVE, created_at)


def delete(namespace: Namespace, deleted_at: str) -> Namespace:
    """Hide an active namespace; its data stays.

    Raises:
        NamespaceStateError: it is not active.
    """
    _require(namespace, "delete", NamespaceStatus.ACTIVE)
    return replace(namespace, status=NamespaceStatus.DELETED, deleted_at=deleted_at)


def recover(namespace: Namespace) -> Namespace:
    """Bring a deleted namespace back.

    Raises:
        NamespaceStateError: it is active, or its data is being removed.
    """
    _require(namespace, "recover", NamespaceStatus.DELETED)
    return replace(namespace, status=NamespaceStatus.ACTIVE, deleted_at=None)


def purge(namespace: Namespace) -> Namespace:
    """Begin, or go on with, the removal of a deleted namespace's data.

    Raises:
        NamespaceStateError: it is active.
    """
    _require(namespace, "purge", NamespaceStatus.DELETED, NamespaceStatus.PURGING)
    return replace(namespace, status=NamespaceStatus.PURGING)


def make_namespace_id(random_bytes: bytes) -> str:
    """An opaque id of 11 characters out of 8 random bytes; it never starts with ``-``, as a flag does."""
    text = urlsafe_b64encode(random_bytes[:_RANDOM_BYTES]).rstrip(b"=").decode()
    return f"0{text[1:]}" if text.startswith("-") else text


def check_namespace_id(value: object, field: str = "namespace_id") -> None:
    """Require the id of a namespace.

    Raises:
        ValidationError: it is not one.
    """
    if type(value) is not str or len(value) != len("a7x3kq00000") or not _ID.fullmatch(value):
        raise ValidationError(field, value, "a namespace id has 11 letters, digits, _ or -; list_namespaces() shows it")


def _require(namespace: Namespace, operation: str, *allowed: NamespaceStatus) -> None:
    if namespace.status not in allowed:
        raise NamespaceStateError(namespace.name, namespace.status.value, operation)
