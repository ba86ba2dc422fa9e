"""Primary keys and index keys of every record, each builder beside its parser.

Names never hold ``#`` and namespace ids never hold ``/``, so every key can be taken apart again; a parser answers
None for a key of another kind. Which attributes an item has besides is not known here.
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


class Sharded(NamedTuple):
    """A shard of the bucket of an entity (on GSI2) or of a resource (on GSI3)."""

    name: str
    shard_id: int


class UsageSortKey(NamedTuple):
    """A window of a resource (as a sort key) or of an entity (on GSI2)."""

    name: str
    window_key: str


# --- partition keys ---------------------------------------------------------------------------------------------------


def pk_system(namespace_id: str) -> str:
    """Partition of the system config, the version and the registries of a namespace."""
    return f"{namespace_id}/{_SYSTEM}"


def parse_system_pk(pk: str) -> str | None:
    """The namespace id of ``pk_system``."""
    namespace_id, _, rest = pk.partition("/")
    return namespace_id if rest == _SYSTEM else None


def pk_registry() -> str:
    """Partition of the namespace registry."""
    return pk_system(RESERVED_NAMESPACE)


def pk_resource(namespace_id: str, resource: str) -> str:
    """Partition of the config of a resource."""
    return f"{namespace_id}/{_RESOURCE}{resource}"


def parse_resource_pk(pk: str) -> Scoped | None:
    """The namespace id and resource of ``pk_resource``."""
    return _scoped(pk, _RESOURCE)


def pk_entity(namespace_id: str, entity_id: str) -> str:
    """Partition of an entity: its metadata, config and usage."""
    return f"{namespace_id}/{_ENTITY}{entity_id}"


def parse_entity_pk(pk: str) -> Scoped | None:
    """The namespace id and entity id of ``pk_entity``."""
    return _scoped(pk, _ENTITY)


def pk_bucket(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> str:
    """Partition of one shard of a bucket, which it has to itself."""
    return f"{namespace_id}/{_BUCKET}{entity_id}#{resource}#{shard_id}"


def parse_bucket_pk(pk: str) -> BucketKey | None:
    """The parts of ``pk_bucket``."""
    scoped = _scoped(pk, _BUCKET)
    parts = scoped.name.split("#") if scoped else []
    if scoped is None or len(parts) != 3 or not _is_shard(parts[2]):
        return None
    return BucketKey(scoped.namespace_id, parts[0], parts[1], int(parts[2]))


def pk_audit(namespace_id: str, entity_id: str) -> str:
    """Partition of the audit events of an entity or of a config level.

    Those of a namespace stand in the reserved one, for every namespace to read: they outlive a purge.
    """
    holder = RESERVED_NAMESPACE if is_namespace_audit_id(entity_id) else namespace_id
    return f"{holder}/{_AUDIT}{entity_id}"


def parse_audit_pk(pk: str) -> Scoped | None:
    """The namespace id and entity id of ``pk_audit``."""
    return _scoped(pk, _AUDIT)


def parse_namespace_id(pk: str) -> str | None:
    """The namespace id any partition key starts with."""
    namespace_id, slash, _ = pk.partition("/")
    return namespace_id if slash else None


# --- sort keys --------------------------------------------------------------------------------------------------------


def sk_state() -> str:
    """Sort key of a bucket."""
    return "#STATE"


def sk_meta() -> str:
    """Sort key of an entity's metadata."""
    return "#META"


def sk_version() -> str:
    """Sort key of the version record."""
    return "#VERSION"


def sk_resources() -> str:
    """Sort key of the registry of resources that have defaults."""
    return "#RESOURCES"


def sk_entity_config_resources() -> str:
    """Sort key of the registry of resources for which entities have limits of their own."""
    return "#ENTITY_CONFIG_RESOURCES"


def sk_config(resource: str | None = None) -> str:
    """Sort key of a config: of the system or a resource without a resource, of an entity with one."""
    return "#CONFIG" if resource is None else f"{SK_CONFIG_PREFIX}{resource}"


def parse_entity_config_sk(sk: str) -> str | None:
    """The resource of an entity's ``sk_config``."""
    return _after(sk, SK_CONFIG_PREFIX)


def sk_usage(resource: str, window_key: str) -> str:
    """Sort key of a usage snapshot."""
    return f"{SK_USAGE_PREFIX}{resource}#{window_key}"


def parse_usage_sk(sk: str) -> UsageSortKey | None:
    """The resource and window key of ``sk_usage``."""
    resource, _, window_key = (_after(sk, SK_USAGE_PREFIX) or "").partition("#")
    return UsageSortKey(resource, window_key) if resource and window_key else None


def sk_audit(event_id: str) -> str:
    """Sort key of an audit event."""
    return f"{SK_AUDIT_PREFIX}{event_id}"


def parse_audit_sk(sk: str) -> str | None:
    """The event id of ``sk_audit``."""
    return _after(sk, SK_AUDIT_PREFIX)


def sk_namespace(name: str) -> str:
    """Sort key of the forward record of a namespace, found by name."""
    return f"{SK_NAMESPACE_PREFIX}{name}"


def parse_namespace_sk(sk: str) -> str | None:
    """The name of ``sk_namespace``."""
    return _after(sk, SK_NAMESPACE_PREFIX)


def sk_nsid(namespace_id: str) -> str:
    """Sort key of the reverse record of a namespace, found by id."""
    return f"{SK_NSID_PREFIX}{namespace_id}"


