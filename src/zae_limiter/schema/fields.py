"""Read attributes of an item with the type they must have.

Every reader raises ``CorruptItemError`` with the item and the attribute if the value is damaged.
Attributes that are not read are ignored, so a newer version may add some.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.outcome import Item

_Choice = TypeVar("_Choice", bound=StrEnum)


def text(item: Item, name: str) -> str:
    """Return a required string."""
    found = item.get(name)
    return found if type(found) is str else damaged(item, name, "a string")


def optional_text(item: Item, name: str) -> str | None:
    """Return a string, None if it is None or absent."""
    found = item.get(name)
    return found if found is None or type(found) is str else damaged(item, name, "a string")


def number(item: Item, name: str) -> int:
    """Return a required integer."""
    found = item.get(name)
    return found if type(found) is int else damaged(item, name, "an integer")


def optional_number(item: Item, name: str) -> int | None:
    """Return an integer, None if it is None or absent."""
    found = item.get(name)
    return found if found is None or type(found) is int else damaged(item, name, "an integer")


def flag(item: Item, name: str) -> bool:
    """Return a boolean, False if it is absent."""
    found = item.get(name, False)
    return found if type(found) is bool else damaged(item, name, "a boolean")


def mapping(item: Item, name: str) -> dict[str, Any]:
    """Return a copy of a map, empty if it is None or absent."""
    found = item.get(name)
    if found is None:
        return {}
    return dict(found) if isinstance(found, Mapping) else damaged(item, name, "a map")


def json_object(item: Item, name: str) -> dict[str, Any]:
    """Return the dictionary of a JSON text, empty if it is None or absent."""
    found = optional_text(item, name)
    if found is None:
        return {}
    try:
        value = json.loads(found, parse_constant=_refuse_constant)
    # A forged text may be nested too deeply for the parser.
    except (ValueError, RecursionError):
        value = None
    return value if type(value) is dict else damaged(item, name, "a JSON object")


def optional_choice(item: Item, name: str, choices: type[_Choice]) -> _Choice | None:
    """Return a member of an enumeration, None if it is None or absent."""
    found = optional_text(item, name)
    if found is None:
        return None
    try:
        return choices(found)
    except ValueError:
        damaged(item, name, f"one of {', '.join(choices)}")


def damaged(item: Item, name: str, wanted: str) -> NoReturn:
    """Raise the error for an attribute with a wrong value.

    Raises:
        CorruptItemError: Always.
    """
    found = f"{type(item[name]).__name__}" if name in item else "nothing"
    raise CorruptItemError(location(item), f"{name} must be {wanted}, found {found}")


def location(item: Item) -> str:
    """Return a description of an item: its key."""
    return f"{item.get('PK')} {item.get('SK')}"


def _refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and infinities, which JSON does not have and this package never writes."""
    raise ValueError(constant)
