"""A table in dictionaries, for one process, with sorted lists for the table and its indexes.

One lock guards everything, and no code that holds it waits. Items that were written in the current hour are in another
dictionary than idle ones. So the first write to a bucket in an hour is detected without cost for the other writes.

A signal handler may raise between any two steps. So a change with several steps is planned first. If it is interrupted,
the next caller completes the plan. Every step can be repeated without harm.
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
from zae_limiter.schema.direct_writes import BucketTake
from zae_limiter.schema.operations import Change, Check, DirectUpdate, Key, Operation, Page, Query, Update, Write
from zae_limiter.tables.blocking import Swept
from zae_limiter.tables.evaluate import NO_ITEM, IndexEntry, apply, check_transaction, keeps_place, moves, places
from zae_limiter.tables.paging import Entry, keys_of, page_of, range_of, start_of
from zae_limiter.tables.parts import LAST_PART, Parts, next_turns
from zae_limiter.tables.totals import (
    BUCKET,
    HOUR_MS,
    RETENTION_HOURS,
    Logged,
    Opened,
    added,
    change,
    in_use_of,
    logged,
    open_at,
    raised,
    takes_slots,
)

_LONGEST_LOG = 100_000
_SHORT_ORDER = 8
_COMMITTED = Committed()
_new_tuple = tuple.__new__


class _ClosedLock:
    """The lock of a closed table; acquiring it raises."""

    def acquire(self) -> bool:
        """Raise RepositoryClosedError."""
        raise RepositoryClosedError("memory://")

    def release(self) -> None:
        """Do nothing: this lock is never acquired."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_E = TypeVar("_E", str, Entry)

_PlainKey = tuple[str, str]
"""The two parts of a key; the tuple is equal to the key."""


class _PlannedWrite(NamedTuple):
    """An item to store under a key, with the changes of index entries and of the log.

    ``new`` is empty if the item is deleted, and None if it stays as it is.
    """

    key: _PlainKey
    new: dict[str, Any] | None
    removed_entries: tuple[IndexEntry, ...]
    added_entries: tuple[IndexEntry, ...]
    logged: Logged | None
    change: Change | None


