"""Reads indexes, and skips entries of other tenants.

IAM restricts the primary key of an item, but not its index keys. So a tenant can put entries into the index partitions
of another. An entry counts only if its index key follows from its primary key.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Callable, Sequence

from zae_limiter._sync.table import Table
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Item
from zae_limiter.schema.index_entries import is_genuine
from zae_limiter.schema.operations import Page, Query

_FULL_PAGE = 1000
_MOST_REPORTED = 1000

_log = logging.getLogger("zae_limiter")


class IndexReader:
    """Reads the indexes of a table without the entries of other tenants; ``accepts`` decides which entries count."""

    def __init__(self, table: Table, accepts: Callable[[str, Item], bool] = is_genuine) -> None:
        self._table = table
        self._accepts = accepts
        self._reported: set[str] = set()

    def page(self, query: Query) -> Page:
        """Return the genuine entries of one page, possibly none; a query of the table itself is not filtered."""
        page = self._table.query(query)
        if query.index is None:
            return page
        genuine = [entry for entry in page.items if self._accepts(query.index, entry)]
        if len(genuine) < len(page.items) and query.pk not in self._reported:
            self._report(query, page.items)
        return Page(genuine, page.next)

    def read(self, query: Query) -> Page:
        """Return the next ``query.limit`` genuine entries, or all if the limit is None.

        Foreign entries are skipped in pages of at least 1,000, even if the limit is small: a tenant must not slow down
        another one.
        """
        limit, found = query.limit, list[Item]()
        while True:
            page = self.page(query)
            found += page.items
            if page.next is None or (limit is not None and len(found) >= limit):
                break
            # The page was too short: it had foreign entries, or reached the size limit of a response. The table itself
            # has no foreign entries, so there the missing number is enough.
            more = None if limit is None else max(limit, _FULL_PAGE) if query.index else limit - len(found)
            query = replace(query, start=page.next, limit=more)
        if limit is None or len(found) <= limit:
            return Page(found, page.next)
        return Page(found[:limit], _start_after(query, found[:limit]))

    def _report(self, query: Query, entries: Sequence[Item]) -> None:
        """Log once per partition that it has foreign entries, with the key of the first."""
        if len(self._reported) < _MOST_REPORTED:
            self._reported.add(query.pk)
        first = next(entry for entry in entries if not self._accepts(query.index or "", entry))
        _log.warning("Foreign entries skipped in %s of %s; the first is %s", query.pk, query.index, first["PK"])


def _start_after(query: Query, found: Sequence[Item]) -> dict[str, str]:
    """Return the start of the page that follows these entries."""
    prefixes = ("",) if query.index is None else ("", query.index)
    return {f"{prefix}{part}": found[-1][f"{prefix}{part}"] for prefix in prefixes for part in ("PK", "SK")}
