"""Every valid name can be part of every key: no key has two readings, and none is too long for DynamoDB."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.audit import make_event_id, namespace_audit_id, resource_audit_id
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import keys, old_bucket_item
from zae_limiter.schema.operations import Key

LONGEST_PK, LONGEST_SK = 2048, 1024
"""The limits of DynamoDB, in bytes."""

resources = some.resources | st.just("_default_")
window_keys = st.builds(lambda kind, at_ms: window_at(kind, at_ms).key, st.sampled_from(WINDOW_TYPES), some.times_ms)
event_ids = st.builds(make_event_id, some.times_ms, st.integers(0, 2**64 - 1))
audit_ids = some.entity_ids | st.just("$SYSTEM") | some.resources.map(resource_audit_id)
shards = some.shard_ids

SCOPED = {
    keys.pk_resource: ("RESOURCE", some.resources),
    keys.pk_entity: ("ENTITY", some.entity_ids),
    keys.pk_bucket: ("BUCKET", some.entity_ids, some.resources, shards),
    keys.pk_audit: ("AUDIT", audit_ids),
    keys.gsi1_pk_parent: ("PARENT", some.entity_ids),
    keys.gsi2_pk_resource: ("RESOURCE", some.resources),
    keys.gsi3_pk_entity: ("ENTITY", some.entity_ids),
    keys.gsi3_pk_entity_config: ("ENTITY_CONFIG", resources),
}
"""The builders of partition keys, with the word after the namespace id, and the names that follow it."""

SORTED = {
    keys.sk_config: ("#CONFIG", resources),
    keys.sk_usage: ("#USAGE", some.resources, window_keys),
    keys.sk_warned: ("#WARNED", some.resources),
    keys.sk_audit: ("#AUDIT", event_ids),
    keys.sk_credit: ("#CREDIT", some.entity_ids),
    keys.sk_namespace: ("#NAMESPACE", some.namespaces),
    keys.sk_nsid: ("#NSID", some.namespace_ids),
    keys.gsi1_sk_child: ("CHILD", some.entity_ids),
    keys.gsi2_sk_bucket: ("BUCKET", some.entity_ids, shards),
    keys.gsi2_sk_usage: ("USAGE", window_keys, some.entity_ids),
    keys.gsi3_sk_bucket: ("BUCKET", some.resources, shards),
    keys.gsi4_sk_entity: ("ENTITY", some.entity_ids),
    keys.gsi4_sk_audit: ("AUDIT", event_ids),
    keys.gsi4_sk_usage: ("USAGE", window_keys, some.entity_ids, some.resources),
}
"""The builders of sort keys, with their first word, and the names that follow it."""

NAMELESS = {
    *(keys.sk_state, keys.sk_meta, keys.sk_version, keys.sk_resources, keys.sk_entity_config_resources),
    *(keys.pk_system, keys.pk_registry, keys.gsi4_pk, keys.gsi4_sk, keys.gsi4_attributes, keys.gsi3_sk_entity),
    keys.gsi3_sk_bucket_prefix,
}
"""Builders without a name, with one name alone, or of a prefix."""

PARSERS: dict[str, Callable[[Key], Any]] = {
    "bucket": lambda key: keys.parse_bucket_pk(key.pk) if key.sk == keys.sk_state() else None,
    "meta": lambda key: keys.parse_entity_pk(key.pk) if key.sk == keys.sk_meta() else None,
    "limits": lambda key: _both(keys.parse_entity_pk(key.pk), keys.parse_entity_config_sk(key.sk)),
    "usage": lambda key: _both(keys.parse_entity_pk(key.pk), keys.parse_usage_sk(key.sk)),
    "audit": lambda key: _both(keys.parse_audit_pk(key.pk), keys.parse_audit_sk(key.sk)),
    "old bucket": old_bucket_item.owner_of,
}


def _both(first: object, second: object) -> tuple[object, object] | None:
    return None if first is None or second is None else (first, second)


def builders() -> set[Callable[..., Any]]:
    """Return every function that builds a key."""
    found = inspect.getmembers(keys, inspect.isfunction)
    return {function for name, function in found if name.startswith(("pk_", "sk_", "gsi"))}


def test_every_key_builder_is_checked_here() -> None:
    """A new builder is added to one of the tables."""
    assert builders() == {*SCOPED, *SORTED, *NAMELESS}


@pytest.mark.parametrize("build", SCOPED, ids=lambda build: build.__name__)
@given(data=st.data(), namespace_id=some.namespace_ids)
def test_partition_key_splits_into_namespace_and_names(
    build: Callable[..., str], data: st.DataObject, namespace_id: str
) -> None:
    """The namespace id ends at the first slash, and each name at the next number sign."""
    word, *strategies = SCOPED[build]
    names = [data.draw(strategy) for strategy in strategies]
    before, _, after = build(namespace_id, *names).partition("/")

    assert (namespace_id, [word, *map(str, names)]) == (before, after.split("#"))


@pytest.mark.parametrize("build", SORTED, ids=lambda build: build.__name__)
@given(data=st.data())
def test_sort_key_splits_into_its_names(build: Callable[..., str], data: st.DataObject) -> None:
    """Each name ends at the next number sign."""
    word, *strategies = SORTED[build]
    names = [data.draw(strategy) for strategy in strategies]

    assert [word, *map(str, names)] == build(*names).rsplit("#", len(names))


@given(some.namespace_ids, some.entity_ids, some.resources, shards, window_keys, event_ids)
def test_primary_key_of_an_item_has_one_reading(
    namespace_id: str, entity_id: str, resource: str, shard: int, window_key: str, event_id: str
) -> None:
    """Each parser reads the key of its own kind, and rejects those of all others."""
    entity = keys.Scoped(namespace_id, entity_id)
    of_entity = keys.pk_entity(namespace_id, entity_id)
    items = {
        "bucket": Key(keys.pk_bucket(namespace_id, entity_id, resource, shard), keys.sk_state()),
        "meta": Key(of_entity, keys.sk_meta()),
        "limits": Key(of_entity, keys.sk_config(resource)),
        "usage": Key(of_entity, keys.sk_usage(resource, window_key)),
        "audit": Key(keys.pk_audit(namespace_id, entity_id), keys.sk_audit(event_id)),
        "old bucket": Key(of_entity, f"{old_bucket_item.SK_PREFIX}{resource}"),
        "other": Key(keys.pk_resource(namespace_id, resource), keys.sk_config()),
    }
    expected = {
        "bucket": {"bucket": (namespace_id, entity_id, resource, shard)},
        "meta": {"meta": entity},
        "limits": {"limits": (entity, resource)},
        "usage": {"usage": (entity, (resource, window_key))},
        "audit": {"audit": (entity, event_id)},
        "old bucket": {"old bucket": old_bucket_item.Owner(namespace_id, entity_id, resource)},
        "other": {},
    }

    assert expected == {
        kind: {name: found for name, parse in PARSERS.items() if (found := parse(key)) is not None}
        for kind, key in items.items()
    }


@given(some.namespace_ids, some.namespace_ids, some.entity_ids, some.resources)
def test_no_name_makes_a_key_of_another_namespace(own: str, other: str, entity_id: str, resource: str) -> None:
    """A name may contain a slash, and the id of another namespace."""
    hostile = f"{entity_id[:60]}/{other}/{entity_id[:60]}"
    built = [
        keys.pk_bucket(own, hostile, resource, 0),
        keys.pk_entity(own, hostile),
        keys.pk_resource(own, resource),
        keys.pk_audit(own, hostile),
        keys.pk_audit(own, resource_audit_id(resource)),
        keys.gsi1_pk_parent(own, hostile),
        keys.gsi3_pk_entity_config(own, resource),
    ]

    assert {own} == {keys.parse_namespace_id(pk) for pk in built}
    assert {own} == {keys.gsi4_attributes(pk)["GSI4PK"] for pk in built}


def test_a_number_sign_in_a_name_would_give_a_key_two_readings() -> None:
    """This is why no name may have one."""
    one, other = keys.pk_bucket("ns", "a#b", "c", 0), keys.pk_bucket("ns", "a", "b#c", 0)

    assert one == other
    assert keys.parse_bucket_pk(one) is None


def test_keys_of_the_longest_names_fit_into_dynamodb() -> None:
    """A partition key has at most 2048 bytes, and a sort key 1024."""
    namespace_id, entity_id, resource = "n" * 11, "e" * 256, "r" * 128
    window_key = max((window_at(kind, 0).key for kind in WINDOW_TYPES), key=len)
    partitions = [
        keys.pk_bucket(namespace_id, entity_id, resource, 63),
        keys.pk_audit(namespace_id, namespace_audit_id("n" * 64)),
        keys.gsi1_pk_parent(namespace_id, entity_id),
        keys.gsi3_pk_entity_config(namespace_id, resource),
    ]
    sorts = [
        keys.gsi4_sk(partitions[0]),
        keys.sk_usage(resource, window_key),
        keys.gsi2_sk_usage(window_key, entity_id),
        keys.gsi2_sk_bucket(entity_id, 63),
    ]

    assert (407, 407) == (max(map(len, partitions)), max(map(len, sorts)))
    assert LONGEST_PK >= max(map(len, partitions))
    assert LONGEST_SK >= max(map(len, sorts))
