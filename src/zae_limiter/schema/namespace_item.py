"""Convert namespaces to registry records and back, and describe the writes that change their state.

A namespace has a forward record, found by name, and a reverse record, found by id. Both are in the
reserved namespace. Only an active namespace has a forward record. Each function returns operations
that require the state from which the change starts.
"""

from typing import Any

from zae_limiter.core.namespace import Namespace, NamespaceStatus
from zae_limiter.core.outcome import Item
from zae_limiter.schema import fields, keys
from zae_limiter.schema.operations import Check, Delete, Equals, ItemAbsent, Key, Operation, Put, Update

_NAMESPACE_ID = "namespace_id"
_NAMESPACE = "namespace"
_STATUS = "status"
_CREATED_AT = "created_at"
_DELETED_AT = "deleted_at"


def forward_key(name: str) -> Key:
    """Return the key of the record that is found by name."""
    return Key(keys.pk_registry(), keys.sk_namespace(name))


def reverse_key(namespace_id: str) -> Key:
    """Return the key of the record that is found by id."""
    return Key(keys.pk_registry(), keys.sk_nsid(namespace_id))


def forward_item(namespace: Namespace) -> dict[str, Any]:
    """Return the record that maps the name to the id."""
    return _registry_item(forward_key(namespace.name), namespace) | {_NAMESPACE_ID: namespace.id}


def reverse_item(namespace: Namespace) -> dict[str, Any]:
    """Return the record that maps the id to the name."""
    item = _registry_item(reverse_key(namespace.id), namespace) | {_NAMESPACE: namespace.name}
    return item if namespace.deleted_at is None else item | {_DELETED_AT: namespace.deleted_at}


def from_item(item: Item) -> Namespace:
    """Return the namespace of a forward or a reverse record.

    Raises:
        CorruptItemError: The item is damaged, or is neither.
    """
    sk = fields.text(item, "SK")
    by_name, by_id = keys.parse_namespace_sk(sk), keys.parse_nsid_sk(sk)
    if by_name is None and by_id is None:
        fields.damaged(item, "SK", "that of a namespace")
    status = fields.optional_choice(item, _STATUS, NamespaceStatus)
    return Namespace(
        id=by_id or fields.text(item, _NAMESPACE_ID),
        name=by_name or fields.text(item, _NAMESPACE),
        status=status or fields.damaged(item, _STATUS, "a string"),
        created_at=fields.text(item, _CREATED_AT),
        deleted_at=fields.optional_text(item, _DELETED_AT),
    )


def is_active(item: Item) -> bool:
    """Return whether a record is that of an active namespace."""
    return item.get(_STATUS) == NamespaceStatus.ACTIVE


def register(namespace: Namespace) -> tuple[Operation, ...]:
    """Write both records of a new namespace, if name and id are free."""
    return (
        Put(forward_item(namespace), (ItemAbsent(),)),
        Put(reverse_item(namespace), (ItemAbsent(),)),
    )


def delete(namespace: Namespace) -> tuple[Operation, ...]:
    """Delete the forward record of a deleted namespace, and mark the reverse record."""
    return (
        Delete(forward_key(namespace.name), (Equals(_NAMESPACE_ID, namespace.id),)),
        Put(reverse_item(namespace), (Equals(_STATUS, NamespaceStatus.ACTIVE.value),)),
    )


def recover(namespace: Namespace) -> tuple[Operation, ...]:
    """Write the forward record of a recovered namespace, if its name is still free."""
    return (
        Put(forward_item(namespace), (ItemAbsent(),)),
        Put(reverse_item(namespace), (Equals(_STATUS, NamespaceStatus.DELETED.value),)),
    )


def begin_purge(namespace: Namespace, seen: NamespaceStatus) -> Update:
    """Mark a namespace, ``seen`` as deleted or purging, as being purged."""
    return Update(
        reverse_key(namespace.id),
        set={_STATUS: NamespaceStatus.PURGING.value},
        when=(Equals(_STATUS, seen.value),),
    )


def end_purge(namespace_id: str) -> Delete:
    """Delete the reverse record of a namespace whose data was removed."""
    return Delete(reverse_key(namespace_id), (Equals(_STATUS, NamespaceStatus.PURGING.value),))


def require_active(namespace_id: str) -> Check:
    """Require, in a transaction, that a namespace is active."""
    return Check(reverse_key(namespace_id), (Equals(_STATUS, NamespaceStatus.ACTIVE.value),))


def require_unchanged(namespace: Namespace) -> Check:
    """Require, in a transaction, that a namespace has the status that was seen."""
    return Check(reverse_key(namespace.id), (Equals(_STATUS, namespace.status.value),))


def _registry_item(key: Key, namespace: Namespace) -> dict[str, Any]:
    item: dict[str, Any] = {"PK": key.pk, "SK": key.sk, _STATUS: namespace.status.value}
    return item | {_CREATED_AT: namespace.created_at} | keys.gsi4_attributes(key.pk)
