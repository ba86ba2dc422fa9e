"""An index entry counts only if the key of its own item shows that it belongs there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.audit import AuditAction, AuditEvent, make_event_id, resource_audit_id
from zae_limiter.core.config import ConfigRecord
from zae_limiter.core.entity import Entity
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import audit_item, config_item, entity_item, keys, usage_item
from zae_limiter.schema.index_entries import is_genuine, is_in_namespace
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import INDEXES
from zae_limiter.schema.usage_item import AddUsage

resources = some.resources | st.just("_default_")
windows = st.builds(window_at, st.sampled_from(WINDOW_TYPES), some.times_ms)
names = st.tuples(some.namespace_ids, some.entity_ids, some.resources, some.shard_ids)


def bucket(namespace_id: str, entity_id: str, resource: str, shard: int) -> dict[str, Any]:
    """Return the keys of a bucket item."""
    pk = keys.pk_bucket(namespace_id, entity_id, resource, shard)
    return {
        "PK": pk,
        "SK": keys.sk_state(),
        "GSI2PK": keys.gsi2_pk_resource(namespace_id, resource),
        "GSI2SK": keys.gsi2_sk_bucket(entity_id, shard),
        "GSI3PK": keys.gsi3_pk_entity(namespace_id, entity_id),
        "GSI3SK": keys.gsi3_sk_bucket(resource, shard),
        **keys.gsi4_attributes(pk),
    }


def snapshot(namespace_id: str, entity_id: str, resource: str, shard: int, window: Any) -> dict[str, Any]:
    usage = AddUsage(BucketKey(namespace_id, entity_id, resource, shard), window, {}, 1, "1")
    update = usage_item.add(usage, None, None)
    return {"PK": update.key.pk, "SK": update.key.sk, **update.set}


def limits_of(namespace_id: str, entity_id: str, resource: str) -> dict[str, Any]:
    return config_item.to_item(config_item.entity_place(namespace_id, entity_id, resource), ConfigRecord((), 1))


def child_of(namespace_id: str, entity_id: str, parent_id: str) -> dict[str, Any]:
    return entity_item.to_item(namespace_id, Entity(entity_id, None, parent_id, False, {}, None), 1)


def event_of(namespace_id: str, audit_id: str, number: int) -> dict[str, Any]:
    event = AuditEvent(make_event_id(1_704_117_600_000, number), "", AuditAction.LIMITS_SET, audit_id)
    return audit_item.to_item(namespace_id, event, None)


audit_ids = some.entity_ids | st.just("$SYSTEM") | st.builds(resource_audit_id, some.resources)
items = st.one_of(
    st.builds(lambda of: bucket(*of), names),
    st.builds(lambda of, window: snapshot(*of, window), names, windows),
    st.builds(limits_of, some.namespace_ids, some.entity_ids, resources),
    st.builds(child_of, some.namespace_ids, some.entity_ids, some.entity_ids),
    st.builds(event_of, some.namespace_ids, audit_ids, st.integers(0, 2**64 - 1)),
)


def indexes_of(item: dict[str, Any]) -> list[str]:
    return [index for index in INDEXES if f"{index}PK" in item]


@given(items)
def test_index_entries_of_every_written_item_are_genuine(item: dict[str, Any]) -> None:
    """This holds for all items that this package writes, in each of their indexes."""
    assert "GSI4" in indexes_of(item)
    assert all(is_genuine(index, item) for index in indexes_of(item))


@given(items, items, st.data())
def test_item_with_the_index_key_of_another_item_is_not_genuine(
    victim: dict[str, Any], hostile: dict[str, Any], data: st.DataObject
) -> None:
    """Its own key decides, and a tenant cannot choose a key of another namespace."""
    index = data.draw(st.sampled_from(indexes_of(victim)))
    claimed = {f"{index}{part}": victim[f"{index}{part}"] for part in ("PK", "SK")}
    forged = {**hostile, **claimed}
    namespaces = {item["PK"].partition("/")[0] for item in (victim, hostile)}
    same = all(forged[name] == hostile.get(name) for name in claimed)

    # Items of one partition have the same key in the index of a namespace, unless a list has them.
    neighbours = index == "GSI4" and victim["PK"] == hostile["PK"]
    assert is_genuine(index, forged) <= (same or neighbours or (len(namespaces) == 1 and index == "GSI1"))


@pytest.mark.parametrize(
    ("index", "entry"),
    [
        ("GSI1", {**child_of("ns", "a", "p"), "SK": "#CONFIG#gpt-4"}),
        ("GSI1", {**child_of("ns", "a", "p"), "GSI1SK": "CHILD#b"}),
        ("GSI1", {**child_of("ns", "a", "p"), "GSI1PK": "victim/PARENT#p"}),
        ("GSI1", {**child_of("ns", "a", "p"), "GSI1PK": "ns"}),
        ("GSI1", {**child_of("ns", "a", "p"), "PK": "ns/BUCKET#a#gpt-4#0"}),
        ("GSI2", {**bucket("ns", "a", "gpt-4", 0), "SK": "#OTHER"}),
        ("GSI2", {**bucket("ns", "a", "gpt-4", 0), "GSI2SK": "BUCKET#b#0"}),
        ("GSI2", {**bucket("ns", "a", "gpt-4", 0), "PK": "ns/BUCKET#a#gpt-4#10000000"}),
        ("GSI2", {**bucket("ns", "a", "gpt-4", 0), "PK": "ns/ENTITY#a"}),
        ("GSI3", {**bucket("ns", "a", "gpt-4", 0), "SK": "#CONFIG#gpt-4"}),
        ("GSI3", {**limits_of("ns", "a", "gpt-4"), "GSI3SK": "b"}),
        ("GSI3", {**limits_of("ns", "a", "gpt-4"), "SK": "#META"}),
        ("GSI4", {"PK": "other/SYSTEM#", "SK": "#CONFIG", "GSI4PK": "ns", "GSI4SK": "ns/SYSTEM#"}),
        ("GSI4", {**child_of("ns", "a", "p"), "GSI4SK": "ENTITY#b"}),
        ("GSI4", {**child_of("ns", "a", "p"), "GSI4PK": "victim"}),
        ("GSI4", {**limits_of("ns", "a", "gpt-4"), "GSI4SK": "ENTITY#a"}),
        ("GSI4", {**event_of("ns", "a", 1), "GSI4SK": "AUDIT#1704117600000-0000000000000002"}),
        ("GSI4", {**event_of("ns", "a", 1), "PK": "ns/ENTITY#a"}),
        ("GSI4", {**bucket("ns", "a", "gpt-4", 0), "GSI4SK": "USAGE#2024-01#a#gpt-4"}),
        ("GSI4", {"PK": "none", "SK": "#CONFIG", "GSI4PK": "ns", "GSI4SK": "ns/SYSTEM#"}),
    ],
)
def test_forged_index_entries_are_not_genuine(index: str, entry: dict[str, Any]) -> None:
    """The same holds within a namespace for another entity, resource or shard."""
    assert not is_genuine(index, entry)


@given(items)
def test_index_entries_of_the_older_layout_are_genuine(item: dict[str, Any]) -> None:
    """Their sort key in the index of the namespace was their partition key."""
    assert is_genuine("GSI4", {**item, "GSI4SK": item["PK"]})


@given(items, st.text())
def test_item_of_a_namespace_belongs_to_it_whatever_its_sort_key(item: dict[str, Any], sort: str) -> None:
    """So a purge also removes items that a tenant has forged in its own namespace."""
    assert is_in_namespace("GSI4", {**item, "GSI4SK": sort})
    assert not is_in_namespace("GSI4", {**item, "GSI4PK": "victim"})