def parse_nsid_sk(sk: str) -> str | None:
    """The namespace id of ``sk_nsid``."""
    return _after(sk, SK_NSID_PREFIX)


# --- GSI1: children of a parent ---------------------------------------------------------------------------------------


def gsi1_pk_parent(namespace_id: str, parent_id: str) -> str:
    """Index partition of the children of an entity."""
    return f"{namespace_id}/{_PARENT}{parent_id}"


def parse_gsi1_pk_parent(pk: str) -> Scoped | None:
    """The namespace id and parent id of ``gsi1_pk_parent``."""
    return _scoped(pk, _PARENT)


def gsi1_sk_child(entity_id: str) -> str:
    """Index sort key of a child."""
    return f"{_CHILD}{entity_id}"


def parse_gsi1_sk_child(sk: str) -> str | None:
    """The entity id of ``gsi1_sk_child``."""
    return _after(sk, _CHILD)


# --- GSI2: buckets and usage of a resource ----------------------------------------------------------------------------


def gsi2_pk_resource(namespace_id: str, resource: str) -> str:
    """Index partition of the buckets and the usage of a resource."""
    return f"{namespace_id}/{_RESOURCE}{resource}"


def parse_gsi2_pk_resource(pk: str) -> Scoped | None:
    """The namespace id and resource of ``gsi2_pk_resource``."""
    return _scoped(pk, _RESOURCE)


def gsi2_sk_bucket(entity_id: str, shard_id: int) -> str:
    """Index sort key of a bucket within its resource."""
    return f"{_BUCKET}{entity_id}#{shard_id}"


def parse_gsi2_sk_bucket(sk: str) -> Sharded | None:
    """The entity id and shard of ``gsi2_sk_bucket``."""
    return _sharded(sk)


def gsi2_sk_usage(window_key: str, entity_id: str) -> str:
    """Index sort key of a usage snapshot within its resource, in the order of time."""
    return f"{_USAGE}{window_key}#{entity_id}"


def parse_gsi2_sk_usage(sk: str) -> UsageSortKey | None:
    """The entity id and window key of ``gsi2_sk_usage``."""
    window_key, _, entity_id = (_after(sk, _USAGE) or "").partition("#")
    return UsageSortKey(entity_id, window_key) if entity_id and window_key else None


# --- GSI3: entities with limits of their own, and buckets of an entity ------------------------------------------------


def gsi3_pk_entity_config(namespace_id: str, resource: str) -> str:
    """Index partition of the entities that have limits of their own for a resource."""
    return f"{namespace_id}/{_ENTITY_CONFIG}{resource}"


def parse_gsi3_pk_entity_config(pk: str) -> Scoped | None:
    """The namespace id and resource of ``gsi3_pk_entity_config``."""
    return _scoped(pk, _ENTITY_CONFIG)


def gsi3_sk_entity(entity_id: str) -> str:
    """Index sort key of an entity that has limits of its own: its id."""
    return entity_id


def gsi3_pk_entity(namespace_id: str, entity_id: str) -> str:
    """Index partition of the buckets of an entity."""
    return f"{namespace_id}/{_ENTITY}{entity_id}"


def parse_gsi3_pk_entity(pk: str) -> Scoped | None:
    """The namespace id and entity id of ``gsi3_pk_entity``."""
    return _scoped(pk, _ENTITY)


def gsi3_sk_bucket(resource: str, shard_id: int) -> str:
    """Index sort key of a bucket within its entity."""
    return f"{_BUCKET}{resource}#{shard_id}"


def parse_gsi3_sk_bucket(sk: str) -> Sharded | None:
    """The resource and shard of ``gsi3_sk_bucket``."""
    return _sharded(sk)


def gsi3_sk_bucket_prefix(resource: str) -> str:
    """What the index sort keys of all shards of one bucket start with."""
    return f"{_BUCKET}{resource}#"


# --- GSI4: everything of a namespace ----------------------------------------------------------------------------------


def gsi4_pk(namespace_id: str) -> str:
    """Index partition of all items of a namespace: its bare id."""
    return namespace_id


def gsi4_sk(pk: str) -> str:
    """Index sort key of any item: its partition key."""
    return pk


def gsi4_attributes(pk: str) -> dict[str, str]:
    """The two attributes that every item carries so that its namespace can be purged."""
    return {"GSI4PK": pk.partition("/")[0], "GSI4SK": pk}


# --- taking keys apart ------------------------------------------------------------------------------------------------


def _after(text: str, prefix: str) -> str | None:
    """What follows the prefix, None without it or when nothing follows."""
    return text[len(prefix) :] or None if text.startswith(prefix) else None


def _scoped(pk: str, prefix: str) -> Scoped | None:
    namespace_id, _, rest = pk.partition("/")
    name = _after(rest, prefix)
    return Scoped(namespace_id, name) if namespace_id and name else None


def _sharded(sk: str) -> Sharded | None:
    name, _, shard = (_after(sk, _BUCKET) or "").rpartition("#")
    return Sharded(name, int(shard)) if name and _is_shard(shard) else None


def _is_shard(text: str) -> bool:
    """Whether a text is the number of a shard, written the one way that ``pk_bucket`` writes it."""
    # A key may hold 2,000 digits; the length is checked before they become a number.
    canonical = text.isascii() and text.isdigit() and len(text) <= _SHARD_DIGITS and str(int(text)) == text
    return canonical and int(text) < MOST_SHARDS
