"""Counts the usage of buckets into snapshots, exactly once, and reads snapshots.

An embedded table has a log of changes. A client counts it before it reads usage, in the same way as the aggregator of a
deployed table. Counting may stop between any two steps, and several clients may count at the same time. A snapshot is
changed only if its marker is the one that was read. The log is trimmed only after its changes were counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.store.dialogues import carry_out
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.table import ChangeLog
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Item
from zae_limiter.core.usage import UsageFilter, UsagePosition, UsageSnapshot, UsageTotals
from zae_limiter.schema import usage_item, usage_queries
from zae_limiter.schema.operations import Key, Page, Query
from zae_limiter_aggregator.apply import ApplyContext, count
from zae_limiter_aggregator.plan import Count, Rules, accounts_of, groups
from zae_limiter_aggregator.records import from_log

# A table in memory keeps the snapshots, so the garbage collector runs while they are counted. The objects of one step
# survive such a collection, and enough survivors cause a full one. So a step counts few changes.
_CHANGES_AT_ONCE = 8
_CHANGES_PER_STEP = 4
_MOST_PER_PAGE = 100
_RULES = Rules(apart=False)


class SnapshotPage(NamedTuple):
    """Snapshots, and the position of the last one, None if no page follows."""

    snapshots: list[UsageSnapshot]
    next: UsagePosition | None


class UsageStore:
    """The usage of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._index = IndexReader(scope.table)

    async def count(self) -> None:
        """Count what was used since the last count, in every namespace of the table; do nothing without a log."""
        log = self._scope.table.log
        if log is None:
            return
        start: int | None = 0
        while start is not None:
            # Counted while it is logged: the memory table bounds its log, and would drop the oldest changes.
            start = await log.log_changes(start)
            while await self._count_some(log):
                pass

    async def find(self, wanted: UsageFilter, limit: int, after: UsagePosition | None) -> SnapshotPage:
        """Return the next page of matching snapshots, at most ``limit``."""
        found: list[UsageSnapshot] = []
        last: Key | None = None
        query: Query | None = usage_queries.query(self._scope.namespace_id, wanted, after)
        # The filter drops entries of a page, so pages are read until the limit is reached. After the first page they
        # are full, even if the limit is small: an index may have many windows of other types in a row.
        size = min(limit, _MOST_PER_PAGE)
        while query is not None and len(found) < limit:
            page = await self._index.read(replace(query, limit=size))
            left = _wanted(wanted, page)
            while left and len(found) < limit:
                some, left = left[: limit - len(found)], left[limit - len(found) :]
                for item in await self._values(query, some):
                    found.append(usage_item.from_item(item))
                    last = _key(item)
            query = query if left else usage_queries.following(query, wanted, page)
            size = _MOST_PER_PAGE
        return SnapshotPage(found, None if query is None or last is None else usage_queries.position_of(last))

    async def totals(self, wanted: UsageFilter) -> UsageTotals:
        """Return the totals of all matching snapshots, which are read in pages.

        Without a resource, those of ``_all_`` are left out.
        """
        totals = UsageTotals()
        query: Query | None = usage_queries.query(self._scope.namespace_id, wanted, None)
        while query is not None:
            page = await self._index.read(replace(query, limit=_MOST_PER_PAGE))
            items = await self._values(query, _added_up(wanted, _wanted(wanted, page)))
            totals.add(usage_item.from_item(item) for item in items)
            query = usage_queries.following(query, wanted, page)
        return totals

    async def _count_some(self, log: ChangeLog) -> bool:
        """Count the oldest changes of the log, and trim it; return False if there are no more."""
        logged = await log.changes(0, _CHANGES_AT_ONCE)
        for start in range(0, len(logged), _CHANGES_PER_STEP):
            records = [from_log(change) for change in logged[start : start + _CHANGES_PER_STEP]]
            for some in groups(accounts_of(record for record in records if record is not None)):
                # Other tasks run between two groups.
                await runtime.sleep(0)
                await self._add(some)
        if logged:
            # Last: after an interrupt, changes are counted again, and the markers of the snapshots skip them.
            await log.trim(logged[-1].sequence)
        return len(logged) == _CHANGES_AT_ONCE

    async def _add(self, some: Sequence[Count]) -> None:
        """Add changes to the snapshots that have not counted them yet."""
        context = ApplyContext(self._scope.client.nonces, self._scope.table.now)
        counted = await carry_out(self._scope.table, count(some, _RULES, context))
        if counted.left:
            raise self._scope.client.unavailable(counted.cause)

    async def _values(self, query: Query, chosen: Sequence[Item]) -> list[Item]:
        """Return the whole items of entries that a query found; an index has only keys."""
        if query.index is None or not chosen:
            return list(chosen)
        items = await self._scope.table.batch_get([_key(item) for item in chosen])
        return [item for item in items if item is not None]


def _wanted(wanted: UsageFilter, page: Page) -> list[Item]:
    """Return the entries of a page that the filter includes."""
    windows = [usage_queries.window_of(_key(item)) for item in page.items]
    pairs = zip(page.items, windows, strict=True)
    return [item for item, window in pairs if window is not None and wanted.admits(window)]


def _added_up(wanted: UsageFilter, items: Sequence[Item]) -> list[Item]:
    """Return the entries that totals include."""
    resources = [usage_queries.resource_of(_key(item)) for item in items]
    return [item for item, name in zip(items, resources, strict=True) if name is not None and wanted.adds_up(name)]


def _key(item: Item) -> Key:
    return Key(item["PK"], item["SK"])
