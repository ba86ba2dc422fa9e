"""Turns a query into a range of sort keys, and the entries found into a page. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Item
from zae_limiter.schema.operations import INDEXES, Page, Query

Entry = tuple[str, str, str]
"""A position in a partition: the sort key, then the primary key, which orders entries with equal sort keys."""

_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class Range(NamedTuple):
    """The sort keys a query reads: from ``low`` through ``high``, or up to but without ``below``; "" if unbounded."""

    low: str
    high: str
    below: str


def range_of(query: Query) -> Range:
    """Return the range of sort keys a query reads.

    Raises:
        ValidationError: The index is unknown, the limit is below 1, or the query has both a prefix and a range.
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
    """Return the first string that sorts after every string with the prefix, "" if no string does."""
    # The last character that has a successor is replaced by it. Surrogates are skipped: UTF-8 cannot encode them.
    for end in range(len(prefix), 0, -1):
        successor = ord(prefix[end - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop
        if successor <= _LAST_CHARACTER:
            return prefix[: end - 1] + chr(successor)
    return ""


def start_of(query: Query) -> Entry | None:
    """Return the entry after which a query continues, None for a first page."""
    if query.start is None:
        return None
    return (query.start[f"{query.index or ''}SK"], query.start["PK"], query.start["SK"])


def keys_of(query: Query, entry: Entry) -> dict[str, str]:
    """Return the key attributes of an entry: the item of an index query, and the start of the next page."""
    sort, pk, sk = entry
    if query.index is None:
        return {"PK": pk, "SK": sk}
    return {"PK": pk, "SK": sk, f"{query.index}PK": query.pk, f"{query.index}SK": sort}


def page_of(query: Query, entries: Sequence[Entry], items: Sequence[Item]) -> Page:
    """Return a page of at most ``limit`` items; one entry more than the limit shows that another page follows."""
    limit = query.limit
    if limit is None or len(entries) <= limit:
        return Page(list(items), None)
    return Page(list(items[:limit]), keys_of(query, entries[limit - 1]))