class MemoryTable:
    """A thread-safe table in the memory of this process."""

    upkeep_waits = False

    def __init__(self) -> None:
        # An RLock: its release raises in a thread that does not hold it. An interrupted caller may not know if it does.
        self._lock: threading.RLock | _ClosedLock = threading.RLock()
        # Keys and short orders are plain tuples of strings: the garbage collector stops visiting these. Each object
        # that is kept brings the next collection nearer, so the table's own orders have sort keys and no entries.
        self._items = Parts(dict[_PlainKey, dict[str, Any]])
        self._item_parts = self._items.parts
        self._idle = Parts(dict[_PlainKey, dict[str, Any]])
        self._sort_keys = Parts(dict[str, list[str] | tuple[str, ...]])
        self._orders = Parts(dict[tuple[str, str], list[Entry] | tuple[Entry, ...]])
        # The keys in the order of the sweep. The value is the key itself: all dictionaries use this one object.
        self._rounds = Parts(OrderedDict[_PlainKey, _PlainKey])
        self._swept_to = 0
        self._hour = 0
        # The totals with which each bucket was opened, and the hour.
        self._opened = Parts(OrderedDict[_PlainKey, Item])
        self._opened_in = Parts(dict[_PlainKey, int])
        # Bounded: if nothing reads the log, the oldest changes are dropped, and memory does not fill up.
        self._log: deque[Change] = deque(maxlen=_LONGEST_LOG)
        self._sequence = 0
        # The plan of an interrupted caller. Its keys are not in `_items`, so a reader of `_items` needs no check.
        self._unfinished: tuple[_PlannedWrite, ...] = ()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Replace the lock in a forked child, where a thread of the parent may hold it forever."""
        if not restored and not isinstance(self._lock, _ClosedLock):
            self._lock = threading.RLock()

    @property
    def hour(self) -> int:
        """The current hour, in hours since the epoch."""
        return self._hour

    @hour.setter
    def hour(self, hour: int) -> None:
        with self._lock:
            if hour != self._hour:
                self._finish()
                # All items become idle, so the first write to each in the new hour logs its usage.
                for idle, items in zip(self._idle.parts, self._items.parts, strict=True):
                    idle.update(items)
                    items.clear()
                self._hour = hour

    def get(self, key: Key) -> Item | None:
        """Return the item, None if it does not exist."""
        with self._lock:
            return self._find(key) or None

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist, from one snapshot."""
        with self._lock:
            return [self._find(key) or None for key in keys]

    def query(self, query: Query) -> Page:
        """Return one page of a partition of the table or of an index."""
        wanted = range_of(query)
        start = start_of(query)
        # No string sorts between a string and the same string with "\0" appended.
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
        """Carry out one operation if its conditions hold."""
        key, lock = operation.key, self._lock
        items = self._item_parts[hash(key) & LAST_PART]
        # This is faster than a with statement, and every acquire runs it. The lock is acquired inside the try
        # statement, because an interrupt may come immediately after it.
        try:
            lock.acquire()
            written = items.get(key)
            outcome: Applied | Refused | Missing
            new = apply(operation, written or self._find(key))
            if type(new) is not dict:
                outcome = new  # type: ignore[assignment] # mypy does not narrow on type()
            else:
                outcome = _new_tuple(Applied, (new,))
                # The same as `moves` for an update that removes nothing, without the call.
                stays = isinstance(operation, DirectUpdate) or (
                    type(operation) is Update and not operation.remove and keeps_place(operation.set)
                )
                # A take of slots may have to store the highest number in use. The usual take has none.
                if type(operation) is not BucketTake and takes_slots(operation) and self._raises(key, new):
                    written = None
                # A removed total must be logged. A limit is removed with all its attributes, so an update that
                # removes a single attribute removes no total.
                if (not stays and (moves(operation) or len(operation.remove) > 1)) or not written:  # type: ignore[union-attr] # an Update
                    self._carry_out((self._plan(key, new, places(new)),))
                # A signal handler of this thread may have written meanwhile: it can acquire the reentrant lock.
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
            # All operations are evaluated before the first is stored: one refusal cancels all of them.
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

    def update_all(self, updates: Sequence[Update]) -> Sequence[Item] | None:
        """Apply updates of different items that exist, all or none, and return the new items; None if nothing was.

        The updates change no key, and remove at most one attribute each.
        """
        planned: list[tuple[dict[_PlainKey, dict[str, Any]], Update, dict[str, Any], dict[str, Any]]] = []
        found: list[Item] = []
        with self._lock:
            for update in updates:
                key = update.key
                items = self._item_parts[hash(key) & LAST_PART]
                old = items.get(key)
                new = apply(update, old) if old else None
                if old is None or type(new) is not dict or (takes_slots(update) and self._raises(key, new)):
                    return None
                planned.append((items, update, old, new))
            for items, update, old, new in planned:
                key = update.key
                # As in `write`: a signal handler of this thread may have written meanwhile.
                if items.get(key) is old:
                    items[key] = new
                    found.append(new)
                    continue
                outcome = self.write(update)
                if type(outcome) is not Applied:
                    # Items before this one keep their updates. So their buckets are charged, which is strict.
                    return None
                found.append(outcome.new)
        return found

    def batch_delete(self, keys: Iterable[Key]) -> None:
        """Remove items unconditionally, each in a transaction of its own."""
        for key in keys:
            with self._lock:
                self._carry_out((self._plan(key, NO_ITEM, ()),))

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Check the next ``limit`` items and remove those that have expired."""
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
        """Log the usage of the next ``limit`` open buckets; return the start of the next call, None after the last.

        ``start`` is 0 in the first call. The last call has visited every bucket that was open at the first call, even
        if other traversals ran in between.
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
                        found = Logged(hour, added(totals, item), open_at(hour, item, item), in_use_of(totals))
                        self._carry_out((_PlannedWrite(key, None, (), (), found, self._change(key, found)),))
                    part.move_to_end(key)
            return after

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return at most ``limit`` logged changes after a sequence number, in order."""
        with self._lock:
            self._finish()
            return list(islice((one for one in self._log if one.sequence > after), limit))

    def trim(self, up_to: int) -> None:
        """Delete the logged changes up to and including a sequence number."""
        with self._lock:
            self._finish()
            while self._log and self._log[0].sequence <= up_to:
                self._log.popleft()

    def size(self) -> TableSize:
        """Return the number of items."""
        with self._lock:
            return TableSize(len(self._rounds), None)

    def wants_checkpoint(self) -> bool:
        """Return False: there is no log to copy."""
        return False

    def is_crowded(self) -> bool:
        """Return False: writers never have to pause."""
        return False

    def held_back_bytes(self) -> None:
        """Return None: there is no log."""

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Do nothing."""

    def wants_snapshots(self) -> bool:
        """Return False: there are no snapshots."""
        return False

    def keep_snapshots(self) -> None:
        """Do nothing: there are no snapshots."""

    def close(self) -> None:
        """Remove every item; later calls raise RepositoryClosedError."""
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
        """Return the item of a key, empty if it does not exist."""
        items = self._items.of(key)
        found = items.get(key)
        if found:
            return found
        # An interrupted plan may contain this key.
        self._finish()
        return items.get(key) or self._idle.of(key).get(key, NO_ITEM)

    def _plan(
        self, key: _PlainKey, new: dict[str, Any], entries: tuple[IndexEntry, ...], before: Sequence[_PlannedWrite] = ()
    ) -> _PlannedWrite:
        """Plan to replace the item of a key, and its index entries; ``before`` are the earlier steps of the plan."""
        old = self._find(key)
        found = logged(self._opening(key), old, new, self._hour) if key[1] == BUCKET else None
        old_entries = places(old)
        removed_entries = tuple(entry for entry in old_entries if entry not in entries)
        added_entries = tuple(entry for entry in entries if entry not in old_entries)
        earlier = sum(step.change is not None for step in before)
        # The stored key is reused. A new tuple per write would replace a freed one, which delays the garbage collector.
        # It would then visit all new tuples in one young collection: 180,000 of them take 120 ms.
        same = self._rounds.of(key).get(key) or (key[0], key[1])
        used = None if found is None else self._change(key, found, earlier)
        return _PlannedWrite(same, new, removed_entries, added_entries, found, used)

    def _raises(self, key: _PlainKey, new: dict[str, Any]) -> bool:
        """Return whether more slots of a bucket are in use than ever in this hour."""
        totals = self._opened.of(key).get(key)
        return totals is not None and bool(raised(totals, new, self._hour))

    def _opening(self, key: _PlainKey) -> Opened | None:
        """Return the opening of a bucket, None if it is not open."""
        totals = self._opened.of(key).get(key)
        return None if totals is None else Opened(self._opened_in.of(key)[key], totals)

    def _change(self, key: _PlainKey, found: Logged, earlier: int = 0) -> Change | None:
        """Return the change to log, None if nothing was used; ``earlier`` changes are logged before it."""
        if not found.added:
            return None
        return change(self._sequence + earlier + 1, Key(*key), (found.hour, found.added), found.in_use)

    def _carry_out(self, steps: tuple[_PlannedWrite, ...]) -> None:
        """Carry out a plan; once it is stored in `_unfinished`, it is completed even if this caller is interrupted."""
        for step in steps:
            items = self._items.of(step.key)
            # Moved first: a writer that finds a key in `_items` does not check for an unfinished plan.
            if step.key in items:
                self._idle.of(step.key)[step.key] = items[step.key]
                del items[step.key]
        self._unfinished = steps
        self._finish()

    def _finish(self) -> None:
        """Complete the plan of an interrupted caller, if there is one."""
        if self._unfinished:
            for step in self._unfinished:
                self._carry_out_step(step)
            self._unfinished = ()

    def _carry_out_step(self, step: _PlannedWrite) -> None:
        """Carry out a step; a repetition changes nothing."""
        key, new, removed_entries, added_entries, found, used = step
        for entry in removed_entries:
            self._remove_entry(entry, key)
        for entry in added_entries:
            self._add_entry(entry, key)
        if used is not None:
            # Not twice, if the step was interrupted after this line.
            if (self._log[-1].sequence if self._log else 0) < used.sequence:
                self._log.append(used)
            self._sequence = used.sequence
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

    def _add_entry(self, added: IndexEntry, key: _PlainKey) -> None:
        """Insert an item into the order of the table or of an index, unless it is there."""
        orders, name, entry = self._order_of(added, key)
        order = orders.get(name, ())
        index = bisect_left(order, entry)
        if index < len(order) and order[index] == entry:
            return
        if isinstance(order, list):
            order.insert(index, entry)
        else:
            grown = (*order[:index], entry, *order[index:])
            orders[name] = grown if len(grown) <= _SHORT_ORDER else list(grown)

    def _remove_entry(self, removed: IndexEntry, key: _PlainKey) -> None:
        """Remove an item from the order of the table or of an index, if it is there."""
        orders, name, entry = self._order_of(removed, key)
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
        """Return the dictionary that has an order, its name there, and the entry of an item in it."""
        index, partition, sort = place
        if not index:
            return self._sort_keys.of(partition), partition, sort
        name = (index, partition)
        return self._orders.of(name), name, (sort, *key)


def _cut(query: Query, order: Sequence[_E], first: Any, end: Any, start: Any) -> Sequence[_E]:
    """Return the entries of an order that a query reads, from ``first`` on and before ``end``; None is no end.

    One entry more than the limit shows whether another page follows. A next page begins after ``start``.
    """
    most = None if query.limit is None else query.limit + 1
    low = bisect_left(order, first)
    high = len(order) if end is None else bisect_left(order, end)
    if query.descending:
        high = high if start is None else min(high, bisect_left(order, start))
        return order[max(low, high - most) if most else low : high][::-1]
    low = low if start is None else max(low, bisect_right(order, start))
    return order[low : min(high, low + most) if most else high]
