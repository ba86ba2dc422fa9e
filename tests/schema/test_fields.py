"""A damaged attribute is a named error that says where and what."""

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
def test_an_attribute_has_the_type_it_must_have(read: Callable[..., Any], good: Any, bad: Any) -> None:
    """The error names the item and the attribute."""
    assert good == read({"PK": "pk", "SK": "sk", "x": good}, "x")

    with pytest.raises(CorruptItemError, match="The item pk sk is damaged: x must be"):
        read({"PK": "pk", "SK": "sk", "x": bad}, "x")


@pytest.mark.parametrize(
    ("read", "answer"),
    [(fields.optional_text, None), (fields.optional_number, None), (fields.flag, False), (fields.mapping, {})],
)
def test_what_may_be_absent_has_an_answer(read: Callable[..., Any], answer: object) -> None:
    """An item of an older version may lack it."""
    assert answer == read({"PK": "pk", "SK": "sk"}, "x")


@pytest.mark.parametrize("read", [fields.text, fields.number])
def test_what_must_be_there_is_missed(read: Callable[..., Any]) -> None:
    """The error says that nothing was found."""
    with pytest.raises(CorruptItemError, match="found nothing"):
        read({}, "x")


def test_a_map_is_copied() -> None:
    """Stored items are never changed by who reads them."""
    item = {"x": {"a": 1}}
    fields.mapping(item, "x")["a"] = 2

    assert {"x": {"a": 1}} == item


def test_a_choice_is_one_of_its_values() -> None:
    """Anything else is damage, and the error lists what may be."""
    assert OnUnavailable.ALLOW == fields.optional_choice({"x": "allow"}, "x", OnUnavailable)
    assert fields.optional_choice({}, "x", OnUnavailable) is None

    with pytest.raises(CorruptItemError, match="one of allow, block"):
        fields.optional_choice({"x": "maybe"}, "x", OnUnavailable)
