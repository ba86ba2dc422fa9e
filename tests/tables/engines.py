"""The tables of the contract suite behind the port; the DynamoDB table runs on every engine."""

import functools
import uuid
from collections.abc import Callable
from pathlib import Path

import botocore.session
from botocore.credentials import Credentials

from tests.dynamodb import engines, raw
from zae_limiter._async.dynamodb_table import DynamoTable, Patience
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter._async.table import Table
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.clock import ServerClock, SystemClock
from zae_limiter.core.outcome import Item
from zae_limiter.schema.operations import Key, Query
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite.table import SqliteTable
from zae_limiter.transport.aio import Transport

DEADLINE_S = 60.0


class FixedClock:
    """A clock that shows the same time until it is set."""

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


@functools.cache
def account(engine: str) -> Account:
    """Return the connection settings of an engine, with test credentials."""
    session = botocore.session.Session()
    session._credentials = Credentials("engine", "secret")  # as boto3's session does with keys it was given
    return Account(EndpointOptions("limiter-contract", "us-east-1", engines.running(engine).url, DEADLINE_S), session)


async def dynamo(engine: str) -> DynamoTable:
    """A new table on an engine, which removes nothing by itself.

    Raises:
        EngineAbsentError: the engine is not installed.
    """
    clock = SystemClock()
    server = ServerClock(clock)
    caller = Transport(account(engine), clock, server)
    name = engines.fresh_table_name()
    table = DynamoTable(name, caller, server, Patience(clock, DEADLINE_S, lambda: 0.5))
    await table.create()
    never = {"TableName": name, "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": False}}
    assert 200 == raw.call(engines.running(engine).url, "UpdateTimeToLive", never).status
    return table


EMBEDDED: dict[str, Callable[[Path, FixedClock], Table]] = {"memory": memory, "sqlite": sqlite}
TABLES = [*EMBEDDED, *engines.ENGINES]

KEY = Key("part", "sort")


def item(pk: str = "part", sk: str = "sort", **attributes: object) -> dict[str, object]:
    """Return an item with these attributes."""
    return {"PK": pk, "SK": sk, **attributes}


def new_token() -> str:
    """Return an unused transaction token; an engine remembers tokens across tables."""
    return str(uuid.uuid4())


async def sort_keys(table: Table, query: Query) -> list[str]:
    """Return the sort keys of one page."""
    page = await table.query(query)
    return [str(found["SK"]) for found in page.items]


async def all_pages(table: Table, query: Query) -> list[list[tuple[str, str]]]:
    """Return the primary keys of every page, up to the last page that is not empty."""
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


async def all_of(table: Table, pk: str) -> list[Item]:
    """Return every item of a partition; a page may have any number of items."""
    page = await table.query(Query(pk))
    found = list(page.items)
    while page.next is not None:
        page = await table.query(Query(pk, start=page.next))
        found += page.items
    return found
