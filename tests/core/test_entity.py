"""Entities are checked before they are stored."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from zae_limiter.core.config import Block, EntityFacts
from zae_limiter.core.entity import (
    MAX_BLOCKS,
    MAX_CASCADE_RESOURCES,
    MAX_METADATA_DEPTH,
    MAX_NESTED_METADATA_BYTES,
    Entity,
    EntityBlock,
    blocks_with,
    blocks_without,
    check_block,
    check_cascade_resources,
    check_entity,
    check_metadata,
    move_details,
    parent_details,
    shown_blocks,
)
from zae_limiter.core.errors import ValidationError

GOOD = Entity("user-1", "User One", "org-1", True, {"plan": "pro", "seats": 5, "trial": False, "note": None})


def test_entity_with_a_parent_is_a_child() -> None:
    """An entity without one is a parent."""
    child, parent = Entity("user-1", parent_id="org-1"), Entity("org-1")

    assert (True, False) == (child.is_child, child.is_parent)
    assert (False, True) == (parent.is_child, parent.is_parent)


@pytest.mark.parametrize("entity", [GOOD, Entity("a"), Entity("a", "日本"), Entity("a", parent_id="b", cascade=True)])
def test_valid_entities_pass_the_check(entity: Entity) -> None:
    """Name, parent and metadata are optional."""
    check_entity(entity)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "a#b"),
        ("id", None),
        ("parent_id", None),
        ("name", 5),
        ("name", "x" * 257),
        ("parent_id", "a#b"),
        ("parent_id", "user-1"),
        ("cascade", 1),
        ("metadata", None),
        ("metadata", ["a"]),
        ("metadata", {"": "a"}),
        ("metadata", {1: "a"}),
        ("metadata", {"a": 10**31}),
        ("metadata", {"a": "x" * 2**20}),
        ("metadata", {"a": "\ud800"}),
        ("metadata", {str(number): 1 for number in range(51)}),
    ],
)
def test_invalid_entities_raise(field: str, value: Any) -> None:
    """Values that a table could not store are refused before they are written."""
    with pytest.raises(ValidationError):
        check_entity(replace(GOOD, **{field: value}))


def nested(depth: int) -> dict[str, Any]:
    """Return metadata whose value is nested this deep."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"a": value}


def endless() -> dict[str, Any]:
    """Return a dictionary that contains itself."""
    found: dict[str, Any] = {}
    found["a"] = found
    return found


def of_bytes(size: int) -> dict[str, Any]:
    """Return metadata whose nested part has this many bytes of JSON, partly of characters that have two."""
    texts = ["\u00e9" * 500] * 30
    overhead = len(json.dumps({"a": [*texts, ""]}, ensure_ascii=False, separators=(",", ":")).encode())
    rest = size - overhead
    fill = ["x" * 1000] * (rest // 1003)
    rest -= 1003 * len(fill)
    return {"a": [*texts, *fill, "x" * rest], "flat": "y" * 1024}


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": 1.5, "b": -0.0, "c": 1e-308, "d": 1.7976931348623157e308},
        {"a": [], "b": {}, "c": [{"d": [None, True, 1, "x"]}]},
        nested(MAX_METADATA_DEPTH),
        of_bytes(MAX_NESTED_METADATA_BYTES),
    ],
)
def test_metadata_may_have_floats_lists_and_dictionaries(metadata: dict[str, Any]) -> None:
    """Values as in JSON, up to the bounds."""
    check_metadata(metadata)


