"""A table in a SQLite file, shared by many threads and processes.

An item is a row of JSON text, because its numbers may be larger than SQLite's. Conditions are evaluated in Python. A
plain update is a compare-and-swap: one statement replaces the row if its text is still the one that was evaluated. So
the file is locked for microseconds, and never while Python runs. Everything else is one transaction.

No call waits for a lock of another process: it raises ``Busy`` and has changed nothing. Threads of one process take
turns to write. A failed write was rolled back, so no outcome is ambiguous.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from zae_limiter.core.checkpoint import LIMIT_BYTES
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Item, Missing, Refused, Unavailable
from zae_limiter.core.status import TableSize
from zae_limiter.schema.direct_writes import BucketTake
from zae_limiter.schema.keys import SK_USAGE_PREFIX
from zae_limiter.schema.operations import (
    Change,
    Check,
    Delete,
    DirectUpdate,
    Equals,
    Key,
    Operation,
    Page,
    Query,
    Update,
    Write,
)
from zae_limiter.tables.blocking import Swept
from zae_limiter.tables.evaluate import apply, check_transaction, keeps_place, moves, places
from zae_limiter.tables.paging import keys_of, page_of
from zae_limiter.tables.sqlite import log
from zae_limiter.tables.sqlite.access import FileAccess
from zae_limiter.tables.sqlite.checkpoint import WriteAheadLog
from zae_limiter.tables.sqlite.file import OPENING_WAIT_S, transaction
from zae_limiter.tables.sqlite.pool import Pool
from zae_limiter.tables.sqlite.query import measure, select, statement_of
from zae_limiter.tables.sqlite.snapshot import WRITES_PER_SNAPSHOT, KeepingCursor
from zae_limiter.tables.sqlite.text import NO_ROW, Row, row_after, row_of_item, row_of_text
from zae_limiter.tables.totals import BUCKET, RETENTION_HOURS, KnownInUse

Result = dict[str, Any] | Refused | Missing

_SELECT = "SELECT body, hour, id FROM items WHERE pk = ? AND sk = ?"
# SQLite may reuse the id of a deleted row for another item. The text contains the item's key, so it never matches then.
_REPLACE = "UPDATE items SET ttl = ?, body = ? WHERE id = ? AND body = ?"
_UPDATE = "UPDATE items SET ttl = ?, body = ? WHERE pk = ? AND sk = ?"
_INSERT = "INSERT INTO items(ttl, body, pk, sk) VALUES(?, ?, ?, ?)"
_DELETE = "DELETE FROM items WHERE pk = ? AND sk = ?"
_ENTER = "INSERT INTO entries(place, part, sort, pk, sk) VALUES(?, ?, ?, ?, ?)"
_LEAVE = "DELETE FROM entries WHERE place = ? AND part = ? AND sort = ? AND pk = ? AND sk = ?"
_EXPIRED = "SELECT id, pk, sk, ttl FROM items WHERE id > ? AND id <= ? AND ttl < ? ORDER BY id LIMIT ?"

_REMEMBERED = 4096
_REMEMBERED_AT_ONCE = 32
_FORGOTTEN_AT_ONCE = 64
_TRIES = 2
_READS_AFTER_LOSING = 8
_REMOVED_AT_ONCE = 64
_LOGGED_AT_ONCE = 64
_LARGEST = 2**63 - 1

_COMMITTED = Committed()
_new_tuple = tuple.__new__


class _Change(NamedTuple):
    """An operation, the row before it, and the result."""

    operation: Operation
    old: Row
    result: Result


class _Outdated(Exception):  # noqa: N818 - it rolls a transaction back, and never leaves this module
    """A row is not as it was cached, so several rows cannot be replaced in one step."""


class SqliteTable:
    """A table in a file, which is created with its directories if it does not exist.

    While another process keeps the file locked, opening blocks for about ``wait_s`` seconds. Later calls never block.

    Raises:
        Busy: Another process keeps the file locked, and ``wait_s`` is 0.
        StorageError: The file is damaged, not writable, from another program, or was locked for ``wait_s`` seconds.
        IncompatibleSchemaError: A newer version of this package made it.
    """

    upkeep_waits = True

    def __init__(
        self, path: str | os.PathLike[str], log_limit_bytes: int = LIMIT_BYTES, wait_s: float = OPENING_WAIT_S
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._pool = Pool(self.path, wait_s)
        self._log = WriteAheadLog(self.path, log_limit_bytes)
        self._access = FileAccess(self._pool, self._log)
        # A cache of rows. An outdated row does no harm: its text no longer matches, so the compare-and-swap fails.
        self._rows: dict[Key, Row] = {}
        self._in_use = KnownInUse()
        self._reads_first = 0
        self._since_checkpoint = 0
        self._swept_to = 0
        self.hour = 0

    def get(self, key: Key) -> Item | None:
        """Return the item, None if it does not exist."""
        return self._access.reading(self._read, key).item or None

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist, from one snapshot."""
        return [row.item or None for row in self._access.reading(self._read_all, keys)]

    def query(self, query: Query) -> Page:
        """Return one page of a partition of the table or of an index."""
        found = self._access.reading(select, statement_of(query))
        entries = [(row[0], row[1], row[2]) for row in found]
        if query.index is not None:
            return page_of(query, entries, [keys_of(query, entry) for entry in entries])
        return page_of(query, entries, [self._item(Key(row[1], row[2]), row[3]) for row in found])

    def write(self, operation: Write) -> Applied | Refused | Missing | Unavailable:
        """Carry out one operation if its conditions hold."""
        if isinstance(operation, DirectUpdate) and not self._reads_first and self._log.write_pause is None:
            outcome = self._write_in_snapshot(operation)
            if outcome is not None:
                return outcome
        return self._access.writing(self._write, operation)

    def _write_in_snapshot(self, operation: DirectUpdate) -> Applied | Unavailable | None:
        """Carry out the usual write of an acquire, in the snapshot that its connection keeps.

        None if nothing was written, because it takes more than that, or the cache or the snapshot may be old.

        Raises:
            Busy: The file is locked.
        """
        pool, loan = self._pool, None
        turn = pool.turn
        try:
            try:
                loan = pool.borrow(turn)
                applied = self._swap_cached(loan[0], operation)
            except (ValueError, OverflowError, sqlite3.Error) as error:
                return self._access.after_failure(loan, error)
            except BaseException:
                # As after any interrupted call.
                if loan is not None:
                    pool.doomed.append(loan[0])
                    pool.drop_doomed()
                raise
            pool.give_back(loan)
            return applied
        finally:
            try:  # noqa: SIM105 - a context manager could be interrupted before the turn has ended
                turn.end()
            except RuntimeError:
                pass

    def transact(self, operations: Sequence[Operation]) -> Committed | Cancelled | Unavailable:
        """Carry out all operations, or none."""
        operations = tuple(operations)
        check_transaction(operations)
        results = self._access.writing(self._carry_out, operations)
        if isinstance(results, Unavailable):
            return results
        reasons = tuple(None if isinstance(result, dict) else result for result in results)
        return Cancelled(reasons) if any(reasons) else _COMMITTED

    def update_all(self, updates: Sequence[Update]) -> Sequence[Item] | None:
        """Apply updates of different items that exist, all or none, and return the new items; None if nothing was.

        The updates change no key, and remove at most one attribute each.
        """
        found = self._access.writing(self._swap_all, updates)
        return None if isinstance(found, Unavailable) else found

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items unconditionally, in one transaction."""
        self._removing([Delete(key) for key in dict.fromkeys(keys)])

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Check the next ``limit`` items and remove those that have expired."""
        # SQLite filters the rows. For each row that it returns, this thread waits for the interpreter lock. Its read
        # stays open meanwhile, and an open read keeps the log from being shortened.
        rows = self._access.reading(log.next_rows, (self._swept_to, limit))
        removed, after = 0, self._swept_to
        while found := self._access.reading(select, (_EXPIRED, (after, rows.last, now_s, _REMOVED_AT_ONCE))):
            # The expiry is a condition, because another writer may have extended it meanwhile.
            removed += self._removing([Delete(Key(pk, sk), (Equals("ttl", ttl),)) for _, pk, sk, ttl in found])
            after = found[-1][0]
        finished = rows.found < limit
        self._swept_to = 0 if finished else rows.last
        if self._access.reading(log.is_overdue, now_s // 3600 - RETENTION_HOURS):
            self._access.changing(log.forget, now_s // 3600 - RETENTION_HOURS)
        return Swept(removed, finished)

    def log_open(self, start: int, limit: int) -> int | None:
        """Log the usage of about ``limit`` open buckets; return the start of the next call, None after the last."""
        used, after = self._access.reading(log.find_used, (start, limit))
        for first in range(0, len(used), _LOGGED_AT_ONCE):
            self._access.changing(log.log_used, used[first : first + _LOGGED_AT_ONCE])
        return after

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return at most ``limit`` logged changes after a sequence number, in order."""
        return self._access.reading(log.read, (after, limit))

    def trim(self, up_to: int) -> None:
        """Delete the logged changes up to and including a sequence number."""
        self._access.changing(log.trim, up_to)

    def size(self) -> TableSize:
        """Return the number of items, the size of the file with the pages that are still in its log, and the log's."""
        return TableSize(*self._access.reading(measure, None), self._log.size_bytes, self._log.held_back)

    def wants_checkpoint(self) -> bool:
        """Return whether this process has written enough for a checkpoint, or the log is too long."""
        return self._log.is_due(self._since_checkpoint)

    def is_crowded(self) -> bool:
        """Return whether writers have to pause because of a long log, until a checkpoint is complete."""
        return self._log.is_crowded()

    def held_back_bytes(self) -> int | None:
        """Return the size of the log if other processes prevented the last checkpoint, else None."""
        return self._log.size_bytes if self._log.held_back else None

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Copy the log into the file; this waits for the disk, so call it from a thread.

        Writes of this process may raise ``Busy`` for some milliseconds, because the log restarts only while nothing is
        written.
        """
        self._since_checkpoint = 0
        snapshots = self._pool.snapshots
        try:
            # A copy of the log stops at the pages that the oldest snapshot needs.
            snapshots.pause()
            self._pool.release_snapshots()
            self._access.reading(self._log.bring_in, monotonic_s)
        finally:
            snapshots.resume()

    def wants_snapshots(self) -> bool:
        """Return whether quick writes would be cheaper if snapshots were kept, and they are not yet."""
        return not self._pool.snapshots.is_watched

    def keep_snapshots(self) -> None:
        """Write faster until there are few writes; call it from a thread.

        Connections keep their snapshots between writes meanwhile.
        """
        pool = self._pool
        if pool.snapshots.watch(pool.release_snapshots):
            pool.release_all_snapshots()

    def close(self) -> None:
        """Close the file; SQLite copies the log into it when the last process closes it."""
        self._pool.close()

    def _removing(self, operations: Sequence[Delete]) -> int:
        """Carry out the deletes whose conditions hold, in one transaction, and return their number."""
        results = self._access.writing(self._carry_out_each, operations)
        if isinstance(results, Unavailable):
            raise RateLimiterUnavailable(results.cause)
        return sum(isinstance(result, dict) for result in results)

    def _write(self, cursor: sqlite3.Cursor, operation: Write) -> Applied | Refused | Missing:
        """Carry out one operation with one statement if possible, else with a transaction."""
        # A removed total must be logged, which takes a transaction. A limit is removed with all its attributes, so an
        # update that removes a single attribute removes no total.
        if isinstance(operation, DirectUpdate) or (
            type(operation) is Update and keeps_place(operation.set) and _drops_one(operation)
        ):
            if self._reads_first:
                self._reads_first -= 1
            elif (row := self._rows.get(operation.key)) is not None:
                # Only success proves that the cached row is current. A refusal or an error may come from an old row.
                try:
                    outcome = self._swap(cursor, operation, row)
                except ValidationError:
                    outcome = None
                if type(outcome) is Applied:
                    return outcome
            outcome = self._replace(cursor, operation)
            if outcome is not None:
                return outcome
        else:
            moves(operation)
        (result,) = self._carry_out(cursor, (operation,))
        return Applied(result) if isinstance(result, dict) else result

    def _replace(self, cursor: sqlite3.Cursor, operation: Update) -> Applied | Refused | Missing | None:
        """Read and swap a row; None if it does not exist, or if other writers were faster each time."""
        for _ in range(_TRIES):
            row = self._read(cursor, operation.key)
            outcome = self._swap(cursor, operation, row)
            if outcome is not None or not row.item:
                return outcome
        return None

    def _swap_cached(self, cursor: KeepingCursor, operation: DirectUpdate) -> Applied | None:
        """Replace a cached row if its text is unchanged in the file; None if not, or if it takes more than that.

        Only success proves that the cached row is current. So what is refused on it is None too.
        """
        key = operation.key
        row = self._rows.get(key, NO_ROW)
        text, item, pattern, hour, row_id = row
        if pattern is None or hour != self.hour:
            return None
        new, names = operation.applied_to(item), operation.written_names()
        if new is None or not (names is pattern.covered or pattern.fits(names)):
            return None
        if type(operation) is not BucketTake and self._in_use.raises(operation, new, hour):
            return None
        new_text = pattern.constant + pattern.numbers % pattern.read(new)
        expires_s = new.get("ttl")
        if expires_s.__class__ is not int:
            expires_s = _expiry(new)
        cursor.execute(_REPLACE, (expires_s, new_text, row_id, text))
        if not cursor.rowcount:
            # Another process has changed the row. A cached row would lose again, so the next writes read first.
            self._reads_first = _READS_AFTER_LOSING
            return None
        # Faster than Row(...) and Applied(...).
        self._rows[key] = _new_tuple(Row, (new_text, new, pattern, hour, row_id))
        self._since_checkpoint = writes = self._since_checkpoint + 1
        if not writes % WRITES_PER_SNAPSHOT:
            self._pool.snapshots.renew(cursor)
        return _new_tuple(Applied, (new,))

    def _swap(self, cursor: sqlite3.Cursor, operation: Update, row: Row) -> Applied | Refused | Missing | None:
        """Replace a row if its text is unchanged in the file; None if not, or if its usage has to be logged first."""
        text, item, _, hour, row_id = row
        new = apply(operation, item)
        if type(new) is not dict:
            return new  # type: ignore[return-value] # mypy does not narrow on type()
        key = operation.key
        raises = type(operation) is not BucketTake and self._in_use.raises(operation, new, self.hour)
        if not item or (hour != self.hour and key.sk == BUCKET) or raises:
            return None
        after = row_after(row, operation, new)
        cursor.execute(_REPLACE, (_expiry(new), after.text, row_id, text))
        if not cursor.rowcount:
            # As in ``_swap_cached``.
            self._reads_first = _READS_AFTER_LOSING
            return None
        self._rows[key] = after
        self._since_checkpoint += 1
        return Applied(new)

    def _swap_all(self, cursor: sqlite3.Cursor, updates: Sequence[Update]) -> list[Item] | None:
        """Replace several rows in one transaction.

        None if nothing was written: an update is refused, or a row is absent, has changed, or has to be logged first.
        """
        swapped: list[tuple[Key, Row, Item]] = []
        try:
            with transaction(cursor, "BEGIN IMMEDIATE"):
                for update in updates:
                    row = self._rows.get(update.key) or self._look_at(cursor, update.key)
                    new = apply(update, row.item)
                    is_same = row.item and row.hour == self.hour
                    if type(new) is not dict or not is_same or self._in_use.raises(update, new, self.hour):
                        raise _Outdated
                    after = row_after(row, update, new)
                    cursor.execute(_REPLACE, (_expiry(new), after[0], row.id, row.text))
                    if not cursor.rowcount:
                        self._reads_first = _READS_AFTER_LOSING
                        raise _Outdated
                    swapped.append((update.key, after, new))
        except _Outdated:
            return None
        self._since_checkpoint += len(swapped)
        for key, after, _ in swapped:
            self._remember(key, after)
        return [new for _, _, new in swapped]

    def _carry_out(self, cursor: sqlite3.Cursor, operations: Sequence[Operation]) -> list[Result]:
        """Carry out all operations in one transaction, or none if one of them is refused."""
        with transaction(cursor, "BEGIN IMMEDIATE"):
            changes = self._evaluate(cursor, operations)
            if all(isinstance(change.result, dict) for change in changes):
                self._store(cursor, changes)
        return [change.result for change in changes]

    def _carry_out_each(self, cursor: sqlite3.Cursor, operations: Sequence[Operation]) -> list[Result]:
        """Carry out in one transaction those of the operations that are not refused."""
        with transaction(cursor, "BEGIN IMMEDIATE"):
            changes = self._evaluate(cursor, operations)
            self._store(cursor, changes)
        return [change.result for change in changes]

    def _evaluate(self, cursor: sqlite3.Cursor, operations: Sequence[Operation]) -> list[_Change]:
        """Return what each operation would do to its item."""
        changes = []
        for operation in operations:
            old = self._read(cursor, operation.key)
            changes.append(_Change(operation, old, apply(operation, old.item)))
        return changes

    def _store(self, cursor: sqlite3.Cursor, changes: Sequence[_Change]) -> None:
        """Write the items that were changed."""
        for operation, old, new in changes:
            if isinstance(new, dict) and type(operation) is not Check:
                moves(operation)
                self._store_one(cursor, operation.key, old, new)
                self._since_checkpoint += 1

    def _store_one(self, cursor: sqlite3.Cursor, key: Key, row: Row, new: dict[str, Any]) -> None:
        """Replace an item and its index entries; an empty ``new`` deletes it, and an empty row has no old item."""
        old = row.item
        old_entries, new_entries = places(old), places(new)
        cursor.executemany(_LEAVE, [(*one, *key) for one in old_entries if one[0] and one not in new_entries])
        cursor.executemany(_ENTER, [(*one, *key) for one in new_entries if one[0] and one not in old_entries])
        # Read once, because another thread may set the next hour meanwhile.
        hour = self.hour
        opened = log.close(cursor, key, old, new, hour)
        self._in_use.remember(key, new, hour)
        if new:
            after = row_of_item(key, new, hour, row.id)
            cursor.execute(_UPDATE if old else _INSERT, (_expiry(new), after.text, key.pk, key.sk))
            if not old:
                after = after._replace(id=cursor.lastrowid or 0)
            if opened is not None:
                log.reopen(cursor, key, opened)
            self._remember(key, after)
        elif old:
            cursor.execute(_DELETE, (key.pk, key.sk))
            self._rows.pop(key, None)

    def _read(self, cursor: sqlite3.Cursor, key: Key) -> Row:
        """Read the row of a key and cache it."""
        row = self._look_at(cursor, key)
        if row is not NO_ROW:
            self._remember(key, row)
        return row

    def _look_at(self, cursor: sqlite3.Cursor, key: Key) -> Row:
        """Read the row of a key; its text is decoded only if it differs from the cached one."""
        found = select(cursor, (_SELECT, (key.pk, key.sk)))
        if not found:
            return NO_ROW
        text, hour, row_id = found[0]
        row = self._rows.get(key)
        if row is None or row.text != text:
            row = row_of_text(key, text, hour or 0, row_id)
        elif row.id != row_id or hour not in (None, row.hour):
            row = row._replace(hour=hour or 0, id=row_id)
        return row

    def _read_all(self, cursor: sqlite3.Cursor, keys: Sequence[Key]) -> list[Row]:
        """Read the rows of keys from one snapshot."""
        # The rows of a report are not cached: they would displace those that the next writes need.
        read = self._read if len(keys) <= _REMEMBERED_AT_ONCE else self._look_at
        with transaction(cursor, "BEGIN"):
            return [read(cursor, key) for key in keys]

    def _item(self, key: Key, text: str) -> Item:
        """Return the item of a text, which is decoded only if it differs from the cached one."""
        row = self._rows.get(key)
        return row.item if row is not None and row.text == text else row_of_text(key, text).item

    def _remember(self, key: Key, row: Row) -> None:
        """Cache a row for the next write."""
        if key.sk.startswith(SK_USAGE_PREFIX):
            # Usage snapshots are written in bulk, each about once, and would displace the rows of buckets.
            return
        if len(self._rows) >= _REMEMBERED:
            # A few at a time, because freeing all of them takes 20 ms. No other thread runs while the list is made,
            # so the dictionary cannot change during the iteration.
            for oldest in list(islice(self._rows, _FORGOTTEN_AT_ONCE)):
                self._rows.pop(oldest, None)
        self._rows[key] = row


def _drops_one(operation: Update) -> bool:
    """Return whether an update removes at most one attribute, and no key."""
    return len(operation.remove) < 2 and keeps_place(operation.remove)


def _expiry(item: dict[str, Any]) -> int | None:
    """Return when an item expires, in seconds since the epoch, cut to SQLite's largest integer; None if never."""
    expires_s = item.get("ttl")
    if type(expires_s) is not int:
        return None
    return expires_s if -_LARGEST <= expires_s <= _LARGEST else _LARGEST if expires_s > 0 else -_LARGEST
