"""Convert the version record of a table to an item and back, and describe its writes."""

from typing import Any

from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.outcome import Item
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import fields, keys
from zae_limiter.schema.operations import Equals, ItemAbsent, Key, Put, Update

_SCHEMA_VERSION = "schema_version"
_TEXTS = ("lambda_version", "client_min_version", "updated_at", "updated_by")
_RETENTION = "audit_retention_days"
_OPTIONAL = (*_TEXTS, _RETENTION)


def key(namespace_id: str = RESERVED_NAMESPACE) -> Key:
    """Return the key of the version record. Older tables have it in their first namespace instead of the registry."""
    return Key(keys.pk_system(namespace_id), keys.sk_version())


def to_item(record: VersionRecord) -> dict[str, Any]:
    """Return the item of a version record."""
    pk, sk = key()
    known = {name: getattr(record, name) for name in _OPTIONAL}
    return {"PK": pk, "SK": sk, _SCHEMA_VERSION: record.schema_version, **known, **keys.gsi4_attributes(pk)}


def from_item(item: Item) -> VersionRecord:
    """Return the version record of an item.

    Raises:
        CorruptItemError: The item is damaged.
    """
    known = {name: fields.optional_text(item, name) for name in _TEXTS}
    retention_days = fields.optional_number(item, _RETENTION)
    return VersionRecord(fields.text(item, _SCHEMA_VERSION), **known, audit_retention_days=retention_days)


def create(record: VersionRecord) -> Put:
    """Write the first version record of a table."""
    return Put(to_item(record), (ItemAbsent(),))


def replace(record: VersionRecord, seen: VersionRecord) -> Update:
    """Write what differs from the record ``seen``, unless the schema has changed since."""
    names = (_SCHEMA_VERSION, *_OPTIONAL)
    changed = {name: getattr(record, name) for name in names if getattr(record, name) != getattr(seen, name)}
    return Update(key(), set=changed, when=(Equals(_SCHEMA_VERSION, seen.schema_version),))
