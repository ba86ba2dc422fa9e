"""From a query to the range of the order it reads, and from what was found to a page. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Item
from zae_limiter.schema.operations import INDEXES, Page, Query

Entry = tuple[str, str, str]
"""A place in the order of a partition: sort key, then the primary key, which breaks ties."""

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class Range(NamedTuple):
    """Which sort keys a query reads: from ``low`` on; up to ``high`` included, or before ``below``; "" is no bound."""

    low: str
    high: str
    below: str


def range_of(query: Query) -> Range:
    """The range of sort keys a query reads.

    Raises:
        ValidationError: the index is unknown, the limit is below one, or prefix and range are mixed.
    """
    if query.index is not None and query.index not in INDEXES:
        raise ValidationError("index", query.index, f"it must be one of {', '.join(INDEXES)}")
    if query.limit is not None and query.limit < 1:
        raise ValidationError("limit", query.limit, "it must be at least 1")
    if query.prefix is None:
        return Range(query.low or "", query.high or "", "")
    if query.low is not None or query.high is not None:
        raise ValidationError("prefix", query.prefix, "a query has a prefix or a range, not both")
    return Range(query.prefix, "", after_prefix(query.prefix))


def after_prefix(prefix: str) -> str:
    """The first string that sorts after every string with the prefix, "" if there is none."""
    for end in range(len(prefix), 0, -1):
        successor = ord(prefix[end - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop
        if successor <= _LAST_CHARACTER:
            return prefix[: end - 1] + chr(successor)
    return ""


def start_of(query: Query) -> Entry | None:
    """The entry after which a query goes on, None for a first page."""
    if query.start is None:
        return None
    return (query.start[f"{query.index or ''}SK"], query.start["PK"], query.start["SK"])


def keys_of(query: Query, entry: Entry) -> dict[str, str]:
    """The key attributes of an entry: what an index answers with, and where a next page starts."""
    sort, pk, sk = entry
    if query.index is None:
        return {"PK": pk, "SK": sk}
    return {"PK": pk, "SK": sk, f"{query.index}PK": query.pk, f"{query.index}SK": sort}


def page_of(query: Query, entries: Sequence[Entry], items: Sequence[Item]) -> Page:
    """The page of what was found, of which one more than the limit was asked for to see whether there is more."""
    limit = query.limit
    if limit is None or len(entries) <= limit:
        return Page(list(items), None)
    return Page(list(items[:limit]), keys_of(query, entries[limit - 1]))
