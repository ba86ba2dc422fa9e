"""Attributes of an item read back with the type they must have.

Every reader raises ``CorruptItemError``, which names item and attribute, for one that is damaged. Attributes that
nobody asks for are ignored, so a newer version may add some.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.outcome import Item

_Choice = TypeVar("_Choice", bound=StrEnum)


def text(item: Item, name: str) -> str:
    """A string that must be there."""
    found = item.get(name)
    return found if type(found) is str else damaged(item, name, "a string")


def optional_text(item: Item, name: str) -> str | None:
    """A string, None or absent."""
    found = item.get(name)
    return found if found is None or type(found) is str else damaged(item, name, "a string")


def number(item: Item, name: str) -> int:
    """An integer that must be there."""
    found = item.get(name)
    return found if type(found) is int else damaged(item, name, "an integer")


def optional_number(item: Item, name: str) -> int | None:
    """An integer, None or absent."""
    found = item.get(name)
    return found if found is None or type(found) is int else damaged(item, name, "an integer")


def flag(item: Item, name: str) -> bool:
    """A boolean; absent is False."""
    found = item.get(name, False)
    return found if type(found) is bool else damaged(item, name, "a boolean")


def mapping(item: Item, name: str) -> dict[str, Any]:
    """A map, copied; absent or None is empty."""
    found = item.get(name)
    if found is None:
        return {}
    return dict(found) if isinstance(found, Mapping) else damaged(item, name, "a map")


def optional_choice(item: Item, name: str, choices: type[_Choice]) -> _Choice | None:
    """One of the values of an enumeration, None or absent."""
    found = optional_text(item, name)
    if found is None:
        return None
    try:
        return choices(found)
    except ValueError:
        damaged(item, name, f"one of {', '.join(choices)}")


def damaged(item: Item, name: str, wanted: str) -> NoReturn:
    """Say that an attribute does not hold what it must.

    Raises:
        CorruptItemError: always.
    """
    found = f"{type(item[name]).__name__}" if name in item else "nothing"
    raise CorruptItemError(location(item), f"{name} must be {wanted}, found {found}")


def location(item: Item) -> str:
    """Name an item by its key."""
    return f"{item.get('PK')} {item.get('SK')}"
