"""Counts the usage of buckets into snapshots, exactly once, and reads snapshots.

An embedded table has a log of changes. A client counts it before it reads usage, in the same way as the aggregator of a
deployed table. Counting may stop between any two steps, and several clients may count at the same time. A snapshot is
changed only if its marker is the one that was read. The log is trimmed only after its changes were counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar, assert_never

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter._async.table import ChangeLog
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Item
from zae_limiter.core.usage import UsageFilter, UsageSnapshot, UsageTotals, window_of_key
from zae_limiter.schema import keys, usage_item
from zae_limiter.schema.operations import Delete, Key, Page, Put, Query, Update
from zae_limiter_aggregator.apply import ApplyContext, Ask, Pause, Read, TableAnswer, TableDialogue, Transaction, count
from zae_limiter_aggregator.plan import Count, Rules, accounts_of, groups
from zae_limiter_aggregator.records import from_log

# A table in memory keeps the snapshots, so the garbage collector runs while they are counted. The objects of one step
# survive such a collection, and enough survivors cause a full one. So a step counts few changes.
_CHANGES_AT_ONCE = 8
_CHANGES_PER_STEP = 4
_MOST_PER_PAGE = 100
_RULES = Rules(apart=False)

T = TypeVar("T")


class SnapshotPage(NamedTuple):
    """Snapshots, and the start of the next page, None after the last."""

    snapshots: list[UsageSnapshot]
    next: Mapping[str, str] | None


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

    async def find(self, wanted: UsageFilter, limit: int, start: Mapping[str, str] | None) -> SnapshotPage:
        """Return the next page of matching snapshots, at most ``limit``."""
        found: list[UsageSnapshot] = []
        query: Query | None = self._query(wanted, start)
        # The filter drops snapshots of a page, so pages are read until the limit is reached.
        while query is not None and len(found) < limit:
            page = await self._index.read(replace(query, limit=min(limit - len(found), _MOST_PER_PAGE)))
            found += await self._snapshots(wanted, page)
            query = query.after(page)
        return SnapshotPage(found, None if query is None else query.start)

    async def totals(self, wanted: UsageFilter) -> UsageTotals:
        """Return the totals of all matching snapshots, which are read in pages."""
        totals = UsageTotals()
        query: Query | None = self._query(wanted, None)
        while query is not None:
            page = await self._index.read(query)
            totals.add(await self._snapshots(wanted, page))
            query = query.after(page)
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
        counted = await self._run(count(some, _RULES, ApplyContext(self._scope.client.nonces, self._scope.table.now)))
        if counted.left:
            raise RateLimiterUnavailable(counted.cause)

    async def _run(self, dialogue: TableDialogue[T]) -> T:
        """Run a generator that yields table operations: carry out each, and send its result back."""
        answer: TableAnswer = None
        while True:
            try:
                ask = dialogue.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = await self._answer(ask)

    async def _answer(self, ask: Ask) -> TableAnswer:
        """Carry out one yielded operation."""
        table = self._scope.table
        match ask:
            case Read(wanted, consistent):
                return await table.batch_get(wanted, consistent=consistent)
            case Transaction(operations, token):
                return await table.transact(operations, token)
            case Put() | Update() | Delete():
                return await table.write(ask)
            case Pause(seconds):
                await runtime.sleep(seconds)
                return None
            case never:
                assert_never(never)

    def _query(self, wanted: UsageFilter, start: Mapping[str, str] | None) -> Query:
        namespace_id, resource, limit = self._scope.namespace_id, wanted.resource, _MOST_PER_PAGE
        if wanted.entity_id is None and resource is not None:
            pk = keys.gsi2_pk_resource(namespace_id, resource)
            return Query(pk, "GSI2", prefix=keys.GSI_USAGE_PREFIX, limit=limit, start=start)
        prefix = keys.SK_USAGE_PREFIX if resource is None else keys.sk_usage(resource, "")
        return Query(keys.pk_entity(namespace_id, str(wanted.entity_id)), prefix=prefix, limit=limit, start=start)

    async def _snapshots(self, wanted: UsageFilter, page: Page) -> list[UsageSnapshot]:
        """Return the matching snapshots of a page."""
        chosen = [item for item in page.items if _is_wanted(wanted, item)]
        # A page of the index has only keys, so its items are read.
        if wanted.entity_id is not None or not chosen:
            return [usage_item.from_item(item) for item in chosen]
        items = await self._scope.table.batch_get([Key(item["PK"], item["SK"]) for item in chosen])
        return [usage_item.from_item(item) for item in items if item is not None]


def _is_wanted(wanted: UsageFilter, item: Item) -> bool:
    parsed = keys.parse_usage_sk(item["SK"])
    window = None if parsed is None else window_of_key(parsed.window_key)
    return window is not None and wanted.admits(window)
