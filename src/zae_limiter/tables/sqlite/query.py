"""Turns a query into the SQL statement that reads its page, and reads rows and sizes."""

import sqlite3
from typing import Any

from zae_limiter.schema.operations import Query
from zae_limiter.tables.paging import range_of, start_of

Statement = tuple[str, tuple[str | int, ...]]


def statement_of(query: Query) -> Statement:
    """Return a statement that reads sort key, primary key and, from the table itself, the body.

    It reads one row more than the limit, which shows whether another page follows.
    """
    if query.index is None:
        sort, text = "sk", "SELECT sk, pk, sk, body FROM items WHERE pk = ?"
        values: list[str | int] = [query.pk]
    else:
        sort, text = "sort", "SELECT sort, pk, sk FROM entries WHERE place = ? AND part = ?"
        values = [query.index, query.pk]
    bounds = _bounds(query)
    order = "DESC" if query.descending else "ASC"
    start = start_of(query)
    text += "".join(f" AND {sort} {comparison} ?" for comparison, _ in bounds)
    values += [bound for _, bound in bounds]
    if start is not None:
        text += f" AND ({sort}, pk, sk) {'<' if query.descending else '>'} (?, ?, ?)"
        values += start
    text += f" ORDER BY {sort} {order}, pk {order}, sk {order}"
    if query.limit is not None:
        text += " LIMIT ?"
        values.append(query.limit + 1)
    return text, tuple(values)


def _bounds(query: Query) -> list[tuple[str, str]]:
    """Return the comparisons for the sort key.

    The start of a later page is one of them: with the row comparison alone, SQLite would read all earlier rows again.
    """
    wanted = range_of(query)
    start = start_of(query)
    low = wanted.low if start is None or query.descending else max(wanted.low, start[0])
    bounds = [(">=", low)]
    if wanted.below:
        bounds.append(("<", wanted.below))
    elif wanted.high:
        bounds.append(("<=", wanted.high))
    if start is not None and query.descending:
        bounds.append(("<=", start[0]))
    return bounds


def select(cursor: sqlite3.Cursor, statement: Statement) -> list[Any]:
    """Return every row a statement finds; none if a key cannot be encoded as UTF-8, because no row has such a key."""
    try:
        return cursor.execute(*statement).fetchall()
    except UnicodeEncodeError:
        return []


def measure(cursor: sqlite3.Cursor, _: None) -> tuple[int, int]:
    """Return the number of items in a file, and its size in bytes."""
    questions = ("SELECT count(*) FROM items", "PRAGMA page_count", "PRAGMA page_size")
    items, pages, bytes_per_page = (cursor.execute(question).fetchone()[0] for question in questions)
    return items, pages * bytes_per_page