@pytest.mark.parametrize(
    ("metadata", "field", "reason"),
    [
        ({"a": float("nan")}, "metadata['a']", "finite"),
        ({"a": [1, float("-inf")]}, "metadata['a'][1]", "finite"),
        ({"a": {"b": [{"c": 10**31}]}}, "metadata['a']['b'][0]['c']", "at most"),
        ({"a": ["x" * 1025]}, "metadata['a'][0]", "at most 1024 characters"),
        ({"a": {"": 1}}, "metadata key", "must not be empty"),
        ({"a": {1: 1}}, "metadata key", "plain str"),
        ({"a": (1, 2)}, "metadata['a']", "list or dict, not tuple"),
        ({"a": b"x"}, "metadata['a']", "list or dict, not bytes"),
        ({"a": type("Text", (str,), {})("x")}, "metadata['a']", "not Text"),
        (nested(MAX_METADATA_DEPTH + 1), "metadata['a']" + "[0]" * MAX_METADATA_DEPTH, "more than 8 deep"),
        (endless(), "metadata" + "['a']" * (MAX_METADATA_DEPTH + 1), "more than 8 deep"),
        (of_bytes(MAX_NESTED_METADATA_BYTES + 1), "metadata", "at most 32768 bytes of JSON, not 32769"),
    ],
)
def test_invalid_nested_metadata_raises_with_its_place(metadata: dict[str, Any], field: str, reason: str) -> None:
    """The error names the value, and the bound that it exceeds."""
    with pytest.raises(ValidationError, match=reason) as raised:
        check_metadata(metadata)

    assert field == raised.value.field


def test_resources_that_cascade_are_sorted_without_duplicates() -> None:
    """None stands for all resources."""
    assert ("a", "b") == check_cascade_resources(["b", "a", "b"])
    assert check_cascade_resources(None) is None


@pytest.mark.parametrize("value", ["gpt-4", [], ["_all_"], ["a b"], ["a"] * (MAX_CASCADE_RESOURCES + 1), 5])
def test_invalid_resources_that_cascade_raise(value: object) -> None:
    """A single text is not a list of resources."""
    with pytest.raises(ValidationError):
        check_cascade_resources(value)


def test_resources_that_cascade_need_cascade() -> None:
    """Otherwise they would have no effect."""
    with pytest.raises(ValidationError, match="needs cascade=True"):
        check_entity(Entity("a", parent_id="b", cascade_resources=("gpt-4",)))


def test_block_ends_at_the_given_time_in_any_time_zone() -> None:
    """The time is stored in UTC."""
    until = datetime(2026, 12, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    block = check_block("gpt-4", "unpaid", until, 0)

    assert (EntityBlock("gpt-4", "unpaid", datetime(2026, 12, 1, tzinfo=UTC)),) == shown_blocks([block])
    assert (EntityBlock(),) == shown_blocks([check_block(None, None, None, 0)])


@pytest.mark.parametrize(
    ("resource", "reason", "until"),
    [
        ("_all_", None, None),
        (None, "x" * 257, None),
        (None, None, datetime(2026, 12, 1)),  # noqa: DTZ001 - a time without a zone is refused
        (None, None, "tomorrow"),
        (None, None, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_invalid_block_raises(resource: object, reason: object, until: object) -> None:
    """A time without a zone could mean two times, and one in the past would block nothing."""
    with pytest.raises(ValidationError):
        check_block(resource, reason, until, 1_000)


def test_new_block_replaces_that_of_its_resource_and_drops_ended_ones() -> None:
    """The block of all resources comes first."""
    ended, other, old, new = Block("a", until_ms=5), Block("b", until_ms=6), Block("c"), Block("c", "again")

    assert (Block(), other, new) == blocks_with((ended, other, old, Block()), new, 5)
    assert (other,) == blocks_without((other, old), "c")
    assert () == blocks_without((other, old), None)


def test_too_many_blocks_raise() -> None:
    """The record of an entity stays small."""
    blocks = [Block(f"model-{number}") for number in range(MAX_BLOCKS)]

    with pytest.raises(ValidationError, match="unblock some"):
        blocks_with(blocks, Block(), 0)


def test_audit_events_say_which_parent_an_entity_has_and_had() -> None:
    """The resources that cascade are named only if they are chosen."""
    moved = Entity("a", parent_id="c", cascade=True, cascade_resources=("gpt-4",))

    assert {"parent_id": "b", "cascade": False} == parent_details(Entity("a", parent_id="b"))
    assert {"before": "b", "parent_id": "c", "cascade": True, "cascade_resources": ["gpt-4"]} == move_details(
        EntityFacts("b", True, 1), moved
    )
