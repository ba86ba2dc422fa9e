"""Turns a query into the SQL statement that reads its page. Pure."""

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
