"""The tables that the contract suite runs over, each behind the port; a DynamoDB engine joins by a line in ENGINES."""

from collections.abc import Callable
from pathlib import Path

from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter._async.table import Table
from zae_limiter.schema.operations import Key, Query
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite import SqliteTable

DEADLINE_S = 5.0


class FixedClock:
    """A clock that stands still until it is set."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


def memory(directory: Path, clock: FixedClock) -> Table:
    return EmbeddedTable(MemoryTable(), clock, DEADLINE_S, lambda: 0.5)


def sqlite(directory: Path, clock: FixedClock) -> Table:
    return EmbeddedTable(SqliteTable(directory / "limiter.db"), clock, DEADLINE_S, lambda: 0.5)


EMBEDDED: dict[str, Callable[[Path, FixedClock], Table]] = {"memory": memory, "sqlite": sqlite}
ENGINES = {**EMBEDDED}

KEY = Key("part", "sort")


def item(pk: str = "part", sk: str = "sort", **attributes: object) -> dict[str, object]:
    """An item with some attributes."""
    return {"PK": pk, "SK": sk, **attributes}


async def sort_keys(table: Table, query: Query) -> list[str]:
    """The sort keys of one page."""
    page = await table.query(query)
    return [str(found["SK"]) for found in page.items]


async def all_pages(table: Table, query: Query) -> list[list[tuple[str, str]]]:
    """The primary keys of every page, from the first to the last that is not empty."""
    pages = []
    start = None
    while True:
        page = await table.query(
            Query(
                query.pk, query.index, query.prefix, query.low, query.high, query.descending, query.limit, start=start
            )
        )
        pages.append([(str(found["PK"]), str(found["SK"])) for found in page.items])
        start = page.next
        if start is None:
            return [keys for keys in pages if keys]
