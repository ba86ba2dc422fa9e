"""A simulated DynamoDB table, as its server sees it. Each operation takes effect at one moment; latency is in port.py.

Items are kept by the embedded table in memory, so an operation does what ``tables.evaluate`` says. This module adds
what DynamoDB adds. A transaction holds its items between its two phases, and other writes to them meet a conflict. A
token makes a transaction safe to retry. Reads that are not consistent, and indexes, may lag. Expired items remain for a
while. A partition accepts a limited number of writes per second. Watchers receive every change, as one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tests.simulation.loop import Timeline
from tests.simulation.table import Partitions, Units
from tests.tables.memory_items import stored
from zae_limiter.core.outcome import (
    Applied,
    Cancelled,
    Committed,
    Conflict,
    Item,
    Throttled,
    TransactOutcome,
    Unavailable,
    WriteOutcome,
)
from zae_limiter.schema.operations import Check, Delete, Key, Operation, Page, Query, Update, Write
from zae_limiter.tables.evaluate import apply
from zae_limiter.tables.memory import MemoryTable

THROTTLED, CONTESTED = Throttled(partition=True), Throttled(contested=True)
CONFLICT = Conflict()
IN_PROGRESS = Unavailable(TimeoutError("TransactionInProgress: the first attempt is in flight"), ambiguous=True)

_STATE = "#STATE"
_ENOUGH_WRITES_PER_S = 1_000
"""No simulated load reaches this rate, so units are not counted."""


@dataclass(frozen=True, slots=True)
class Lags:
    """The longest delays, in seconds, of reads, indexes and expiry; ``stale`` is the share of reads that lag."""

    stale: float = 0.0
    stale_s: float = 0.2
    index_s: float = 0.5
    expired_s: float = 20.0
    hold_s: float = 0.01


class Change(NamedTuple):
    """What one step did to one item: before and after, None if the item does not exist."""

    key: Key
    old: Item | None
    new: Item | None
    operation: Operation | None


class Sent(NamedTuple):
    """The sender of a write, its time bounds when it decided, and whether it gets no answer."""

    process: str
    time_bounds: tuple[int, int]
    unanswered: bool


Watcher = Callable[[int, Sequence[Change], Sent], None]


class Server:
    """One table for all clients of a simulated fleet."""

    def __init__(self, timeline: Timeline, random: Random, partitions: Partitions, lags: Lags) -> None:
        self._timeline = timeline
        self._random = random
        self._lags = lags
        self._items = MemoryTable()
        self._writes = Units(partitions.writes_per_s, partitions.burst_s, partitions.overdraws)
        self._strict = partitions.writes_per_s < _ENOUGH_WRITES_PER_S
        # Items held by a transaction: until when, and what a read sees meanwhile.
        self._held: dict[Key, tuple[float, Item | None]] = {}
        self._committed: dict[str, bool] = {}
        self._before: dict[Key, tuple[float, Item | None]] = {}
        self._made: dict[Key, float] = {}
        self._expiring: set[Key] = set()
        self.watchers: list[Watcher] = []
        self.expiry_watchers: list[Callable[[int, Change], None]] = []
        self.throttles = 0
        self.conflicts = 0
        self.expiries = 0
        self._ahead_ms = 0

    def step(self, ahead_ms: int) -> None:
        """Set the server's clock forward."""
        self._ahead_ms += ahead_ms

    def now_ms(self) -> int:
        """Return the server's time of day, which is the true time."""
        return self._timeline.now_ms() + self._ahead_ms

    def date_s(self) -> int:
        """Return the second in which an answer is sent."""
        return self.now_ms() // 1000

    def items(self) -> list[Item]:
        """Return every stored item, for checks."""
        return list(stored(self._items).values())

    def get(self, key: Key) -> Item | None:
        """Return one stored item, for checks."""
        return self._items.get(key)

    def read(self, keys: Sequence[Key], *, consistent: bool) -> list[Item | None]:
        """Return items as a reader sees them."""
        items = self._items.batch_get(keys)
        now_s, lags = self._timeline.now_s, self._lags
        for place, key in enumerate(keys):
            held = self._held.get(key)
            if held is not None and now_s < held[0]:
                items[place] = held[1]
            elif not consistent and lags.stale and key in self._before:
                changed_s, old = self._before[key]
                if now_s - changed_s < lags.stale_s and self._random.random() < lags.stale:
                    items[place] = old
        return items

    def query(self, query: Query) -> Page:
        """Return a page; an index may not yet contain the newest items."""
        page = self._items.query(query)
        if query.index is None or not self._lags.stale:
            return page
        since_s = self._timeline.now_s - self._lags.index_s
        known = [item for item in page.items if self._made.get(Key(item["PK"], item["SK"]), 0.0) < since_s]
        return Page(known, page.next)

    def write(self, operation: Write, sent: Sent) -> WriteOutcome:
        """Carry out one operation, if its conditions hold and its partition accepts it."""
        key = operation.key
        if self._busy(key):
            self.conflicts += 1
            return CONTESTED
        if self._strict and key.sk == _STATE and not self._writes.spend([(key.pk, 1)], self._timeline.now_s):
            self.throttles += 1
            return THROTTLED
        old = self._items.get(key)
        outcome = self._items.write(operation)
        if outcome.__class__ is Applied:
            new = outcome.new  # type: ignore[union-attr] # mypy does not narrow on __class__
            self._changed([Change(key, old, new or None, operation)], sent)
        return outcome

    def prepare(self, operations: Sequence[Operation], token: str) -> TransactOutcome | None:
        """Begin a transaction, and hold its items. Return None, or the outcome if it cannot be committed."""
        if token in self._committed:
            return Committed() if self._committed[token] else IN_PROGRESS
        busy = [self._busy(one.key) for one in operations]
        # Conditions on items held by another transaction are not evaluated; a failed condition wins over a conflict.
        results = [
            {} if held else apply(one, self._items.get(one.key) or {})
            for one, held in zip(operations, busy, strict=True)
        ]
        if any(result.__class__ is not dict for result in results):
            return Cancelled(tuple(None if isinstance(result, dict) else result for result in results))
        if any(busy):
            self.conflicts += 1
            return CONFLICT
        if self._strict:
            costs = [(one.key.pk, 2.0) for one in operations if one.key.sk == _STATE]
            if not self._writes.spend(costs, self._timeline.now_s):
                self.throttles += 1
                return THROTTLED
        self._committed[token] = False
        for one in operations:
            self._held[one.key] = (float("inf"), self._items.get(one.key))
        return None

    def commit(self, operations: Sequence[Operation], token: str, sent: Sent) -> Committed:
        """End a transaction. A read at the same time may see one item before and another after it."""
        olds = [self._items.get(one.key) for one in operations]
        outcome = self._items.transact(operations)
        assert isinstance(outcome, Committed), "items held by a transaction do not change"
        self._committed[token] = True
        for place, one in enumerate(operations):
            until_s = self._timeline.now_s + self._random.random() * self._lags.hold_s * place
            self._held[one.key] = (until_s, olds[place])
        written = [
            Change(one.key, old, self._items.get(one.key), one)
            for one, old in zip(operations, olds, strict=True)
            if not isinstance(one, Check)
        ]
        self._changed(written, sent)
        return outcome

    def delete(self, keys: Sequence[Key], sent: Sent) -> None:
        """Delete items."""
        gone = [Change(key, self._items.get(key), None, Delete(key)) for key in keys]
        self._items.batch_delete(keys)
        self._changed([change for change in gone if change.old is not None], sent)

    def _busy(self, key: Key) -> bool:
        held = self._held.get(key)
        if held is None:
            return False
        if self._timeline.now_s < held[0]:
            return True
        del self._held[key]
        return False

    def _changed(self, changes: list[Change], sent: Sent) -> None:
        now_s = self._timeline.now_s
        for change in changes:
            key, new = change.key, change.new
            self._before[key] = (now_s, change.old)
            if change.old is None:
                self._made[key] = now_s
            if new is not None and "ttl" in new and key not in self._expiring and key.sk == _STATE:
                self._expiring.add(key)
                self._expire_at(key, new["ttl"])
        now_ms = self.now_ms()
        for watch in self.watchers:
            watch(now_ms, changes, sent)

    def _expire_at(self, key: Key, ttl_s: int) -> None:
        # Usually soon, sometimes long after.
        late_s = self._random.random() ** 3 * self._lags.expired_s
        due_s = ttl_s - self.now_ms() / 1000 + late_s
        self._timeline.network.call_later(max(0.001, due_s), self._expire, key)

    def _expire(self, key: Key) -> None:
        """Delete an item whose expiry time has passed, unless it was moved since."""
        item = self._items.get(key)
        self._expiring.discard(key)
        if item is None or type(item.get("ttl")) is not int:
            return
        if item["ttl"] >= self.now_ms() // 1000 or self._busy(key):
            self._expiring.add(key)
            self._expire_at(key, item["ttl"])
            return
        self._items.batch_delete([key])
        self.expiries += 1
        self._before[key] = (self._timeline.now_s, item)
        for watch in self.expiry_watchers:
            watch(self.now_ms(), Change(key, item, None, None))


def nonce_of(operation: Operation) -> Any:
    """Return the number that identifies a bucket write, or None if it is another write."""
    if isinstance(operation, Update):
        return operation.set.get("op")
    item = getattr(operation, "item", None)
    return None if item is None else item.get("op")
