"""Items in dictionaries, for one process. The table's and the indexes' orders are kept sorted.

One lock guards everything; nothing under it waits. Items written to in this hour are kept apart from the idle ones, so
that the first write to a bucket in an hour is noticed at no cost to the others.

A signal handler may raise between any two steps. So a change of several parts is planned first, and a plan that was
interrupted is carried out by the next caller. Each step of it may be carried out again.
"""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from zae_limiter.core.errors import RepositoryClosedError
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Item, Missing, Refused
from zae_limiter.core.status import TableSize
from zae_limiter.process import renew_in_copies
from zae_limiter.schema.operations import Change, Check, Key, Operation, Page, Query, Update, Write
from zae_limiter.tables.blocking import Swept
from zae_limiter.tables.evaluate import NO_ITEM, IndexEntry, apply, check_transaction, keeps_place, moves, places
from zae_limiter.tables.paging import Entry, keys_of, page_of, range_of, start_of
from zae_limiter.tables.parts import LAST_PART, Parts, next_turns
from zae_limiter.tables.totals import BUCKET, HOUR_MS, RETENTION_HOURS, Logged, Opened, added, change, logged

_LONGEST_LOG = 100_000
_SHORT_ORDER = 8
_COMMITTED = Committed()


class _ClosedLock:
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


_E = TypeVar("_E", str, Entry)

_PlainKey = tuple[str, str]
"""The two parts of a key, equal to the key."""


class _PlannedWrite(NamedTuple):
    """An item to be stored under a key, None to leave it as it is, with what changes in the orders and in the log."""

    key: _PlainKey
    new: dict[str, Any] | None
    leaves: tuple[IndexEntry, ...]
    enters: tuple[IndexEntry, ...]
    logged: Logged | None
    change: Change | None


