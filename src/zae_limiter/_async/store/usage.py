"""Usage: what buckets have used is counted into snapshots, exactly once, and snapshots are found again.

A table that keeps a log of its own is counted by whoever reads usage, by the plan that a deployed table's aggregator
follows. Counting may end between any two steps and begin again, and several clients may count at once: a snapshot is
added to only on condition that its marker is as it was seen, and the log is trimmed only of what has been counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from zae_limiter._async.store.scope import Scope
from zae_limiter._async.table import ChangeLog
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Committed, Item, Unavailable
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import UsageFilter, UsageSnapshot, Window, window_of_key
from zae_limiter.schema import keys, namespace_item, usage_item
from zae_limiter.schema.operations import Key, Operation, Page, Query
from zae_limiter_aggregator.plan import Account, Accounts, accounts_of, addition
from zae_limiter_aggregator.records import from_log

_RETENTION_S = 90 * 24 * 3600
_CHANGES_AT_ONCE = 1000
_SNAPSHOTS_AT_ONCE = 50
_MOST_PER_PAGE = 100
_MOST_TRIES = 16


class Found(NamedTuple):
    """Snapshots, and where the next page starts, None after the last."""

    snapshots: list[UsageSnapshot]
    next: Mapping[str, str] | None


class UsageStore:
    """The usage of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def count(self) -> None:
        """Count what was used since usage was last read, in every namespace of the table."""
        log = self._scope.table.log
        if log is None:
            return
        await log.log_changes()
        while await self._count_some(log):
            pass

    async def find(self, wanted: UsageFilter, limit: int, start: Mapping[str, str] | None) -> Found:
        """Return the next snapshots that are wanted, at most so many."""
        found: list[UsageSnapshot] = []
        while True:
            page = await self._scope.table.query(self._query(wanted, min(limit - len(found), _MOST_PER_PAGE), start))
            found += [usage_item.from_item(item) for item in await self._whole(wanted, page)]
            start = page.next
            if start is None or len(found) >= limit:
                return Found(found, start)

    async def _count_some(self, log: ChangeLog) -> bool:
        """Count the oldest changes of the log, and trim it; False when there are no more."""
        logged = await log.changes(0, _CHANGES_AT_ONCE)
        if logged:
            records = [from_log(change) for change in logged]
            accounts = accounts_of(record for record in records if record is not None)
            for some in _groups(accounts):
                await self._add(accounts, some)
            await log.trim(logged[-1].sequence)
        return len(logged) == _CHANGES_AT_ONCE

    async def _add(self, accounts: Accounts, some: Sequence[Account]) -> None:
        """Add to snapshots of one namespace, in one transaction, what they have not counted yet."""
        outcome: object = None
        for _ in range(_MOST_TRIES):
            operations = await self._additions(accounts, some)
            if not operations:
                return
            outcome = await self._scope.table.transact(operations, f"usage-{next(self._scope.client.nonces)}")
            if isinstance(outcome, Committed):
                return
            if isinstance(outcome, Unavailable):
                raise RateLimiterUnavailable(outcome.cause)
        raise RateLimiterUnavailable(TimeoutError(f"others kept counting the same usage: {outcome}"))

    async def _additions(self, accounts: Accounts, some: Sequence[Account]) -> list[Operation]:
        """Read what snapshots have counted, and return what is to be added to them; of a purged namespace nothing."""
        snapshots = [usage_item.snapshot_key(*account) for account in some]
        registered = namespace_item.reverse_key(some[0].bucket.namespace_id)
        first, *items = await self._scope.table.batch_get([registered, *snapshots], consistent=True)
        namespace = None if first is None else namespace_item.from_item(first)
        if namespace is None or namespace.status is NamespaceStatus.PURGING:
            return []
        operations: list[Operation] = []
        for account, item in zip(some, items, strict=True):
            counted = usage_item.last_counted(item or {}, account.bucket.shard_id)
            usage = addition(account, accounts[account], counted)
            if usage is not None:
                operations.append(usage_item.add(usage, counted, _expiry_s(account.window)))
        return [namespace_item.require_unchanged(namespace), *operations] if operations else []

    def _query(self, wanted: UsageFilter, limit: int, start: Mapping[str, str] | None) -> Query:
        namespace_id, resource = self._scope.namespace_id, wanted.resource
        if wanted.entity_id is None and resource is not None:
            pk = keys.gsi2_pk_resource(namespace_id, resource)
            return Query(pk, "GSI2", prefix=keys.GSI_USAGE_PREFIX, limit=limit, start=start)
        prefix = keys.SK_USAGE_PREFIX if resource is None else keys.sk_usage(resource, "")
        return Query(keys.pk_entity(namespace_id, str(wanted.entity_id)), prefix=prefix, limit=limit, start=start)

    async def _whole(self, wanted: UsageFilter, page: Page) -> list[Item]:
        """Return those items of a page that are wanted, read if the page has only their keys."""
        chosen = [item for item in page.items if _is_wanted(wanted, item)]
        if wanted.entity_id is not None or not chosen:
            return chosen
        items = await self._scope.table.batch_get([Key(item["PK"], item["SK"]) for item in chosen])
        return [item for item in items if item is not None]


def _is_wanted(wanted: UsageFilter, item: Item) -> bool:
    parsed = keys.parse_usage_sk(item["SK"])
    window = None if parsed is None else window_of_key(parsed.window_key)
    return window is not None and wanted.admits(window)


def _groups(accounts: Accounts) -> Iterator[list[Account]]:
    """Part accounts so that those of a part are of one namespace and no two of one snapshot."""

    def owner(account: Account) -> tuple[str, int]:
        return account.bucket.namespace_id, account.bucket.shard_id

    for _, same in groupby(sorted(accounts, key=owner), owner):
        alike = list(same)
        for start in range(0, len(alike), _SNAPSHOTS_AT_ONCE):
            yield alike[start : start + _SNAPSHOTS_AT_ONCE]


def _expiry_s(window: Window) -> int:
    return ms_from_iso(window.end) // 1000 + _RETENTION_S
