"""Define the results of a write to a table, as values.

A refused write is expected, so it is a value, and the caller decides what to do next. Reads return
items, or raise ``RateLimiterUnavailable``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass

Item = Mapping[str, Any]
"""A stored item. ``core`` passes it from the table to ``schema`` without reading it."""


class Applied(NamedTuple):
    """The write was applied; ``new`` is the item after it, empty after a delete."""

    new: Item


@dataclass(slots=True)
class Refused:
    """A condition was not met; ``old`` is the item that refused the write, as it is stored now."""

    old: Item


@dataclass(slots=True)
class RefusedInDoubt(Refused):
    """A refusal of a write that was sent again after a lost answer: the first try may have been applied."""


@dataclass(slots=True, frozen=True)
class Missing:
    """A condition was not met because the item does not exist."""


@dataclass(slots=True, frozen=True)
class Throttled:
    """The store rejects writes for now. Nothing was written.

    ``contested`` is True if a transaction holds the item, rather than capacity being exhausted.
    ``partition`` is True if the capacity of the key's partition is exhausted. It is False if the
    capacity of the table, an index or the account is exhausted, which affects every key. It is None
    if the store gives no reason.
    """

    contested: bool = False
    partition: bool | None = None


@dataclass(slots=True, frozen=True)
class Unavailable:
    """The table did not answer. If ``ambiguous``, the write may have been applied."""

    cause: BaseException
    ambiguous: bool


WriteOutcome = Applied | Refused | Missing | Throttled | Unavailable


@dataclass(slots=True, frozen=True)
class Committed:
    """Every operation of the transaction was applied."""


@dataclass(slots=True, frozen=True)
class Cancelled:
    """No operation of the transaction was applied. Each has a reason, None if its own conditions were met.

    If ``in_doubt``, an earlier attempt was not answered. It may still arrive and be applied.
    """

    reasons: tuple[Refused | Missing | None, ...]
    in_doubt: bool = False


@dataclass(slots=True, frozen=True)
class Conflict:
    """Another transaction held one of the items. Nothing was written."""


TransactOutcome = Committed | Cancelled | Conflict | Throttled | Unavailable
