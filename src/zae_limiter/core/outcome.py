"""What a table may answer to a write, as values.

Reads have no place here: they answer with items, or raise ``RateLimiterUnavailable``. A write that was not
carried out is no surprise, so it is a value, and the caller decides from it what to do next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Item = Mapping[str, Any]
"""A stored item. Core carries it from the table to the schema and never looks inside."""


class Applied(NamedTuple):
    """The write was carried out; ``new`` is the item as it is now, empty after a delete."""

    new: Item


@dataclass(slots=True)
class Refused:
    """A condition did not hold; ``old`` is the item that refused it, so it is the newest knowledge there is."""

    old: Item


@dataclass(slots=True, frozen=True)
class Missing:
    """A condition did not hold because there is no such item."""


@dataclass(slots=True, frozen=True)
class Throttled:
    """The store takes no more writes for now. Nothing was written.

    ``contested``: not for want of capacity, but because a transaction holds the item for the moment. ``partition``:
    whether the partition of the key has no capacity left. It is None if the store gives no reason, and False if the
    table, an index or the account has none left, whichever key is written.
    """

    contested: bool = False
    partition: bool | None = None


@dataclass(slots=True, frozen=True)
class Unavailable:
    """The table did not answer. ``ambiguous``: the write may have been carried out all the same."""

    cause: BaseException
    ambiguous: bool


WriteOutcome = Applied | Refused | Missing | Throttled | Unavailable


@dataclass(slots=True, frozen=True)
class Committed:
    """Every operation of the transaction was carried out."""


@dataclass(slots=True, frozen=True)
class Cancelled:
    """No operation of the transaction was carried out; one reason per operation, None for one that could have been.

    ``in_doubt``: it was sent before without an answer, and what was sent then may arrive yet, and be carried out.
    """

    reasons: tuple[Refused | Missing | None, ...]
    in_doubt: bool = False


@dataclass(slots=True, frozen=True)
class Conflict:
    """Another transaction held one of the items. Nothing was written."""


TransactOutcome = Committed | Cancelled | Conflict | Throttled | Unavailable
