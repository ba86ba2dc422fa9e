"""A damaged attribute raises an error that names item and attribute."""

from collections.abc import Callable
from typing import Any

import pytest

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.status import OnUnavailable
from zae_limiter.schema import fields

READERS: list[tuple[Callable[..., Any], Any, Any]] = [
    (fields.text, "a", 5),
    (fields.optional_text, "a", 5),
    (fields.number, 5, "5"),
    (fields.number, 5, True),
    (fields.optional_number, 5, "5"),
    (fields.flag, True, 1),
    (fields.mapping, {"a": 1}, "a"),
]


@pytest.mark.parametrize(("read", "good", "bad"), READERS)
def test_attribute_of_the_wrong_type_raises_corrupt_item(read: Callable[..., Any], good: Any, bad: Any) -> None:
    """The error names the item and the attribute."""
    assert good == read({"PK": "pk", "SK": "sk", "x": good}, "x")

    with pytest.raises(CorruptItemError, match="The item pk sk is damaged: x must be"):
        read({"PK": "pk", "SK": "sk", "x": bad}, "x")


@pytest.mark.parametrize(
    ("read", "answer"),
    [(fields.optional_text, None), (fields.optional_number, None), (fields.flag, False), (fields.mapping, {})],
)
def test_optional_attribute_that_is_absent_has_a_default(read: Callable[..., Any], answer: object) -> None:
    """An item of an older version may lack it."""
    assert answer == read({"PK": "pk", "SK": "sk"}, "x")


@pytest.mark.parametrize("read", [fields.text, fields.number])
def test_required_attribute_that_is_absent_raises(read: Callable[..., Any]) -> None:
    """The error says that nothing was found."""
    with pytest.raises(CorruptItemError, match="found nothing"):
        read({}, "x")


def test_mapping_attribute_is_copied() -> None:
    """Readers never change stored items."""
    item = {"x": {"a": 1}}
    fields.mapping(item, "x")["a"] = 2

    assert {"x": {"a": 1}} == item


def test_choice_attribute_with_an_unknown_value_raises_with_the_choices() -> None:
    """An absent attribute is None."""
    assert OnUnavailable.ALLOW == fields.optional_choice({"x": "allow"}, "x", OnUnavailable)
    assert fields.optional_choice({}, "x", OnUnavailable) is None

    with pytest.raises(CorruptItemError, match="one of allow, block"):
        fields.optional_choice({"x": "maybe"}, "x", OnUnavailable)
