"""Convert the version record of a table to an item and back, and describe its writes."""

from collections.abc import Mapping
from typing import Any

from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.outcome import Item
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import fields, keys
from zae_limiter.schema.operations import Equals, ItemAbsent, ItemExists, Key, Put, Update

_SCHEMA_VERSION = "schema_version"
_TEXTS = ("lambda_version", "client_min_version", "updated_at", "updated_by")
_RETENTION = "audit_retention_days"
_OPTIONAL = (*_TEXTS, _RETENTION)
_KIND = "kind_"


def key(namespace_id: str = RESERVED_NAMESPACE) -> Key:
    """Return the key of the version record. Older tables have it in their first namespace instead of the registry."""
    return Key(keys.pk_system(namespace_id), keys.sk_version())


def to_item(record: VersionRecord) -> dict[str, Any]:
    """Return the item of a version record."""
    pk, sk = key()
    known = {name: getattr(record, name) for name in _OPTIONAL}
    item = {"PK": pk, "SK": sk, _SCHEMA_VERSION: record.schema_version, **known, **keys.gsi4_attributes(pk)}
    return item | _kind_attributes(record.kinds)


def from_item(item: Item) -> VersionRecord:
    """Return the version record of an item.

    Raises:
        CorruptItemError: The item is damaged.
    """
    known = {name: fields.optional_text(item, name) for name in _TEXTS}
    retention_days = fields.optional_number(item, _RETENTION)
    version = fields.text(item, _SCHEMA_VERSION)
    return VersionRecord(version, **known, audit_retention_days=retention_days, kinds=kinds_of(item))


def kinds_of(item: Item) -> dict[str, str]:
    """Return the kinds of items that the table of a version record may store, each with a version that knows it.

    Raises:
        CorruptItemError: The item is damaged.
    """
    return {name.removeprefix(_KIND): fields.text(item, name) for name in item if name.startswith(_KIND)}


def create(record: VersionRecord) -> Put:
    """Write the first version record of a table."""
    return Put(to_item(record), (ItemAbsent(),))


def replace(record: VersionRecord, seen: VersionRecord) -> Update:
    """Write what differs from the record ``seen``, unless the schema has changed since."""
    names = (_SCHEMA_VERSION, *_OPTIONAL)
    changed = {name: getattr(record, name) for name in names if getattr(record, name) != getattr(seen, name)}
    return Update(key(), set=changed, when=(Equals(_SCHEMA_VERSION, seen.schema_version),))


def allow(kind: str, record: VersionRecord) -> Update:
    """Allow a kind of items, as ``record`` does. Each kind has its own attribute, so none is lost to a race."""
    changes = {"updated_at": record.updated_at, "updated_by": record.updated_by}
    return Update(key(), set=_kind_attributes({kind: record.kinds[kind]}) | changes, when=(ItemExists(),))


def _kind_attributes(kinds: Mapping[str, str]) -> dict[str, str]:
    return {f"{_KIND}{name}": version for name, version in kinds.items()}
