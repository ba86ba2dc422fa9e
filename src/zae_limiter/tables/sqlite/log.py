"""The log of what buckets have used, in a SQLite file. What writes belongs into a transaction."""

import json
import sqlite3
from typing import Any, NamedTuple

from zae_limiter.core.outcome import Item
from zae_limiter.schema.operations import Change, Key
from zae_limiter.tables.sqlite.text import row_of_text
from zae_limiter.tables.totals import BUCKET, Opened, added, change, logged, text_of, totals_of

# One step of SQLite: to take row after row out of it, a thread waits for the interpreter before each.
_NEXT_ROWS = "SELECT count(*), max(id) FROM (SELECT id FROM items WHERE id > ? ORDER BY id LIMIT ?)"
_OPENED = "SELECT hour, totals FROM items WHERE pk = ? AND sk = ?"
_OPEN = "UPDATE items SET hour = ?, totals = ? WHERE pk = ? AND sk = ?"
_SCAN = "SELECT id, pk, sk, body, totals FROM items WHERE id > ? AND id <= ? AND hour IS NOT NULL ORDER BY id LIMIT ?"
_BODY = "SELECT body, hour, totals FROM items WHERE pk = ? AND sk = ? AND hour IS NOT NULL"
_APPEND = "INSERT INTO changes(pk, sk, hour, added) VALUES(?, ?, ?, ?)"
_READ = "SELECT sequence, pk, sk, hour, added FROM changes WHERE sequence > ? ORDER BY sequence LIMIT ?"
_TRIM = "DELETE FROM changes WHERE sequence <= ?"
_OLDEST = "SELECT hour FROM changes ORDER BY sequence LIMIT 1"
_FORGET = (
    "DELETE FROM changes WHERE sequence IN (SELECT sequence FROM changes ORDER BY sequence LIMIT 1000) AND hour < ?"
)


# Most items of a file are no buckets. A scan that passes them all to find the next bucket would take long.
_ROWS_PER_SCAN = 256


class RowSpan(NamedTuple):
    """How many rows of items there are in a span, and the id of the last, the start of the span if there are none."""

    found: int
    last: int


def close(cursor: sqlite3.Cursor, key: Key, old: Item, new: Item, hour: int) -> Opened | None:
    """Log what a bucket has used, if this write ends its hour or the bucket itself; answer what to open it with."""
    if key.sk != BUCKET:
        return None
    opened = None
    if old:
        found_hour, text = cursor.execute(_OPENED, key).fetchone()
        opened = None if found_hour is None else Opened(found_hour, totals_of(text))
    found = logged(opened, old, new, hour)
    if found is None:
        return None
    _append(cursor, key, found.hour, found.added)
    return found.opened


def reopen(cursor: sqlite3.Cursor, key: Key, opened: Opened) -> None:
    """Begin to count a bucket from other totals."""
    cursor.execute(_OPEN, (opened.hour, text_of(opened.totals), *key))


def find_used(cursor: sqlite3.Cursor, span: tuple[int, int]) -> tuple[list[Key], int | None]:
    """Those of the next so many buckets after a row id that have used something, and where to go on, None at the end.

    At most 256 rows are looked at, so there may be no bucket though more follow.

    Raises:
        CorruptItemError: the text of a bucket is damaged.
    """
    start, limit = span
    rows = next_rows(cursor, (start, _ROWS_PER_SCAN))
    found = cursor.execute(_SCAN, (start, rows.last, limit)).fetchall()
    used = [Key(pk, sk) for _, pk, sk, body, totals in found if _added(Key(pk, sk), body, totals)]
    if len(found) == limit:
        return used, found[-1][0]
    return used, rows.last if rows.found == _ROWS_PER_SCAN else None


def next_rows(cursor: sqlite3.Cursor, span: tuple[int, int]) -> RowSpan:
    """The next so many rows after a row id."""
    found, last = cursor.execute(_NEXT_ROWS, span).fetchone()
    return RowSpan(found, span[0] if last is None else last)


def log_used(cursor: sqlite3.Cursor, keys: list[Key]) -> None:
    """Log what buckets have used so far; the hour they were opened in goes on."""
    for key in keys:
        found = cursor.execute(_BODY, key).fetchone()
        if found is not None:
            body, hour, totals = found
            _append(cursor, key, hour, _added(key, body, totals))
            reopen(cursor, key, Opened(hour, row_of_text(key, body).item))


def read(cursor: sqlite3.Cursor, span: tuple[int, int]) -> list[Change]:
    """The next so many changes after a sequence."""
    rows = cursor.execute(_READ, span).fetchall()
    return [change(sequence, Key(pk, sk), hour, totals_of(text)) for sequence, pk, sk, hour, text in rows]


def trim(cursor: sqlite3.Cursor, up_to: int) -> None:
    """Forget the changes up to a sequence, included."""
    cursor.execute(_TRIM, (up_to,))


def is_overdue(cursor: sqlite3.Cursor, before_hour: int) -> bool:
    """Say whether the log begins before an hour."""
    oldest: tuple[Any, ...] | None = cursor.execute(_OLDEST).fetchone()
    return oldest is not None and oldest[0] < before_hour


def forget(cursor: sqlite3.Cursor, before_hour: int) -> None:
    """Forget some of the oldest changes, those from before an hour."""
    cursor.execute(_FORGET, (before_hour,))


def _added(key: Key, body: str, totals: str) -> dict[str, int]:
    return added(totals_of(totals), row_of_text(key, body).item)


def _append(cursor: sqlite3.Cursor, key: Key, hour: int, amounts: dict[str, int]) -> None:
    """Log a difference, if there is one."""
    if amounts:
        cursor.execute(_APPEND, (*key, hour, json.dumps(amounts)))
