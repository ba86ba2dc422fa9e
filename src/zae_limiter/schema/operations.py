"""Define operations on a table, their conditions, and queries, as values that never change.

The ``holds`` method of a condition returns what DynamoDB would decide for the item; an absent item
is ``{}``. ``tables.dynamodb`` renders operations as DynamoDB requests. ``tables.evaluate`` applies
them to items.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass, field, replace
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
    """The item exists."""

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        return "PK" in item


@dataclass(slots=True)
class ItemAbsent:
    """The item does not exist."""

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        return "PK" not in item


@dataclass(slots=True)
class AttributeExists:
    """The item has the attribute."""

    name: str

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        return self.name in item


@dataclass(slots=True)
class AttributeAbsent:
    """The item does not exist, or lacks the attribute."""

    name: str

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        return self.name not in item


@dataclass(slots=True)
class Equals:
    """The attribute exists, with this type and value."""

    name: str
    value: str | int | bool | None

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name, _ABSENT)
        # In Python True equals 1, but DynamoDB also compares the types.
        return type(found) is type(self.value) and found == self.value


@lru_cache(_READERS)
def _reader(names: tuple[str, ...]) -> Callable[[Item], Any]:
    """Return a reader of several attributes, shared by all conditions on the same names."""
    return itemgetter(*names)


@dataclass(slots=True)
class Matches:
    """Several attributes exist, each with its value. Cheaper than several ``Equals``.

    It needs at least two names. The values are numbers and strings; a boolean would match an equal
    number.
    """

    names: tuple[str, ...]
    values: tuple[str | int, ...]
    read: Callable[[Item], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare to read all attributes in one call."""
        self.read = _reader(self.names)

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        try:
            matched: bool = self.read(item) == self.values
        except KeyError:
            return False
        return matched


@dataclass(slots=True)
class Differs:
    """The attribute is absent, or has another type or value."""

    name: str
    value: str | int | bool | None

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name, _ABSENT)
        return type(found) is not type(self.value) or found != self.value


@dataclass(slots=True)
class AtLeast:
    """The attribute is a number and at least the bound."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name)
        return type(found) is int and found >= self.bound


@dataclass(slots=True)
class AtMost:
    """The attribute is a number and at most the bound."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name)
        return type(found) is int and found <= self.bound


@dataclass(slots=True)
class AbsentOrAtMost:
    """The attribute is absent, or is not a number above the bound."""

    name: str
    bound: int

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name)
        # DynamoDB compares only numbers with a number: a comparison with anything else is false.
        return type(found) is not int or found <= self.bound


@dataclass(slots=True)
class Between:
    """The attribute is a number from ``low`` to ``high``, both included."""

    name: str
    low: int
    high: int

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
        found = item.get(self.name)
        return type(found) is int and self.low <= found <= self.high


@dataclass(slots=True)
class Ranges:
    """Several attributes are numbers, each in its range: name, lowest, and highest, None for no upper bound."""

    ranges: Sequence[tuple[str, int, int | None]]

    def holds(self, item: Item) -> bool:
        """Return whether the condition holds for the item."""
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
    | AbsentOrAtMost
    | Between
    | Ranges
)
Conditions = tuple[Condition, ...]


@dataclass(slots=True)
class Put:
    """Write a whole item, replacing an existing one."""

    item: Item
    when: Conditions = ()

    @property
    def key(self) -> Key:
        """The key of the item to write."""
        return Key(self.item["PK"], self.item["SK"])


@dataclass(slots=True)
class Update:
    """Change attributes of an item. An absent item is created, unless a condition forbids it.

    ``add`` adds to numbers (an absent one counts as 0), ``set`` replaces, ``remove`` deletes. No
    attribute is in two of them, and none is part of the key.
    """

    key: Key
    add: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    set: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    remove: tuple[str, ...] = ()
    when: Conditions = ()


class DirectUpdate(Update):
    """An update that applies itself, so that an embedded table need not read its changes and conditions.

    It changes numbers and removes at most one attribute, which is no key.
    """

    __slots__ = ()

    @abstractmethod
    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the update; None if it may be refused, or is not the usual case."""

    @abstractmethod
    def written_names(self) -> tuple[str, ...] | None:
        """Return the names of all attributes that it writes, None if it removes one.

        Usual writes of equal layouts return the same object.
        """


@dataclass(slots=True)
class Delete:
    """Delete an item. Deleting an absent item succeeds, unless a condition forbids it."""

    key: Key
    when: Conditions = ()


@dataclass(slots=True)
class Check:
    """Require conditions of an item that the transaction does not write."""

    key: Key
    when: Conditions


Write = Put | Update | Delete
Operation = Put | Update | Delete | Check

INDEXES = ("GSI1", "GSI2", "GSI3", "GSI4")
"""The indexes of the table. All are KEYS_ONLY: a query returns ``PK``, ``SK`` and the two keys of the index."""


@dataclass(frozen=True, slots=True)
class Page:
    """Items that a query found, and the start of the next page, None after the last page."""

    items: list[Item]
    next: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Query:
    """Find items of one partition, of the table if ``index`` is None or of an index, sorted by the sort key.

    ``prefix`` excludes ``low`` and ``high``, which are both included. ``start`` is the ``next`` of
    an earlier page.
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
        """Return the query for the next page, None if the page was the last."""
        return None if page.next is None else replace(self, start=page.next)


class Change(NamedTuple):
    """What was added to the totals of a bucket in the hour that begins at ``at_ms``, by attribute.

    A later change of any bucket has a higher sequence. ``in_use`` are the most slots in use at a time in that hour, by
    limit of concurrent use, in millislots.
    """

    sequence: int
    key: Key
    at_ms: int
    added: Mapping[str, int]
    in_use: Mapping[str, int] = {}
