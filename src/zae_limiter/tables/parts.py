"""A large dictionary kept in many small ones, and turns of its keys, some at a time.

A dictionary that has to grow moves all that it holds in one step. With hundreds of thousands of keys that step takes
tens of milliseconds, and nothing else runs meanwhile. The parts grow one by one.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

PARTS = 128
"""A power of two."""

LAST_PART = PARTS - 1
_LEFT_BITS = 40

D = TypeVar("D", bound=dict[Any, Any])


class Parts(Generic[D]):
    """Dictionaries of which each key belongs to one."""

    __slots__ = ("parts",)

    def __init__(self, kind: type[D]) -> None:
        self.parts = tuple(kind() for _ in range(PARTS))

    def of(self, key: Hashable) -> D:
        """Return the dictionary that a key belongs to."""
        return self.parts[hash(key) & LAST_PART]

    def clear(self) -> None:
        """Forget every key."""
        for part in self.parts:
            part.clear()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Any]:
        return (key for part in self.parts for key in part)


class Turns(NamedTuple):
    """How many keys at the front of a part have their turn next. Each then goes to the end of its part, or away."""

    part: "OrderedDict[Any, Any]"
    keys: int


def next_turns(parts: Sequence["OrderedDict[Any, Any]"], start: int, limit: int) -> tuple[list[Turns], int | None]:
    """Return the next ``limit`` turns, and where to go on, None after the last.

    ``start`` is 0 at first, then what the call before returned. By the end each key that was there at first has had
    its turn, also if other rounds come in between.
    """
    first, left = start >> _LEFT_BITS, start & ((1 << _LEFT_BITS) - 1)
    turns = []
    for number in range(first, len(parts)):
        # The number of turns is that of the keys when the part is come to: keys added meanwhile are at the end.
        left = left or len(parts[number])
        count = min(left, limit)
        turns.append(Turns(parts[number], min(count, len(parts[number]))))
        if left > count:
            return turns, number << _LEFT_BITS | left - count
        left, limit = 0, limit - count
    return turns, None
