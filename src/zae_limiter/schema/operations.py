"""Operations on a table, their conditions, and queries, as values that are never changed after they are made.

A condition carries its own ``holds``, which says what DynamoDB would say of the item (an absent item is ``{}``).
How an operation is written down for DynamoDB is ``tables.dynamodb``'s business; how it changes an item is
``tables.evaluate``'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from zae_limiter.core.outcome import Item

_ABSENT = object()
_READERS = 1024
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Key(NamedTuple):
    """The primary key of an item."""

    pk: str
    sk: str


@dataclass(slots=True)
class ItemExists:
    """There is an item."""

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        return "PK" in item


@dataclass(slots=True)
class ItemAbsent:
    """There is no item."""

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        return "PK" not in item


@dataclass(slots=True)
class AttributeExists:
    """The item has the attribute."""

    name: str

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        return self.name in item


@dataclass(slots=True)
class AttributeAbsent:
    """There is no item, or it lacks the attribute."""

    name: str

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        return self.name not in item


@dataclass(slots=True)
class Equals:
    """The attribute is there, with this type and value."""

    name: str
    value: str | int | bool | None

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        found = item.get(self.name, _ABSENT)
        return type(found) is type(self.value) and found == self.value


@lru_cache(_READERS)
def _reader(names: tuple[str, ...]) -> Callable[[Item], Any]:
    """Return a reader of several attributes; every condition on the same names shares it."""
    return itemgetter(*names)


@dataclass(slots=True)
class Matches:
    """Every one of several attributes is there, with its value: as many Equals at the price of one.

    For numbers and strings, two at least; a boolean would pass for the number it counts as.
    """

    names: tuple[str, ...]
    values: tuple[str | int, ...]
    _read: Callable[[Item], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the reading of all attributes at once."""
        self._read = _reader(self.names)

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        try:
            matched: bool = self._read(item) == self.values
        except KeyError:
            return False
        return matched


@dataclass(slots=True)
class Differs:
    """The attribute is absent, or has another type or value."""

    name: str
    value: str | int | bool | None

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        found = item.get(self.name, _ABSENT)
        return type(found) is not type(self.value) or found != self.value


@dataclass(slots=True)
class AtLeast:
    """The attribute is a number, and not below the bound."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        found = item.get(self.name)
        return type(found) is int and found >= self.bound


@dataclass(slots=True)
class AtMost:
    """The attribute is a number, and not above the bound."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        found = item.get(self.name)
        return type(found) is int and found <= self.bound


@dataclass(slots=True)
class Between:
    """The attribute is a number from ``low`` to ``high``, both included."""

    name: str
    low: int
    high: int

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        found = item.get(self.name)
        return type(found) is int and self.low <= found <= self.high


@dataclass(slots=True)
class Ranges:
    """Every one of several attributes is a number in its range: name, lowest, and highest or None for no bound."""

    ranges: Sequence[tuple[str, int, int | None]]

    def holds(self, item: Item) -> bool:
        """Say whether the condition holds of the item."""
        for name, low, high in self.ranges:
            found = item.get(name)
            if found.__class__ is not int or found < low or (high is not None and found > high):
                return False
        return True


Condition = (
    ItemExists
    | ItemAbsent
    | AttributeExists
    | AttributeAbsent
    | Equals
    | Matches
    | Differs
    | AtLeast
    | AtMost
    | Between
    | Ranges
)
Conditions = tuple[Condition, ...]


@dataclass(slots=True)
class Put:
    """Write a whole item, in place of any there was."""

    item: Item
    when: Conditions = ()

    @property
    def key(self) -> Key:
        """The key of the item to write."""
        return Key(self.item["PK"], self.item["SK"])


@dataclass(slots=True)
class Update:
    """Change attributes of an item; without a condition that forbids it, an absent item is created.

    ``add`` adds to numbers (an absent one counts as zero), ``set`` replaces, ``remove`` drops. No attribute
    stands in two of them, and none is part of the key.
    """

    key: Key
    add: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    set: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    remove: tuple[str, ...] = ()
    when: Conditions = ()


@dataclass(slots=True)
class Delete:
    """Remove an item. Removing what is not there succeeds, unless a condition forbids it."""

    key: Key
    when: Conditions = ()


@dataclass(slots=True)
class Check:
    """In a transaction: require conditions of an item that is not written."""

    key: Key
    when: Conditions


Write = Put | Update | Delete
Operation = Put | Update | Delete | Check

INDEXES = ("GSI1", "GSI2", "GSI3", "GSI4")
"""The indexes of the table. All are KEYS_ONLY: a query on one answers with ``PK``, ``SK`` and its own two keys."""


@dataclass(frozen=True, slots=True)
class Page:
    """Items a query found, and where the next page starts, None after the last."""

    items: list[Item]
    next: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Query:
    """Items of one partition of the table (``index`` None) or of an index, in the order of the sort key.

    ``prefix`` and ``low``/``high`` (both included) exclude each other. ``start`` is the ``next`` of an earlier page.
    """

    pk: str
    index: str | None = None
    prefix: str | None = None
    low: str | None = None
    high: str | None = None
    descending: bool = False
    limit: int | None = None
    start: Mapping[str, str] | None = None

    def after(self, page: Page) -> "Query | None":
        """Return the query of the page that follows one, None if it was the last."""
        return None if page.next is None else replace(self, start=page.next)


class Change(NamedTuple):
    """What was added to the totals of a bucket in the hour that begins at ``at_ms``, by attribute.

    A later change of any bucket has a higher sequence.
    """

    sequence: int
    key: Key
    at_ms: int
    added: Mapping[str, int]
