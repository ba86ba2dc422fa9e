"""Entities round-trip through items, and leave a tombstone."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.config import Block, EntityFacts
from zae_limiter.core.entity import Entity, EntityBlock
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.schema import entity_item
from zae_limiter.schema.operations import AtLeast, AttributeAbsent, Differs, Equals, ItemAbsent, Update
from zae_limiter.tables import evaluate

CHILD = Entity("user-1", "User One", "org-1", True, {"plan": "pro"}, "2024-01-01T00:00:00.000Z")
SEEN = EntityFacts("org-1", cascade=True, version=4)
GONE = EntityFacts(None, cascade=False, version=5, deleted=True)

AS_SEEN = (Equals("config_version", 4), Differs("deleted", True))


def applied(operation: Update, item: dict[str, Any]) -> dict[str, Any]:
    """Return an item after an operation that it does not refuse."""
    after = evaluate.apply(operation, item)
    assert isinstance(after, dict)
    return after


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


def test_entity_round_trips_with_the_resources_that_cascade_and_its_ancestors() -> None:
    """Users see the resources. The ancestors are a hint for clients."""
    entity = Entity("user-1", parent_id="team-1", cascade=True, cascade_resources=("gpt-4", "gpt-5"))
    item = entity_item.to_item("ns", entity, 2, ["team-1", "org-1"])

    facts = entity_item.facts_from_item(item)
    assert entity == entity_item.from_item(item)
    assert (("gpt-4", "gpt-5"), ("team-1", "org-1")) == (facts.cascade_resources, facts.ancestors)


def test_move_replaces_the_parent_the_cascade_and_the_index_entry() -> None:
    """The version rises, so every client notices."""
    item = entity_item.to_item("ns", CHILD, 4, ["org-1"])
    moved = entity_item.move("ns", Entity("user-1", parent_id="org-2", cascade=True), SEEN, ["org-2", "top"])
    alone = entity_item.move("ns", Entity("user-1"), SEEN, [])

    after = applied(moved, item)
    assert (*AS_SEEN, AttributeAbsent("children")) == moved.when
    assert EntityFacts("org-2", True, 5, ancestors=("org-2", "top")) == entity_item.facts_from_item(after)
    assert ("ns/PARENT#org-2", "CHILD#user-1") == (after["GSI1PK"], after["GSI1SK"])
    assert {"name": "User One", "metadata": {"plan": "pro"}} == {name: after[name] for name in ("name", "metadata")}
    assert EntityFacts(None, False, 5) == entity_item.facts_from_item(applied(alone, item))
    assert "GSI1PK" not in applied(alone, item)


def test_move_of_a_parent_depends_on_no_number_of_children() -> None:
    """Its first child is known, and further ones change nothing."""
    moved = entity_item.move("ns", Entity("user-1"), replace(SEEN, counts_children=True), [])

    assert AS_SEEN == moved.when


def test_blocks_are_stored_with_the_entity_and_removed_again() -> None:
    """Users see when a block ends."""
    item = entity_item.to_item("ns", CHILD, 4)
    blocks = (Block(), Block("gpt-4", "unpaid", 1_000))

    blocked = applied(entity_item.block("ns", "user-1", SEEN, blocks), item)
    free = applied(entity_item.block("ns", "user-1", replace(SEEN, version=5), ()), blocked)

    found = entity_item.from_item(blocked)
    assert blocks == entity_item.facts_from_item(blocked).blocks
    assert found is not None
    assert (EntityBlock(), EntityBlock("gpt-4", "unpaid", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))) == found.blocks
    assert ((), False) == (entity_item.facts_from_item(free).blocks, "blocks" in free)


def test_bypass_is_stored_with_the_entity_and_removed_again() -> None:
    """It is a fact of the record."""
    item = entity_item.to_item("ns", CHILD, 4)

    passing = applied(entity_item.bypass("ns", "user-1", SEEN, True), item)
    ended = applied(entity_item.bypass("ns", "user-1", replace(SEEN, version=5), False), passing)

    assert (True, 5) == (entity_item.facts_from_item(passing).bypass, passing["config_version"])
    assert (False, False) == (entity_item.facts_from_item(ended).bypass, "bypass" in ended)


def test_moves_require_every_entity_above_as_it_was_seen() -> None:
    """So two moves at the same time cannot form a cycle."""
    assert AS_SEEN == entity_item.unchanged("ns", "org-1", SEEN).when
    assert AS_SEEN == entity_item.adopt("ns", "org-1", SEEN).when
    assert (AtLeast("children", 1), *AS_SEEN) == entity_item.part_with("ns", "org-1", SEEN).when


@pytest.mark.parametrize(
    "blocks",
    ["[", "5", "[5]", "[[1]]", '[["a",2,3]]', '[[2,"a",3]]', '[["a","b","c"]]', "[[null,null,-1]]", "[" * 9_999],
)
def test_damaged_blocks_raise(blocks: str) -> None:
    """A damaged record must not admit what was blocked."""
    item = {**entity_item.to_item("ns", CHILD, 4), "blocks": blocks}

    with pytest.raises(CorruptItemError, match="blocks"):
        entity_item.facts_from_item(item)


@pytest.mark.parametrize("ancestors", ["", "a##b", "a#b c"])
def test_damaged_ancestors_raise(ancestors: str) -> None:
    """They become keys of reads."""
    item = {**entity_item.to_item("ns", CHILD, 4), "ancestors": ancestors}

    with pytest.raises(CorruptItemError, match="ancestors"):
        entity_item.facts_from_item(item)
