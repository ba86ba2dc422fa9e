"""Build the primary keys and index keys of every record, and parse those that are read back.

Names never contain ``#`` and namespace ids never contain ``/``, so every key can be parsed. Other
names may contain ``/``: only the first one ends the namespace id. A parser returns None for a key
of another kind.
"""

from typing import NamedTuple

from zae_limiter.core.audit import is_namespace_audit_id
from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.sharding import MOST_SHARDS

_SYSTEM = "SYSTEM#"
_RESOURCE = "RESOURCE#"
_ENTITY = "ENTITY#"
_BUCKET = "BUCKET#"
_AUDIT = "AUDIT#"
_PARENT = "PARENT#"
_CHILD = "CHILD#"
_ENTITY_CONFIG = "ENTITY_CONFIG#"
_USAGE = "USAGE#"
_SHARD_DIGITS = len(str(MOST_SHARDS))

SK_CONFIG_PREFIX = "#CONFIG#"
SK_USAGE_PREFIX = "#USAGE#"
SK_AUDIT_PREFIX = "#AUDIT#"
SK_NAMESPACE_PREFIX = "#NAMESPACE#"
SK_NSID_PREFIX = "#NSID#"
GSI_BUCKET_PREFIX = _BUCKET
GSI_USAGE_PREFIX = _USAGE
GSI_CHILD_PREFIX = _CHILD
GSI_ENTITY_PREFIX = _ENTITY
GSI_AUDIT_PREFIX = _AUDIT


class BucketKey(NamedTuple):
    """The parts of a bucket's partition key."""

    namespace_id: str
    entity_id: str
    resource: str
    shard_id: int


class Scoped(NamedTuple):
    """A name within a namespace."""

    namespace_id: str
    name: str


class UsageSortKey(NamedTuple):
    """The resource and the window of a usage snapshot."""

    name: str
    window_key: str


# --- partition keys ---------------------------------------------------------------------------------------------------


def pk_system(namespace_id: str) -> str:
    """Return the partition key of the system config, the version and the registries of a namespace."""
    return f"{namespace_id}/{_SYSTEM}"


def pk_registry() -> str:
    """Return the partition key of the namespace registry."""
    return pk_system(RESERVED_NAMESPACE)


def pk_resource(namespace_id: str, resource: str) -> str:
    """Return the partition key of the config of a resource."""
    return f"{namespace_id}/{_RESOURCE}{resource}"


def pk_entity(namespace_id: str, entity_id: str) -> str:
    """Return the partition key of an entity: its metadata, config and usage."""
    return f"{namespace_id}/{_ENTITY}{entity_id}"


def parse_entity_pk(pk: str) -> Scoped | None:
    """Return the namespace id and entity id of ``pk_entity``."""
    return _scoped(pk, _ENTITY)


def pk_bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> str:
    """Return the partition key of one shard of a bucket. No other item is in that partition."""
    return f"{namespace_id}/{_BUCKET}{entity_id}#{resource}#{shard_id}"


def parse_bucket_pk(pk: str) -> BucketKey | None:
    """Return the parts of ``pk_bucket``."""
    scoped = _scoped(pk, _BUCKET)
    parts = scoped.name.split("#") if scoped else []
    if scoped is None or len(parts) != 3 or not _is_shard(parts[2]):
        return None
    return BucketKey(scoped.namespace_id, parts[0], parts[1], int(parts[2]))


def pk_audit(namespace_id: str, entity_id: str) -> str:
    """Return the partition key of the audit events of an entity or of a config level.

    Events of a namespace are in the reserved namespace, so that they survive its purge and every
    namespace can read them.
    """
    holder = RESERVED_NAMESPACE if is_namespace_audit_id(entity_id) else namespace_id
    return f"{holder}/{_AUDIT}{entity_id}"


def parse_audit_pk(pk: str) -> Scoped | None:
    """Return the namespace id and entity id of ``pk_audit``."""
    return _scoped(pk, _AUDIT)


def parse_namespace_id(pk: str) -> str | None:
    """Return the namespace id of any partition key, None if it has none."""
    namespace_id, slash, _ = pk.partition("/")
    return namespace_id if slash else None


# --- sort keys --------------------------------------------------------------------------------------------------------


def sk_state() -> str:
    """Return the sort key of a bucket."""
    return "#STATE"


def sk_meta() -> str:
    """Return the sort key of an entity's metadata."""
    return "#META"


def sk_version() -> str:
    """Return the sort key of the version record."""
    return "#VERSION"


def sk_resources() -> str:
    """Return the sort key of the registry of resources that have defaults."""
    return "#RESOURCES"


def sk_entity_config_resources() -> str:
    """Return the sort key of the registry of resources for which entities have their own limits."""
    return "#ENTITY_CONFIG_RESOURCES"


def sk_config(resource: str | None = None) -> str:
    """Return the sort key of a config: of an entity if a resource is given, else of the system or a resource."""
    return "#CONFIG" if resource is None else f"{SK_CONFIG_PREFIX}{resource}"


def parse_entity_config_sk(sk: str) -> str | None:
    """Return the resource of an entity's ``sk_config``."""
    return _after(sk, SK_CONFIG_PREFIX)


def sk_usage(resource: str, window_key: str) -> str:
    """Return the sort key of a usage snapshot."""
    return f"{SK_USAGE_PREFIX}{resource}#{window_key}"


def parse_usage_sk(sk: str) -> UsageSortKey | None:
    """Return the resource and window key of ``sk_usage``."""
    resource, _, window_key = (_after(sk, SK_USAGE_PREFIX) or "").partition("#")
    return UsageSortKey(resource, window_key) if resource and window_key else None


def sk_warned(resource: str) -> str:
    """Return the sort key of the record of which thresholds of a bucket were reached."""
    return f"#WARNED#{resource}"


