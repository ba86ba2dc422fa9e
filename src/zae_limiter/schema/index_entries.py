"""Check that an index entry belongs to the index partition it was found in.

IAM restricts the partition key of an item. It does not restrict the attributes that put the item
into an index. So a tenant can write an item to its own namespace that appears in an index partition
of another tenant. A reader of an index therefore checks the key of the item itself, which every
entry carries and IAM protects.
"""

from zae_limiter.core.outcome import Item
from zae_limiter.schema import keys, namespace_lists
from zae_limiter.schema.operations import Key


def is_genuine(index: str, entry: Item) -> bool:
    """Return whether an index entry has the index key that its own key implies.

    An entry of another namespace never has it. Nor has one that claims another entity, resource,
    window or shard.
    """
    pk, sk = entry["PK"], entry["SK"]
    partition, sort = entry[f"{index}PK"], entry[f"{index}SK"]
    match index:
        case "GSI1":
            return _is_child(Key(pk, sk), partition, sort)
        case "GSI2":
            return (partition, sort) == _in_resource(Key(pk, sk))
        case "GSI3":
            return (partition, sort) == _in_entity(Key(pk, sk))
        case _:
            # The tombstone of an entity, and items of an older layout, have their partition key as sort key.
            sorts = (namespace_lists.sort_key(Key(pk, sk)), keys.gsi4_sk(pk))
            return is_in_namespace(index, entry) and sort in sorts


def is_in_namespace(index: str, entry: Item) -> bool:
    """Return whether an entry of GSI4 is an item of the namespace it was found in, whatever its sort key."""
    return bool(keys.parse_namespace_id(entry["PK"]) == entry[f"{index}PK"])


def _is_child(key: Key, partition: str, sort: str) -> bool:
    """Return whether an entry is an entity in this namespace. Its key does not contain the parent."""
    entity, parent = keys.parse_entity_pk(key.pk), keys.parse_gsi1_pk_parent(partition)
    if entity is None or parent is None or key.sk != keys.sk_meta():
        return False
    return entity.namespace_id == parent.namespace_id and sort == keys.gsi1_sk_child(entity.name)


def _in_resource(key: Key) -> tuple[str, str] | None:
    """Return the GSI2 key of a bucket or a usage snapshot, None for another item."""
    bucket = _bucket(key)
    if bucket is not None:
        partition = keys.gsi2_pk_resource(bucket.namespace_id, bucket.resource)
        return partition, keys.gsi2_sk_bucket(bucket.entity_id, bucket.shard_id)
    entity, usage = keys.parse_entity_pk(key.pk), keys.parse_usage_sk(key.sk)
    if entity is None or usage is None:
        return None
    return keys.gsi2_pk_resource(entity.namespace_id, usage.name), keys.gsi2_sk_usage(usage.window_key, entity.name)


def _in_entity(key: Key) -> tuple[str, str] | None:
    """Return the GSI3 key of a bucket or of an entity's limits, None for another item."""
    bucket = _bucket(key)
    if bucket is not None:
        partition = keys.gsi3_pk_entity(bucket.namespace_id, bucket.entity_id)
        return partition, keys.gsi3_sk_bucket(bucket.resource, bucket.shard_id)
    entity, resource = keys.parse_entity_pk(key.pk), keys.parse_entity_config_sk(key.sk)
    if entity is None or resource is None:
        return None
    return keys.gsi3_pk_entity_config(entity.namespace_id, resource), keys.gsi3_sk_entity(entity.name)


def _bucket(key: Key) -> keys.BucketKey | None:
    return keys.parse_bucket_pk(key.pk) if key.sk == keys.sk_state() else None
