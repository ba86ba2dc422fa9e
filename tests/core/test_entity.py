"""Entities are checked before they are stored."""

from dataclasses import replace
from typing import Any

import pytest

from zae_limiter.core.entity import Entity, check_entity
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
        ("metadata", {"a": 1.5}),
        ("metadata", {"a": 10**31}),
        ("metadata", {"a": {"nested": 1}}),
        ("metadata", {"a": "x" * 2**20}),
        ("metadata", {"a": "\ud800"}),
        ("metadata", {str(number): 1 for number in range(51)}),
    ],
)
def test_invalid_entities_raise(field: str, value: Any) -> None:
    """Values that a table could not store are refused before they are written."""
    with pytest.raises(ValidationError):
        check_entity(replace(GOOD, **{field: value}))
