"""Items in a SQLite file, shared by many threads and processes.

An item is a row of JSON text, because numbers may be larger than SQLite's; conditions are evaluated in Python. A plain
update is one statement that replaces the row if its text is still the text the conditions were evaluated on, so the
file is locked for microseconds and never while Python runs. Everything else is one transaction.

No call waits for a lock of another process: it raises ``Busy``, having changed nothing. Threads of one process
take turns to write. A write that failed was rolled back, so no outcome is ever ambiguous.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from zae_limiter.core.checkpoint import LIMIT_BYTES
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Item, Missing, Refused, Unavailable
from zae_limiter.core.status import TableSize
from zae_limiter.schema.keys import SK_USAGE_PREFIX
from zae_limiter.schema.operations import Change, Check, Delete, Equals, Key, Operation, Page, Query, Update, Write
from zae_limiter.tables.blocking import Busy, Swept
from zae_limiter.tables.evaluate import apply, check_transaction, keeps_place, moves, places
from zae_limiter.tables.paging import keys_of, page_of
from zae_limiter.tables.sqlite import log
from zae_limiter.tables.sqlite.checkpoint import WriteAheadLog
from zae_limiter.tables.sqlite.file import OPENING_WAIT_S, is_busy, transaction
from zae_limiter.tables.sqlite.pool import Pool
from zae_limiter.tables.sqlite.query import Statement, statement_of
from zae_limiter.tables.sqlite.text import NO_ROW, Row, row_after, row_of_item, row_of_text
from zae_limiter.tables.totals import BUCKET, RETENTION_HOURS

A = TypeVar("A")
R = TypeVar("R")
Result = dict[str, Any] | Refused | Missing

_SELECT = "SELECT body, hour, id FROM items WHERE pk = ? AND sk = ?"
# An id may go from one item to another; a text does not, for it has the item's key in it.
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


class _Change(NamedTuple):
    """What an operation does to an item."""

    operation: Operation
    old: Row
    result: Result


class SqliteTable:
    """A table in a file, made with its directories if it is not there.

    While another process keeps the file locked, opening blocks for about ``wait_s`` seconds. Later calls never do.

    Raises:
        Busy: another process keeps the file locked, and ``wait_s`` is 0.
        StorageError: the file is damaged, not writable, not ours, or was locked for ``wait_s``.
        IncompatibleSchemaError: a newer version of this package made it.
    """

    upkeep_waits = True

    def __init__(
        self, path: str | os.PathLike[str], log_limit_bytes: int = LIMIT_BYTES, wait_s: float = OPENING_WAIT_S
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._pool = Pool(self.path, wait_s)
        self._log = WriteAheadLog(self.path, log_limit_bytes)
        # Rows as last seen. One that others have changed since does no harm: its text no longer matches.
        self._rows: dict[Key, Row] = {}
        self._reads_first = 0
        self._since_checkpoint = 0
        self._swept_to = 0
        self.hour = 0

    def get(self, key: Key) -> Item | None:
        """The item, None if there is none."""
        return self._reading(self._read, key).item or None

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """The items in the order of their keys, None for each that is absent, all as of one moment."""
        return [row.item or None for row in self._reading(self._read_all, keys)]

    def query(self, query: Query) -> Page:
        """One page of a partition of the table or of an index."""
        found = self._reading(_select, statement_of(query))
        entries = [(row[0], row[1], row[2]) for row in found]
        if query.index is not None:
            return page_of(query, entries, [keys_of(query, entry) for entry in entries])
        return page_of(query, entries, [self._item(Key(row[1], row[2]), row[3]) for row in found])

    def write(self, operation: Write) -> Applied | Refused | Missing | Unavailable:
        """Carry out one operation, if its conditions hold."""
        # As _writing, without the call.
        write_pause = self._log.write_pause
        if write_pause is not None and write_pause.lasts():
            raise Busy
        turn = self._pool.turn
        try:
            turn.begin()
            return self._pool.lend(self._write, operation)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            return Unavailable(error, ambiguous=False)
        finally:
            try:  # noqa: SIM105 - a context manager could be interrupted before the turn has ended
                turn.end()
            except RuntimeError:
                pass

    def transact(self, operations: Sequence[Operation]) -> Committed | Cancelled | Unavailable:
        """Carry out all operations, or none."""
        operations = tuple(operations)
        check_transaction(operations)
        results = self._writing(self._carry_out, operations)
        if isinstance(results, Unavailable):
            return results
        reasons = tuple(None if isinstance(result, dict) else result for result in results)
        return Cancelled(reasons) if any(reasons) else _COMMITTED

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items, without a condition, in one transaction."""
        self._removing([Delete(key) for key in dict.fromkeys(keys)])

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Look at the next ``limit`` items, and remove those whose ``ttl`` is past."""
        # Only rows that have expired are taken out of SQLite. While it takes out rows, a thread waits for the
        # interpreter before each, and its read keeps the log from being shortened.
        rows = self._reading(log.next_rows, (self._swept_to, limit))
        removed, after = 0, self._swept_to
        while found := self._reading(_select, (_EXPIRED, (after, rows.last, now_s, _REMOVED_AT_ONCE))):
            # Another writer may move the expiry meanwhile: then this one is not the item that has expired.
            removed += self._removing([Delete(Key(pk, sk), (Equals("ttl", ttl),)) for _, pk, sk, ttl in found])
            after = found[-1][0]
        finished = rows.found < limit
        self._swept_to = 0 if finished else rows.last
        if self._reading(log.is_overdue, now_s // 3600 - RETENTION_HOURS):
            self._changing(log.forget, now_s // 3600 - RETENTION_HOURS)
        return Swept(removed, finished)

    def log_open(self, start: int, limit: int) -> int | None:
        """Log what about ``limit`` buckets have used so far, and answer where to go on, None after the last."""
        used, after = self._reading(log.find_used, (start, limit))
        for first in range(0, len(used), _LOGGED_AT_ONCE):
            self._changing(log.log_used, used[first : first + _LOGGED_AT_ONCE])
        return after

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next of the logged changes after a sequence, at most so many, in their order."""
        return self._reading(log.read, (after, limit))

    def trim(self, up_to: int) -> None:
        """Forget the logged changes up to a sequence, included."""
        self._changing(log.trim, up_to)

    def size(self) -> TableSize:
        """Count the items, and measure the file as it is once its log is in it, and the log."""
        return TableSize(*self._reading(_size, None), self._log.size_bytes, self._log.held_back)

    def wants_checkpoint(self) -> bool:
        """Say whether this process has written enough for a checkpoint, or the log has grown long."""
        return self._log.is_due(self._since_checkpoint)

    def is_crowded(self) -> bool:
        """Say whether the log is so long that writers have to pause until a checkpoint is over."""
        return self._log.is_crowded()

    def held_back_bytes(self) -> int | None:
        """Return the size of the log if others kept the last checkpoint from shortening it, else None."""
        return self._log.size_bytes if self._log.held_back else None

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Bring the log into the file; this syncs, so it belongs on a thread.

        For some milliseconds, writes of this process raise ``Busy``: the log restarts when nothing is written.
        """
        self._since_checkpoint = 0
        self._reading(self._log.bring_in, monotonic_s)

    def close(self) -> None:
        """Close the file; the last to close it brings the log into it."""
        self._pool.close()

    def _reading(self, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R:
        """Make a call that reads.

        Raises:
            Busy: the file is locked.
            RateLimiterUnavailable: the file cannot be read.
        """
        try:
            return self._pool.lend(call, argument)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            raise RateLimiterUnavailable(error) from error

    def _writing(self, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R | Unavailable:
        """Make a call that writes; threads of this process take turns.

        Raises:
            Busy: the file is locked.
        """
        write_pause = self._log.write_pause
        if write_pause is not None and write_pause.lasts():
            raise Busy
        turn = self._pool.turn
        try:
            turn.begin()
            return self._pool.lend(call, argument)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            return Unavailable(error, ambiguous=False)
        finally:
            try:  # noqa: SIM105 - a context manager could be interrupted before the turn has ended
                turn.end()
            except RuntimeError:
                pass

    def _changing(self, call: Callable[[sqlite3.Cursor, A], None], argument: A) -> None:
        """Make a call that writes and answers nothing, in one transaction.

        Raises:
            Busy: the file is locked.
            RateLimiterUnavailable: the file cannot be written.
        """

        def change(cursor: sqlite3.Cursor, argument: A) -> None:
            with transaction(cursor, "BEGIN IMMEDIATE"):
                call(cursor, argument)

        outcome = self._writing(change, argument)
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)

    def _removing(self, operations: Sequence[Delete]) -> int:
        """Carry out those of the deletes whose conditions hold, in one transaction, and answer how many did."""
        results = self._writing(self._carry_out_each, operations)
        if isinstance(results, Unavailable):
            raise RateLimiterUnavailable(results.cause)
        return sum(isinstance(result, dict) for result in results)

    def _write(self, cursor: sqlite3.Cursor, operation: Write) -> Applied | Refused | Missing:
        """Carry out one operation by a statement where that will do, else by a transaction."""
        # A limit is dropped with all its fields, so who removes one attribute drops no total.
        if type(operation) is Update and keeps_place(operation.set) and (not operation.remove or _drops_one(operation)):
            if self._reads_first:
                self._reads_first -= 1
            elif (row := self._rows.get(operation.key)) is not None:
                # Only success proves that the row is still as remembered; a refusal or an error may be out of date.
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
        """Change a row that is there by one statement; None if there is none, or others were faster every time."""
        for _ in range(_TRIES):
            row = self._read(cursor, operation.key)
            outcome = self._swap(cursor, operation, row)
            if outcome is not None or not row.item:
                return outcome
        return None

    def _swap(self, cursor: sqlite3.Cursor, operation: Update, row: Row) -> Applied | Refused | Missing | None:
        """Put the changed row in the place of this one; None if this one is not there any more, or never was.

        None, too, for a bucket that was opened in another hour: that takes a transaction.
        """
        text, item, _, hour, row_id = row
        new = apply(operation, item)
        if type(new) is not dict:
            return new  # type: ignore[return-value] # mypy does not narrow on type()
        key = operation.key
        if not item or (hour != self.hour and key.sk == BUCKET):
            return None
        after = row_after(row, operation, new)
        expires_s = new.get("ttl")
        if expires_s.__class__ is not int or not -_LARGEST <= expires_s <= _LARGEST:
            expires_s = _expiry(new)
        cursor.execute(_REPLACE, (expires_s, after[0], row_id, text))
        if not cursor.rowcount:
            self._reads_first = _READS_AFTER_LOSING
            return None
        self._rows[key] = after
        self._since_checkpoint += 1
        return Applied(new)

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
        """What operations on as many items would do."""
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
        """Write one item, with its places in the indexes, for that of a row; either may be absent."""
        old = row.item
        stood, stands = places(old), places(new)
        cursor.executemany(_LEAVE, [(*place, *key) for place in stood if place[0] and place not in stands])
        cursor.executemany(_ENTER, [(*place, *key) for place in stands if place[0] and place not in stood])
        # Once, for another thread may turn it meanwhile.
        hour = self.hour
        opened = log.close(cursor, key, old, new, hour)
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
        """The row of a key, kept for the next conditions."""
        row = self._look_at(cursor, key)
        if row is not NO_ROW:
            self._remember(key, row)
        return row

    def _look_at(self, cursor: sqlite3.Cursor, key: Key) -> Row:
        """The row of a key, decoded only if its text is not the one last seen."""
        found = _select(cursor, (_SELECT, (key.pk, key.sk)))
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
        """The rows of keys, as of one moment."""
        # The rows of a report would displace those that the next writes need.
        read = self._read if len(keys) <= _REMEMBERED_AT_ONCE else self._look_at
        with transaction(cursor, "BEGIN"):
            return [read(cursor, key) for key in keys]

    def _item(self, key: Key, text: str) -> Item:
        """The item that has a text, decoded anew only if it is not the text last seen of that key."""
        row = self._rows.get(key)
        return row.item if row is not None and row.text == text else row_of_text(key, text).item

    def _remember(self, key: Key, row: Row) -> None:
        """Keep a row to evaluate the next conditions on."""
        if key.sk.startswith(SK_USAGE_PREFIX):
            # Usage is counted in bulk, and each snapshot about once: it would displace the rows of buckets.
            return
        if len(self._rows) >= _REMEMBERED:
            # To free all of them takes 20 ms. No other thread runs while the list is made.
            for oldest in list(islice(self._rows, _FORGOTTEN_AT_ONCE)):
                self._rows.pop(oldest, None)
        self._rows[key] = row


def _select(cursor: sqlite3.Cursor, statement: Statement) -> list[Any]:
    """Every row that a statement finds; none has a key that UTF-8 cannot write."""
    try:
        return cursor.execute(*statement).fetchall()
    except UnicodeEncodeError:
        return []


def _size(cursor: sqlite3.Cursor, _: None) -> tuple[int, int]:
    """How many items a file has, and its bytes."""
    questions = ("SELECT count(*) FROM items", "PRAGMA page_count", "PRAGMA page_size")
    items, pages, bytes_per_page = (cursor.execute(question).fetchone()[0] for question in questions)
    return items, pages * bytes_per_page


def _drops_one(operation: Update) -> bool:
    """Say whether an update removes one attribute at most, and none that its item is found by."""
    return len(operation.remove) < 2 and keeps_place(operation.remove)


def _expiry(item: dict[str, Any]) -> int | None:
    """The time in seconds at which an item expires, None if never."""
    expires_s = item.get("ttl")
    if type(expires_s) is not int:
        return None
    return expires_s if -_LARGEST <= expires_s <= _LARGEST else _LARGEST if expires_s > 0 else -_LARGEST
