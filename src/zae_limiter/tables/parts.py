"""A large dictionary split into many small ones, and a traversal of its keys in slices.

A dictionary that has to grow copies all its keys in one step. With hundreds of thousands of keys that takes tens of
milliseconds, and no other thread runs meanwhile. Small dictionaries grow one at a time.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

PARTS = 128
"""The number of dictionaries; it must be a power of two, because `LAST_PART` is used as a bit mask."""

LAST_PART = PARTS - 1
_LEFT_BITS = 40

D = TypeVar("D", bound=dict[Any, Any])


class Parts(Generic[D]):
    """Dictionaries that share the keys; the hash of a key selects its dictionary."""

    __slots__ = ("parts",)

    def __init__(self, kind: type[D]) -> None:
        self.parts = tuple(kind() for _ in range(PARTS))

    def of(self, key: Hashable) -> D:
        """Return the dictionary of a key."""
        return self.parts[hash(key) & LAST_PART]

    def clear(self) -> None:
        """Remove every key."""
        for part in self.parts:
            part.clear()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Any]:
        return (key for part in self.parts for key in part)


class Turns(NamedTuple):
    """The number of keys to visit next at the front of a part; each is then moved to the end, or removed."""

    part: "OrderedDict[Any, Any]"
    keys: int


def next_turns(parts: Sequence["OrderedDict[Any, Any]"], start: int, limit: int) -> tuple[list[Turns], int | None]:
    """Return the next ``limit`` turns and the start of the next call, None after the last key.

    ``start`` is 0 in the first call. A traversal visits every key that existed at its beginning, even if other
    traversals run in between.
    """
    # A start is the number of a part, and in the low bits the number of its keys that are still to be visited.
    first, left = start >> _LEFT_BITS, start & ((1 << _LEFT_BITS) - 1)
    turns = []
    for number in range(first, len(parts)):
        # The keys are counted when the part is reached. Keys that are added later are at its end.
        left = left or len(parts[number])
        count = min(left, limit)
        turns.append(Turns(parts[number], min(count, len(parts[number]))))
        if left > count:
            return turns, number << _LEFT_BITS | left - count
        left, limit = 0, limit - count
    return turns, None
