"""Buckets of the old layout, found through the index of their namespace and moved one by one.

Each move is one transaction, so a bucket is in the one layout or in the other, wherever a run was interrupted; what is
moved is found no more, so a run that is repeated goes on where the last one ended.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from dataclasses import dataclass

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.backoff import Pauses
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Client
from zae_limiter.core.errors import CorruptItemError, RateLimiterUnavailable
from zae_limiter.core.outcome import Committed, Item, Unavailable
from zae_limiter.schema import fields, keys, old_bucket_item
from zae_limiter.schema.operations import Check, ItemExists, Key, Operation, Query

_KEYS_PER_PAGE = 500
_ITEMS_AT_ONCE = 100
_EMPTY_LOOKS = 2
_MOST_TRIES = 16
_PAUSES = Pauses(0.001, 1.0, full_jitter=True)


@dataclass(frozen=True, slots=True)
class MigrationCount:
    """What became of the old buckets."""

    moved: int = 0
    superseded: int = 0
    damaged: tuple[str, ...] = ()

    def __add__(self, other: "MigrationCount") -> "MigrationCount":
        """Return both together; an item that was found damaged twice is one."""
        damaged = tuple(dict.fromkeys(self.damaged + other.damaged))
        return MigrationCount(self.moved + other.moved, self.superseded + other.superseded, damaged)

    @property
    def changed(self) -> int:
        """How many are no longer where they were."""
        return self.moved + self.superseded


class OldBuckets:
    """Moves the old buckets of namespaces, or counts them."""

    def __init__(self, client: Client, *, dry_run: bool) -> None:
        self._client = client
        self._table = client.table
        self._dry_run = dry_run
        self._index = IndexReader(client.table)

    def move_all(self, namespace_ids: Sequence[str]) -> MigrationCount:
        """Move what is found, until nothing is found in two looks as far apart as an index may lag."""
        tally = MigrationCount()
        looks = 0
        while looks < _EMPTY_LOOKS:
            found = MigrationCount()
            for namespace_id in namespace_ids:
                found += self._move_found(namespace_id)
            tally += found
            if self._dry_run:
                return tally
            looks = 0 if found.changed else looks + 1
            if looks < _EMPTY_LOOKS and self._table.index_lag_s:
                runtime.sleep(self._table.index_lag_s)
        return tally

    def _move_found(self, namespace_id: str) -> MigrationCount:
        """Walk once through the entities of a namespace and move each bucket beside them."""
        tally = MigrationCount()
        beside = keys.pk_entity(namespace_id, "")
        query: Query | None = Query(keys.gsi4_pk(namespace_id), index="GSI4", prefix=beside, limit=_KEYS_PER_PAGE)
        while query is not None:
            page = self._index.page(query)
            found = [Key(item["PK"], item["SK"]) for item in page.items]
            old = [key for key in found if old_bucket_item.owner_of(key) is not None]
            for first in range(0, len(old), _ITEMS_AT_ONCE):
                some = old[first : first + _ITEMS_AT_ONCE]
                for item in self._table.batch_get(some, consistent=True):
                    tally += MigrationCount() if item is None else self._move(item)
            query = query.after(page)
        return tally

    def _move(self, item: Item) -> MigrationCount:
        """Move one bucket; one that is written to meanwhile is read and moved again."""
        seen: Item | None = item
        superseded = False
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_MOST_TRIES):
            if seen is None:
                # Somebody else has moved it.
                return MigrationCount()
            try:
                put, delete = old_bucket_item.moved(seen, self._multiplier, self._client.signature())
            except CorruptItemError as error:
                return MigrationCount(damaged=(error.location,))
            if self._dry_run:
                superseded = self._table.get(put.key, consistent=True) is not None
                return MigrationCount(superseded=1) if superseded else MigrationCount(moved=1)
            stays: Operation = Check(put.key, (ItemExists(),)) if superseded else put
            outcome = self._table.transact([delete, stays], f"migrate-{next(self._client.nonces)}")
            if isinstance(outcome, Committed):
                return MigrationCount(superseded=1) if superseded else MigrationCount(moved=1)
            if isinstance(outcome, Unavailable):
                raise RateLimiterUnavailable(outcome.cause)
            backoff.wait()
            seen, new = self._table.batch_get([delete.key, put.key], consistent=True)
            superseded = new is not None
        raise RateLimiterUnavailable(TimeoutError(f"others kept writing to the old bucket {fields.location(item)}"))

    @property
    def _multiplier(self) -> int:
        return self._client.settings.bucket_ttl_multiplier
