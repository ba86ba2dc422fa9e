"""Entities round-trip through items, and leave a tombstone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.config import EntityFacts
from zae_limiter.core.entity import Entity
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.schema import entity_item
from zae_limiter.schema.operations import AttributeAbsent, Equals, ItemAbsent

CHILD = Entity("user-1", "User One", "org-1", True, {"plan": "pro"}, "2024-01-01T00:00:00.000Z")
SEEN = EntityFacts("org-1", cascade=True, version=4)
GONE = EntityFacts(None, cascade=False, version=5, deleted=True)

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)
entities = st.builds(
    Entity,
    some.entity_ids,
    st.none() | st.text(max_size=20),
    st.none() | some.entity_ids,
    st.booleans(),
    st.dictionaries(st.text(min_size=1), values),
    st.none() | st.just("2024-01-01T00:00:00.000Z"),
)


@given(entities, st.integers(1, 100))
def test_entity_round_trips_through_an_item(entity: Entity, version: int) -> None:
    """So do the facts that its buckets need."""
    item = entity_item.to_item("ns", entity, version)

    assert entity == entity_item.from_item(item)
    assert EntityFacts(entity.parent_id, entity.cascade, version) == entity_item.facts_from_item(item)


def test_entity_item_is_that_of_the_specification() -> None:
    """A child is indexed under its parent."""
    expected = {
        "PK": "ns/ENTITY#user-1",
        "SK": "#META",
        "entity_id": "user-1",
        "name": "User One",
        "parent_id": "org-1",
        "cascade": True,
        "metadata": {"plan": "pro"},
        "created_at": "2024-01-01T00:00:00.000Z",
        "config_version": 1,
        "GSI1PK": "ns/PARENT#org-1",
        "GSI1SK": "CHILD#user-1",
        "GSI4PK": "ns",
        "GSI4SK": "ENTITY#user-1",
    }

    assert expected == entity_item.to_item("ns", CHILD, 1)


def test_entity_item_has_floats_and_nested_metadata_as_text() -> None:
    """An older version reads the other entries, which stay in the map."""
    entity = Entity("user-1", metadata={"plan": "pro", "share": 0.1, "tags": ["a", {"b": 1e300}]})
    item = entity_item.to_item("ns", entity, 1)

    assert ({"plan": "pro"}, '{"share":0.1,"tags":["a",{"b":1e+300}]}') == (item["metadata"], item["metadata_json"])
    assert "metadata_json" not in entity_item.to_item("ns", CHILD, 1)


def test_metadata_that_was_read_keeps_the_types_of_its_numbers() -> None:
    """A whole float stays a float, and an integer an integer, although they compare equal."""
    metadata = {"a": 1.0, "b": [1, 1.0, -0.0, True]}
    found = entity_item.from_item(entity_item.to_item("ns", Entity("user-1", metadata=metadata), 1))

    assert found is not None
    assert repr(metadata) == repr(found.metadata)


def test_entity_item_without_a_parent_is_not_in_the_first_index() -> None:
    """The index is sparse."""
    assert "GSI1PK" not in entity_item.to_item("ns", Entity("org-1"), 1)


def test_create_of_a_new_entity_requires_that_the_item_is_absent() -> None:
    """Its version starts at one."""
    put = entity_item.create("ns", CHILD, None)

    assert (1, (ItemAbsent(),)) == (put.item["config_version"], put.when)


def test_recreated_entity_continues_the_version_of_its_tombstone() -> None:
    """Clients that knew the earlier entity see a higher stamp."""
    put = entity_item.create("ns", CHILD, GONE)

    assert 6 == put.item["config_version"]
    assert (Equals("config_version", 5), Equals("deleted", True)) == put.when


def test_create_is_refused_by_a_live_entity() -> None:
    """This holds even if the client has seen it."""
    put = entity_item.create("ns", CHILD, SEEN)
    item = entity_item.to_item("ns", CHILD, SEEN.version)

    assert not all(condition.holds(item) for condition in put.when)


def test_entity_tombstone_has_no_parent_and_a_higher_version() -> None:
    """It is not read as an entity, and no list contains it."""
    put = entity_item.tombstone("ns", "user-1", SEEN)

    assert entity_item.from_item(put.item) is None
    assert GONE == entity_item.facts_from_item(put.item)
    assert (Equals("config_version", 4), AttributeAbsent("children")) == put.when
    assert ("ns/ENTITY#user-1", False) == (put.item["GSI4SK"], "GSI1PK" in put.item)


def test_parent_counts_children_only_while_it_is_live() -> None:
    """An absent or deleted parent accepts no child, and no parent drops below zero."""
    dead = entity_item.tombstone("ns", "org-1", SEEN).item
    live = entity_item.to_item("ns", Entity("org-1"), 1)
    adopt, part_with = entity_item.adopt("ns", "org-1"), entity_item.part_with("ns", "org-1")

    assert [False, False, True] == [all(one.holds(item) for one in adopt.when) for item in ({}, dead, live)]
    assert [False, True] == [all(one.holds(item) for one in part_with.when) for item in (live, live | {"children": 1})]
    assert [0, 2] == [entity_item.children_of(item) for item in (live, live | {"children": 2})]


def test_tombstone_of_a_parent_requires_a_child_count_of_zero() -> None:
    """The count must be unchanged since it was seen."""
    once = entity_item.facts_from_item(entity_item.to_item("ns", Entity("org-1"), 4) | {"children": 0})

    assert (Equals("config_version", 4), Equals("children", 0)) == entity_item.tombstone("ns", "org-1", once).when


def test_unknown_attributes_of_an_entity_item_are_ignored() -> None:
    """A newer version may add some."""
    assert CHILD == entity_item.from_item(entity_item.to_item("ns", CHILD, 1) | {"new": 1})


@pytest.mark.parametrize(
    "damage",
    [{"entity_id": 5}, {"name": 5}, {"parent_id": 5}, {"cascade": "yes"}, {"metadata": "x"}, {"created_at": 5}]
    + [{"metadata_json": text} for text in (5, "", "{", "[1]", "5", '{"a": NaN}', "[" * 100_000)],
)
def test_damaged_entity_item_raises_with_key_and_attribute(damage: dict[str, Any]) -> None:
    """Every attribute is checked."""
    with pytest.raises(CorruptItemError, match=f"ns/ENTITY#user-1 #META.*{next(iter(damage))}"):
        entity_item.from_item(entity_item.to_item("ns", CHILD, 1) | damage)


def test_entity_facts_without_a_version_raise_corrupt_item() -> None:
    """Without it no change could be detected."""
    with pytest.raises(CorruptItemError, match="config_version"):
        entity_item.facts_from_item({"PK": "ns/ENTITY#user-1", "SK": "#META"})