class MemoryTable:
    """A table in this process's memory, safe for threads."""

    upkeep_waits = False

    def __init__(self) -> None:
        # Its release raises in a thread that does not hold it: so a caller that was interrupted knows whether it does.
        self._lock: threading.RLock | _ClosedLock = threading.RLock()
        # Keys are plain tuples, and short orders are tuples: the garbage collector does not visit them. Each object
        # that is kept brings the next collection nearer, so the table's own orders have sort keys and no entries.
        self._items = Parts(dict[_PlainKey, dict[str, Any]])
        self._item_parts = self._items.parts
        self._idle = Parts(dict[_PlainKey, dict[str, Any]])
        self._sort_keys = Parts(dict[str, list[str] | tuple[str, ...]])
        self._orders = Parts(dict[tuple[str, str], list[Entry] | tuple[Entry, ...]])
        # The keys in the order in which the sweep comes round to them, each with itself: the one object that every
        # dictionary has as this key.
        self._rounds = Parts(OrderedDict[_PlainKey, _PlainKey])
        self._swept_to = 0
        self._hour = 0
        # What each bucket was opened with, and in which hour.
        self._opened = Parts(OrderedDict[_PlainKey, Item])
        self._opened_in = Parts(dict[_PlainKey, int])
        # Of usage that nobody ever asks for the oldest goes, so that it does not fill the memory.
        self._log: deque[Change] = deque(maxlen=_LONGEST_LOG)
        self._sequence = 0
        # What an interrupted caller has left to do. The keys in it are not in ``_items``.
        self._unfinished: tuple[_PlannedWrite, ...] = ()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Have a lock that no thread of the parent holds, in a forked child. Its items are a copy of the parent's."""
        if not restored and not isinstance(self._lock, _ClosedLock):
            self._lock = threading.RLock()

    @property
    def hour(self) -> int:
        """The hour, counted from the epoch, that writes fall into."""
        return self._hour

    @hour.setter
    def hour(self, hour: int) -> None:
        with self._lock:
            if hour != self._hour:
                self._finish()
                for idle, items in zip(self._idle.parts, self._items.parts, strict=True):
                    idle.update(items)
                    items.clear()
                self._hour = hour

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
        before = wanted.below or (wanted.high and wanted.high + "\0")
        with self._lock:
            self._finish()
            if query.index is None:
                sort_keys = self._sort_keys.of(query.pk).get(query.pk, ())
                found = _cut(query, sort_keys, wanted.low, before or None, start and start[0])
                entries: Sequence[Entry] = [(sk, query.pk, sk) for sk in found]
                return page_of(query, entries, [self._find((query.pk, sk)) for sk in found])
            name = (query.index, query.pk)
            order = self._orders.of(name).get(name, ())
            entries = _cut(query, order, (wanted.low,), (before,) if before else None, start)
        return page_of(query, entries, [keys_of(query, entry) for entry in entries])

    def write(self, operation: Write) -> Applied | Refused | Missing:
        """Carry out one operation, if its conditions hold."""
        key, lock = operation.key, self._lock
        items = self._item_parts[hash(key) & LAST_PART]
        # Faster than a with statement, and every acquire comes through here. An interrupt may strike as soon as the
        # lock is acquired, so that is inside the try statement.
        try:
            lock.acquire()
            written = items.get(key)
            outcome: Applied | Refused | Missing
            new = apply(operation, written or self._find(key))
            if type(new) is not dict:
                outcome = new  # type: ignore[assignment] # mypy does not narrow on type()
            else:
                outcome = Applied(new)
                # What ``moves`` says of an update that removes nothing, without the call.
                stays = type(operation) is Update and not operation.remove and keeps_place(operation.set)
                # A limit is dropped with all its fields: an update that removes one attribute drops no total.
                if (not stays and (moves(operation) or len(operation.remove) > 1)) or not written:  # type: ignore[union-attr] # an Update
                    self._carry_out((self._plan(key, new, places(new)),))
                # A signal handler of this thread may have written meanwhile, for the lock is its own.
                elif items.get(key) is written:
                    items[key] = new
                else:
                    outcome = self.write(operation)
        except BaseException:
            try:  # noqa: SIM105 - a context manager could be interrupted before the lock is released
                lock.release()
            except RuntimeError:
                pass
            raise
        lock.release()
        return outcome

    def transact(self, operations: Sequence[Operation]) -> Committed | Cancelled:
        """Carry out all operations, or none."""
        operations = tuple(operations)
        check_transaction(operations)
        with self._lock:
            results = [apply(operation, self._find(operation.key)) for operation in operations]
            if any(type(result) is not dict for result in results):
                return Cancelled(tuple(None if isinstance(result, dict) else result for result in results))
            planned: list[_PlannedWrite] = []
            for operation, new in zip(operations, results, strict=True):
                if type(operation) is not Check and isinstance(new, dict):
                    moves(operation)
                    planned.append(self._plan(operation.key, new, places(new), planned))
            self._carry_out(tuple(planned))
        return _COMMITTED

    def batch_delete(self, keys: Iterable[Key]) -> None:
        """Remove items, without a condition and not as one transaction."""
        for key in keys:
            with self._lock:
                self._carry_out((self._plan(key, NO_ITEM, ()),))

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Look at the next ``limit`` items, and remove those whose ``ttl`` is past."""
        removed = 0
        with self._lock:
            self._finish()
            turns, after = next_turns(self._rounds.parts, self._swept_to, limit)
            for part, count in turns:
                for _ in range(count):
                    key = next(iter(part))
                    expires_s = self._find(key).get("ttl")
                    if type(expires_s) is int and expires_s < now_s:
                        self._carry_out((self._plan(key, NO_ITEM, ()),))
                        removed += 1
                    else:
                        part.move_to_end(key)
            self._swept_to = after or 0
            while self._log and self._log[0].at_ms < now_s * 1000 - RETENTION_HOURS * HOUR_MS:
                self._log.popleft()
            return Swept(removed, after is None)

    def log_open(self, start: int, limit: int) -> int | None:
        """Log what the next ``limit`` buckets have used so far; return where to go on, None after the last.

        ``start`` is 0 at first, then what the call before returned. Buckets take turns: each that was open at first has
        had one by the end, also if other calls come in between.
        """
        with self._lock:
            self._finish()
            turns, after = next_turns(self._opened.parts, start, limit)
            for part, count in turns:
                for _ in range(count):
                    key, totals = next(iter(part.items()))
                    item = self._find(key)
                    if item is not totals:
                        hour = self._opened_in.of(key)[key]
                        found = Logged(hour, added(totals, item), Opened(hour, item))
                        self._carry_out((_PlannedWrite(key, None, (), (), found, self._change(key, found)),))
                    part.move_to_end(key)
            return after

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next of the logged changes after a sequence, at most so many, in their order."""
        with self._lock:
            self._finish()
            return list(islice((one for one in self._log if one.sequence > after), limit))

    def trim(self, up_to: int) -> None:
        """Forget the logged changes up to a sequence, included."""
        with self._lock:
            self._finish()
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

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Forget every item; whoever asks for one later is told so."""
        lock = self._lock
        if isinstance(lock, _ClosedLock):
            return
        with lock:
            self._lock = _ClosedLock()
            self._items.clear()
            self._idle.clear()
            self._sort_keys.clear()
            self._orders.clear()
            self._rounds.clear()
            self._opened.clear()
            self._opened_in.clear()
            self._log.clear()

    def _find(self, key: _PlainKey) -> dict[str, Any]:
        """The item of a key, empty if there is none."""
        items = self._items.of(key)
        found = items.get(key)
        if found:
            return found
        self._finish()
        return items.get(key) or self._idle.of(key).get(key, NO_ITEM)

    def _plan(
        self, key: _PlainKey, new: dict[str, Any], stands: tuple[IndexEntry, ...], before: Sequence[_PlannedWrite] = ()
    ) -> _PlannedWrite:
        """Plan to put ``new`` in the place of the item of that key, in every order; ``before`` is planned already."""
        old = self._find(key)
        found = logged(self._opening(key), old, new, self._hour) if key[1] == BUCKET else None
        stood = places(old)
        leaves = tuple(place for place in stood if place not in stands)
        enters = tuple(place for place in stands if place not in stood)
        noted = sum(step.change is not None for step in before)
        # A new tuple for an old one would wait for the garbage collector, which does not see that there are more: as
        # many are freed. A young collection of 180,000 takes 120 ms.
        same = self._rounds.of(key).get(key) or (key[0], key[1])
        return _PlannedWrite(
            same, new, leaves, enters, found, None if found is None else self._change(key, found, noted)
        )

    def _opening(self, key: _PlainKey) -> Opened | None:
        """Return what a bucket was opened with, None if it was not."""
        totals = self._opened.of(key).get(key)
        return None if totals is None else Opened(self._opened_in.of(key)[key], totals)

    def _change(self, key: _PlainKey, found: Logged, noted: int = 0) -> Change | None:
        """Return what is to be logged, None if nothing was used; ``noted`` changes are logged before it."""
        return change(self._sequence + noted + 1, Key(*key), found.hour, found.added) if found.added else None

    def _carry_out(self, steps: tuple[_PlannedWrite, ...]) -> None:
        """Carry out a plan. From the moment it is noted it will be, though the caller is interrupted."""
        for step in steps:
            items = self._items.of(step.key)
            # Only a key that is not found there makes a writer look for what is unfinished.
            if step.key in items:
                self._idle.of(step.key)[step.key] = items[step.key]
                del items[step.key]
        self._unfinished = steps
        self._finish()

    def _finish(self) -> None:
        """Carry out what is noted, unless there is nothing."""
        if self._unfinished:
            for step in self._unfinished:
                self._carry_out_step(step)
            self._unfinished = ()

    def _carry_out_step(self, step: _PlannedWrite) -> None:
        """Carry out a step; doing it again changes nothing."""
        key, new, leaves, enters, found, noted = step
        for place in leaves:
            self._leave(place, key)
        for place in enters:
            self._enter(place, key)
        if noted is not None:
            if (self._log[-1].sequence if self._log else 0) < noted.sequence:
                self._log.append(noted)
            self._sequence = noted.sequence
        if found is not None and found.opened is None:
            self._opened.of(key).pop(key, None)
            self._opened_in.of(key).pop(key, None)
        elif found is not None and found.opened is not None:
            self._opened_in.of(key)[key], self._opened.of(key)[key] = found.opened
        if new:
            self._rounds.of(key).setdefault(key, key)
            self._items.of(key)[key] = new
            self._idle.of(key).pop(key, None)
        elif new is not None:
            self._items.of(key).pop(key, None)
            self._idle.of(key).pop(key, None)
            self._rounds.of(key).pop(key, None)

    def _enter(self, place: IndexEntry, key: _PlainKey) -> None:
        """Give an item its place in an order."""
        orders, name, entry = self._order_of(place, key)
        order = orders.get(name, ())
        index = bisect_left(order, entry)
        if index < len(order) and order[index] == entry:
            return
        if isinstance(order, list):
            order.insert(index, entry)
        else:
            grown = (*order[:index], entry, *order[index:])
            orders[name] = grown if len(grown) <= _SHORT_ORDER else list(grown)

    def _leave(self, place: IndexEntry, key: _PlainKey) -> None:
        """Take an item out of an order."""
        orders, name, entry = self._order_of(place, key)
        order = orders.get(name, ())
        index = bisect_left(order, entry)
        if index < len(order) and order[index] == entry:
            if isinstance(order, list):
                del order[index]
            else:
                order = orders[name] = (*order[:index], *order[index + 1 :])
        if not order:
            orders.pop(name, None)

    def _order_of(self, place: IndexEntry, key: _PlainKey) -> tuple[dict[Any, Any], Any, Any]:
        """Return the dictionary that an order is in, the name it has there, and what stands in it for an item."""
        index, partition, sort = place
        if not index:
            return self._sort_keys.of(partition), partition, sort
        name = (index, partition)
        return self._orders.of(name), name, (sort, *key)


def _cut(query: Query, order: Sequence[_E], first: Any, end: Any, start: Any) -> Sequence[_E]:
    """Return what a query reads of an order, and one more than its limit if there is more.

    It reads from ``first`` on, and before ``end`` unless that is None. A next page goes on after ``start``.
    """
    most = None if query.limit is None else query.limit + 1
    low = bisect_left(order, first)
    high = len(order) if end is None else bisect_left(order, end)
    if query.descending:
        high = high if start is None else min(high, bisect_left(order, start))
        return order[max(low, high - most) if most else low : high][::-1]
    low = low if start is None else max(low, bisect_right(order, start))
    return order[low : min(high, low + most) if most else high]
