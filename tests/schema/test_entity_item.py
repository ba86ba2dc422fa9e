"""Entities survive being items, and leave a tombstone."""

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

entities = st.builds(
    Entity,
    some.entity_ids,
    st.none() | st.text(max_size=20),
    st.none() | some.entity_ids,
    st.booleans(),
    st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | st.integers() | st.text()),
    st.none() | st.just("2024-01-01T00:00:00.000Z"),
)


@given(entities, st.integers(1, 100))
def test_an_entity_survives_being_an_item(entity: Entity, version: int) -> None:
    """So do the facts its buckets need."""
    item = entity_item.to_item("ns", entity, version)

    assert entity == entity_item.from_item(item)
    assert EntityFacts(entity.parent_id, entity.cascade, version) == entity_item.facts_from_item(item)


def test_an_entity_item_is_flat() -> None:
    """A child is listed under its parent."""
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
        "GSI4SK": "ns/ENTITY#user-1",
    }

    assert expected == entity_item.to_item("ns", CHILD, 1)


def test_an_entity_without_a_parent_is_under_none() -> None:
    """The first index is sparse."""
    assert "GSI1PK" not in entity_item.to_item("ns", Entity("org-1"), 1)


def test_a_new_entity_is_written_only_where_there_is_none() -> None:
    """Its version starts at one."""
    put = entity_item.create("ns", CHILD, None)

    assert (1, (ItemAbsent(),)) == (put.item["config_version"], put.when)


def test_an_entity_created_anew_goes_on_from_its_tombstone() -> None:
    """Clients that knew the earlier one see a higher stamp."""
    put = entity_item.create("ns", CHILD, GONE)

    assert 6 == put.item["config_version"]
    assert (Equals("config_version", 5), Equals("deleted", True)) == put.when


def test_a_live_entity_is_not_created_over() -> None:
    """Even if it is what was seen."""
    put = entity_item.create("ns", CHILD, SEEN)
    item = entity_item.to_item("ns", CHILD, SEEN.version)

    assert not all(condition.holds(item) for condition in put.when)


def test_a_deleted_entity_leaves_a_tombstone() -> None:
    """It is no entity, has no parent, and keeps its version rising."""
    put = entity_item.tombstone("ns", "user-1", SEEN)

    assert entity_item.from_item(put.item) is None
    assert GONE == entity_item.facts_from_item(put.item)
    assert (Equals("config_version", 4), AttributeAbsent("children")) == put.when
    assert "GSI1PK" not in put.item


def test_a_parent_counts_its_children() -> None:
    """Neither an absent parent nor a tombstone takes a child on; a parent lets go of none it does not have."""
    dead = entity_item.tombstone("ns", "org-1", SEEN).item
    live = entity_item.to_item("ns", Entity("org-1"), 1)
    adopt, part = entity_item.adopt("ns", "org-1"), entity_item.part_with("ns", "org-1")

    assert [False, False, True] == [all(one.holds(item) for one in adopt.when) for item in ({}, dead, live)]
    assert [False, True] == [all(one.holds(item) for one in part.when) for item in (live, live | {"children": 1})]
    assert [0, 2] == [entity_item.children_of(item) for item in (live, live | {"children": 2})]


def test_a_parent_goes_once_its_children_are_gone() -> None:
    """What was seen of the counter must still be so."""
    once = entity_item.facts_from_item(entity_item.to_item("ns", Entity("org-1"), 4) | {"children": 0})

    assert (Equals("config_version", 4), Equals("children", 0)) == entity_item.tombstone("ns", "org-1", once).when


def test_unknown_attributes_are_ignored() -> None:
    """A newer version may add some."""
    assert CHILD == entity_item.from_item(entity_item.to_item("ns", CHILD, 1) | {"new": 1})


@pytest.mark.parametrize(
    "damage",
    [{"entity_id": 5}, {"name": 5}, {"parent_id": 5}, {"cascade": "yes"}, {"metadata": "x"}, {"created_at": 5}],
)
def test_a_damaged_entity_is_a_named_error(damage: dict[str, Any]) -> None:
    """It says which item and which attribute."""
    with pytest.raises(CorruptItemError, match=f"ns/ENTITY#user-1 #META.*{next(iter(damage))}"):
        entity_item.from_item(entity_item.to_item("ns", CHILD, 1) | damage)


def test_facts_without_a_version_are_damaged() -> None:
    """Without it no change could be seen."""
    with pytest.raises(CorruptItemError, match="config_version"):
        entity_item.facts_from_item({"PK": "ns/ENTITY#user-1", "SK": "#META"})