def sk_audit(event_id: str) -> str:
    """Return the sort key of an audit event."""
    return f"{SK_AUDIT_PREFIX}{event_id}"


def parse_audit_sk(sk: str) -> str | None:
    """Return the event id of ``sk_audit``."""
    return _after(sk, SK_AUDIT_PREFIX)


def sk_credit(idempotency_key: str) -> str:
    """Return the sort key of the record of an operator's credit. The key may contain any character."""
    return f"#CREDIT#{idempotency_key}"


def sk_namespace(name: str) -> str:
    """Return the sort key of the forward record of a namespace, which is found by name."""
    return f"{SK_NAMESPACE_PREFIX}{name}"


def parse_namespace_sk(sk: str) -> str | None:
    """Return the name of ``sk_namespace``."""
    return _after(sk, SK_NAMESPACE_PREFIX)


def sk_nsid(namespace_id: str) -> str:
    """Return the sort key of the reverse record of a namespace, which is found by id."""
    return f"{SK_NSID_PREFIX}{namespace_id}"


def parse_nsid_sk(sk: str) -> str | None:
    """Return the namespace id of ``sk_nsid``."""
    return _after(sk, SK_NSID_PREFIX)


# --- GSI1: children of a parent ---------------------------------------------------------------------------------------


def gsi1_pk_parent(namespace_id: str, parent_id: str) -> str:
    """Return the index partition of the children of an entity."""
    return f"{namespace_id}/{_PARENT}{parent_id}"


def parse_gsi1_pk_parent(pk: str) -> Scoped | None:
    """Return the namespace id and parent id of ``gsi1_pk_parent``."""
    return _scoped(pk, _PARENT)


def gsi1_sk_child(entity_id: str) -> str:
    """Return the index sort key of a child."""
    return f"{_CHILD}{entity_id}"


# --- GSI2: buckets and usage of a resource ----------------------------------------------------------------------------


def gsi2_pk_resource(namespace_id: str, resource: str) -> str:
    """Return the index partition of the buckets and the usage of a resource."""
    return f"{namespace_id}/{_RESOURCE}{resource}"


def gsi2_sk_bucket(entity_id: str, shard_id: int) -> str:
    """Return the index sort key of a bucket within its resource."""
    return f"{_BUCKET}{entity_id}#{shard_id}"


def gsi2_sk_usage(window_key: str, entity_id: str) -> str:
    """Return the index sort key of a usage snapshot within its resource, which sorts by time."""
    return f"{_USAGE}{window_key}#{entity_id}"


# --- GSI3: entities with their own limits, and buckets of an entity ---------------------------------------------------


def gsi3_pk_entity_config(namespace_id: str, resource: str) -> str:
    """Return the index partition of the entities that have their own limits for a resource."""
    return f"{namespace_id}/{_ENTITY_CONFIG}{resource}"


def gsi3_sk_entity(entity_id: str) -> str:
    """Return the index sort key of an entity that has its own limits: its id."""
    return entity_id


def gsi3_pk_entity(namespace_id: str, entity_id: str) -> str:
    """Return the index partition of the buckets of an entity."""
    return f"{namespace_id}/{_ENTITY}{entity_id}"


def gsi3_sk_bucket(resource: str, shard_id: int) -> str:
    """Return the index sort key of a bucket within its entity."""
    return f"{_BUCKET}{resource}#{shard_id}"


def gsi3_sk_bucket_prefix(resource: str) -> str:
    """Return the common prefix of the index sort keys of all shards of one bucket."""
    return f"{_BUCKET}{resource}#"


# --- GSI4: everything of a namespace, and its lists -------------------------------------------------------------------


def gsi4_pk(namespace_id: str) -> str:
    """Return the index partition of all items of a namespace: its bare id."""
    return namespace_id


def gsi4_sk(pk: str) -> str:
    """Return the index sort key of an item that no list of a namespace contains: its partition key."""
    return pk


def gsi4_sk_entity(entity_id: str) -> str:
    """Return the index sort key of an entity, by which the entities of a namespace are listed."""
    return f"{_ENTITY}{entity_id}"


def gsi4_sk_audit(event_id: str) -> str:
    """Return the index sort key of an audit event, which sorts by time within the namespace."""
    return f"{_AUDIT}{event_id}"


def gsi4_sk_usage(window_key: str, entity_id: str, resource: str) -> str:
    """Return the index sort key of a usage snapshot, which sorts by time within the namespace."""
    return f"{_USAGE}{window_key}#{entity_id}#{resource}"


def gsi4_attributes(pk: str, sort: str | None = None) -> dict[str, str]:
    """Return the two attributes of every item by which a purge of its namespace finds it.

    ``sort`` is the sort key of an item that a list of the namespace contains, None for another
    item.
    """
    return {"GSI4PK": pk.partition("/")[0], "GSI4SK": gsi4_sk(pk) if sort is None else sort}


# --- parsing ----------------------------------------------------------------------------------------------------------


def _after(text: str, prefix: str) -> str | None:
    """Return the text after the prefix, None if the prefix is missing or nothing follows it."""
    return text[len(prefix) :] or None if text.startswith(prefix) else None


def _scoped(pk: str, prefix: str) -> Scoped | None:
    namespace_id, _, rest = pk.partition("/")
    name = _after(rest, prefix)
    return Scoped(namespace_id, name) if namespace_id and name else None


def _is_shard(text: str) -> bool:
    """Return whether a text is a shard number, written exactly as ``pk_bucket`` writes it."""
    # Check the length first: a hostile key may have 2,000 digits.
    canonical = text.isascii() and text.isdigit() and len(text) <= _SHARD_DIGITS and str(int(text)) == text
    return canonical and int(text) < MOST_SHARDS
