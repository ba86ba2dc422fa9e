"""Items in dictionaries, for one process. The table's and the indexes' orders are kept sorted.

One lock guards everything; nothing under it waits. Items written to in this hour are kept apart from the idle ones, so
that the first write to a bucket in an hour is noticed at no cost to the others.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from zae_limiter.core.errors import RepositoryClosedError
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Item, Missing, Refused
from zae_limiter.core.status import TableSize
from zae_limiter.schema.operations import Change, Check, Key, Operation, Page, Query, Write
from zae_limiter.tables.blocking import Swept
from zae_limiter.tables.evaluate import NO_ITEM, Place, apply, check_transaction, moves, places
from zae_limiter.tables.paging import Entry, keys_of, page_of, range_of, start_of
from zae_limiter.tables.totals import BUCKET, HOUR_MS, RETENTION_HOURS, Opened, added, change, logged

_LONGEST_LOG = 100_000
_COMMITTED = Committed()


class _Closed:
    """The lock of a closed table; acquiring it raises."""

    def acquire(self) -> bool:
        """Refuse.

        Raises:
            RepositoryClosedError: Always.
        """
        raise RepositoryClosedError("memory://")

    def release(self) -> None:
        """Do nothing: nobody has acquired it."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class MemoryTable:
    """A table in this process's memory, safe for threads."""

    upkeep_waits = False

    def __init__(self) -> None:
        self._lock: threading.Lock | _Closed = threading.Lock()
        self._items: dict[Key, dict[str, Any]] = {}
        self._idle: dict[Key, dict[str, Any]] = {}
        self._orders: dict[tuple[str, str], list[Entry]] = {}
        # The keys in the order in which the sweep comes round to them.
        self._rounds: OrderedDict[Key, None] = OrderedDict()
        self._unswept = 0
        self._hour = 0
        self._opened: OrderedDict[Key, Opened] = OrderedDict()
        # Of usage that nobody ever asks for the oldest goes, so that it does not fill the memory.
        self._log: deque[Change] = deque(maxlen=_LONGEST_LOG)
        self._sequence = 0

    @property
    def hour(self) -> int:
        """The hour, counted from the epoch, that writes fall into."""
        return self._hour

    @hour.setter
    def hour(self, hour: int) -> None:
        with self._lock:
            if hour != self._hour:
                self._hour = hour
                self._idle.update(self._items)
                self._items.clear()

    def get(self, key: Key) -> Item | None:
        """The item, None if there is none."""
        with self._lock:
            return self._find(key) or None

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """The items in the order of their keys, None for each that is absent, all as of one moment."""
        with self._lock:
            return [self._find(key) or None for key in keys]

    def query(self, query: Query) -> Page:
        """One page of a partition of the table or of an index."""
        wanted = range_of(query)
        start = start_of(query)
        most = None if query.limit is None else query.limit + 1
        with self._lock:
            order = self._orders.get((query.index or "", query.pk), [])
            low = bisect_left(order, (wanted.low,))
            high = len(order)
            if wanted.below:
                high = bisect_left(order, (wanted.below,))
            elif wanted.high:
                high = bisect_left(order, (wanted.high + "\0",))
            if query.descending:
                high = high if start is None else min(high, bisect_left(order, start))
                entries = order[max(low, high - most) if most else low : high][::-1]
            else:
                low = low if start is None else max(low, bisect_right(order, start))
                entries = order[low : min(high, low + most) if most else high]
            if query.index is None:
                return page_of(query, entries, [self._find(Key(pk, sk)) for _, pk, sk in entries])
        return page_of(query, entries, [keys_of(query, entry) for entry in entries])

    def write(self, operation: Write) -> Applied | Refused | Missing:
        """Carry out one operation, if its conditions hold."""
        key, items, lock = operation.key, self._items, self._lock
        # Twice as fast as a with statement, and this is where every acquire passes.
        lock.acquire()
        try:
            written = items.get(key)
            new = apply(operation, written or self._find(key))
            if type(new) is not dict:
                return new  # type: ignore[return-value] # mypy does not narrow on type()
            # A limit is dropped with all its fields: who removes no more than one attribute drops no total.
            if not moves(operation) and written and len(operation.remove) < 2:  # type: ignore[union-attr] # an Update
                items[key] = new
            else:
                self._replace(key, new, places(new))
            return Applied(new)
        finally:
            lock.release()

    def transact(self, operations: Sequence[Operation]) -> Committed | Cancelled:
        """Carry out all operations, or none."""
        operations = tuple(operations)
        check_transaction(operations)
        with self._lock:
            results = [apply(operation, self._find(operation.key)) for operation in operations]
            if any(type(result) is not dict for result in results):
                return Cancelled(tuple(None if isinstance(result, dict) else result for result in results))
            planned = []
            for operation, new in zip(operations, results, strict=True):
                if type(operation) is not Check and isinstance(new, dict):
                    moves(operation)
                    planned.append((operation.key, new, places(new)))
            for key, new, stands in planned:
                self._replace(key, new, stands)
        return _COMMITTED

    def batch_delete(self, keys: Iterable[Key]) -> None:
        """Remove items, without a condition and not as one transaction."""
        for key in keys:
            with self._lock:
                self._replace(key, NO_ITEM, ())

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Look at the next ``limit`` items, and remove those whose ``ttl`` is past."""
        removed = 0
        with self._lock:
            self._unswept = self._unswept or len(self._rounds)
            looked_at = min(limit, len(self._rounds))
            for _ in range(looked_at):
                key = next(iter(self._rounds))
                expires_s = self._find(key).get("ttl")
                if type(expires_s) is int and expires_s < now_s:
                    self._replace(key, NO_ITEM, ())
                    removed += 1
                else:
                    self._rounds.move_to_end(key)
            while self._log and self._log[0].at_ms < now_s * 1000 - RETENTION_HOURS * HOUR_MS:
                self._log.popleft()
            self._unswept = max(0, self._unswept - looked_at) if self._rounds else 0
            return Swept(removed, not self._unswept)

    def log_open(self, start: int, limit: int) -> int | None:
        """Log what the next ``limit`` buckets have used so far; return how many are left, None if none are.

        ``start`` is 0 at first, then what the call before returned. Buckets take turns: each that was open at first has
        had one by the end, also if other calls come in between.
        """
        with self._lock:
            left = start or len(self._opened)
            for _ in range(min(limit, left, len(self._opened))):
                key, opened = next(iter(self._opened.items()))
                item = self._find(key)
                if item is not opened.totals:
                    self._append(key, opened.hour, added(opened.totals, item))
                    self._opened[key] = Opened(opened.hour, item)
                self._opened.move_to_end(key)
            return left - limit if left > limit else None

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next of the logged changes after a sequence, at most so many, in their order."""
        with self._lock:
            return list(islice((one for one in self._log if one.sequence > after), limit))

    def trim(self, up_to: int) -> None:
        """Forget the logged changes up to a sequence, included."""
        with self._lock:
            while self._log and self._log[0].sequence <= up_to:
                self._log.popleft()

    def size(self) -> TableSize:
        """How many items there are."""
        with self._lock:
            return TableSize(len(self._rounds), None)

    def wants_checkpoint(self) -> bool:
        """Say that there is nothing to bring to a disk."""
        return False

    def is_crowded(self) -> bool:
        """Say that writers never have to pause."""
        return False

    def held_back_bytes(self) -> None:
        """Return None: there is no log."""

    def checkpoint(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Forget every item; whoever asks for one later is told so."""
        lock = self._lock
        if isinstance(lock, _Closed):
            return
        with lock:
            self._lock = _Closed()
            self._items.clear()
            self._idle.clear()
            self._orders.clear()
            self._rounds.clear()
            self._opened.clear()
            self._log.clear()

    def _find(self, key: Key) -> dict[str, Any]:
        """The item of a key, empty if there is none."""
        return self._items.get(key) or self._idle.get(key, NO_ITEM)

    def _replace(self, key: Key, new: dict[str, Any], stands: tuple[Place, ...]) -> None:
        """Put ``new`` in the place of the item of that key, in every order; nothing in here can fail halfway."""
        old = self._find(key)
        self._count(key, old, new)
        stood = places(old)
        for place in stood:
            if place not in stands:
                self._leave(place, key)
        for place in stands:
            if place not in stood:
                self._enter(place, key)
        self._idle.pop(key, None)
        if new:
            key = Key(*key)
            self._items[key] = new
            self._rounds.setdefault(key)
        else:
            self._items.pop(key, None)
            self._rounds.pop(key, None)

    def _count(self, key: Key, old: dict[str, Any], new: dict[str, Any]) -> None:
        """Log what a bucket has used, if this write ends its hour or the bucket itself."""
        found = logged(self._opened.get(key), old, new, self._hour) if key[1] == BUCKET else None
        if found is None:
            return
        self._append(key, found.hour, found.added)
        if found.opened is None:
            del self._opened[key]
        else:
            self._opened[Key(*key)] = found.opened

    def _append(self, key: Key, hour: int, amounts: dict[str, int]) -> None:
        """Log a difference, if there is one."""
        if amounts:
            self._sequence += 1
            self._log.append(change(self._sequence, key, hour, amounts))

    def _enter(self, place: Place, key: Key) -> None:
        """Give an item its place in an order."""
        insort(self._orders.setdefault((place.order, place.partition), []), (place.sort, *key))

    def _leave(self, place: Place, key: Key) -> None:
        """Take an item's place in an order away."""
        order = self._orders[place.order, place.partition]
        del order[bisect_left(order, (place.sort, *key))]
        if not order:
            del self._orders[place.order, place.partition]
