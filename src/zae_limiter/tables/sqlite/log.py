"""The log of what buckets have used, in a SQLite file. Functions that write need a transaction around them."""

import sqlite3
from typing import Any, NamedTuple

from zae_limiter.core.outcome import Item
from zae_limiter.schema.operations import Change, Key
from zae_limiter.tables.sqlite.text import row_of_text
from zae_limiter.tables.totals import (
    BUCKET,
    Logged,
    Opened,
    added,
    change_of_text,
    in_use_of,
    logged,
    logged_text,
    open_at,
    text_of,
    totals_of,
)

# SQLite does this in one step. If it returned every row, the thread would wait for the interpreter lock at each.
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


# Most items may be no buckets. Without a bound, a scan could take long to find the next bucket.
_ROWS_PER_SCAN = 256


class RowSpan(NamedTuple):
    """The number of rows in a range of row ids, and the last id; it is the start of the range if that is empty."""

    found: int
    last: int


def close(cursor: sqlite3.Cursor, key: Key, old: Item, new: Item, hour: int) -> Opened | None:
    """Log the usage of a bucket if this write is in another hour or deletes it.

    Return the new opening to store, or None.
    """
    if key.sk != BUCKET:
        return None
    opened = None
    if old:
        found_hour, text = cursor.execute(_OPENED, key).fetchone()
        opened = None if found_hour is None else Opened(found_hour, totals_of(text))
    found = logged(opened, old, new, hour)
    if found is None:
        return None
    _append(cursor, key, found)
    return found.opened


def reopen(cursor: sqlite3.Cursor, key: Key, opened: Opened) -> None:
    """Store the hour and the totals from which the next usage of a bucket is counted."""
    cursor.execute(_OPEN, (opened.hour, text_of(opened.totals), *key))


def find_used(cursor: sqlite3.Cursor, span: tuple[int, int]) -> tuple[list[Key], int | None]:
    """Return the keys of buckets with unlogged usage, and the row id to continue after, None at the end.

    ``span`` is the row id to start after, and the maximum number of buckets. At most 256 rows are read, so a result
    may be empty although more buckets follow.

    Raises:
        CorruptItemError: The text of a bucket is damaged.
    """
    start, limit = span
    rows = next_rows(cursor, (start, _ROWS_PER_SCAN))
    found = cursor.execute(_SCAN, (start, rows.last, limit)).fetchall()
    used = [Key(pk, sk) for _, pk, sk, body, totals in found if _added(Key(pk, sk), body, totals)]
    if len(found) == limit:
        return used, found[-1][0]
    return used, rows.last if rows.found == _ROWS_PER_SCAN else None


def next_rows(cursor: sqlite3.Cursor, span: tuple[int, int]) -> RowSpan:
    """Return the range of the next rows; ``span`` is the row id to start after, and the maximum number of rows."""
    found, last = cursor.execute(_NEXT_ROWS, span).fetchone()
    return RowSpan(found, span[0] if last is None else last)


def log_used(cursor: sqlite3.Cursor, keys: list[Key]) -> None:
    """Log what buckets have used so far, for the hour in which they were opened."""
    for key in keys:
        found = cursor.execute(_BODY, key).fetchone()
        if found is not None:
            body, hour, totals = found
            item, known = row_of_text(key, body).item, totals_of(totals)
            opened = open_at(hour, item, item)
            _append(cursor, key, Logged(hour, added(known, item), opened, in_use_of(known)))
            reopen(cursor, key, opened)


def read(cursor: sqlite3.Cursor, span: tuple[int, int]) -> list[Change]:
    """Return the next changes; ``span`` is the sequence number to start after, and the maximum number of changes."""
    rows = cursor.execute(_READ, span).fetchall()
    return [change_of_text(sequence, Key(pk, sk), hour, text) for sequence, pk, sk, hour, text in rows]


def trim(cursor: sqlite3.Cursor, up_to: int) -> None:
    """Delete the changes up to and including a sequence number."""
    cursor.execute(_TRIM, (up_to,))


def is_overdue(cursor: sqlite3.Cursor, before_hour: int) -> bool:
    """Return whether the oldest change is from before an hour."""
    oldest: tuple[Any, ...] | None = cursor.execute(_OLDEST).fetchone()
    return oldest is not None and oldest[0] < before_hour


def forget(cursor: sqlite3.Cursor, before_hour: int) -> None:
    """Delete up to 1,000 of the oldest changes, if they are from before an hour."""
    cursor.execute(_FORGET, (before_hour,))


def _added(key: Key, body: str, totals: str) -> dict[str, int]:
    return added(totals_of(totals), row_of_text(key, body).item)


def _append(cursor: sqlite3.Cursor, key: Key, found: Logged) -> None:
    """Log amounts, if there are any."""
    if found.added:
        cursor.execute(_APPEND, (*key, found.hour, logged_text(found.added, found.in_use)))
