"""Opening a table: which one a URL names, and the namespace in it."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import assert_never

from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter._async.runtime import Parallel
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client, nonces
from zae_limiter.clock import Clock
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.location import DynamoLocation, MemoryLocation, SqliteLocation, parse_location, sqlite_url
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.settings import Settings
from zae_limiter.tables.blocking import BlockingTable
from zae_limiter.tables.memory import MemoryTable


@dataclass(frozen=True, slots=True)
class Opening:
    """What is to be opened, and how; without a URL it is a file in the user's data directory."""

    url: str | None
    settings: Settings
    clock: Clock
    random: Random

    async def namespace_id(self, client: Client, name: str) -> str:
        """Return the id of a namespace; the default one is there from the beginning."""
        store = NamespaceStore(client)
        found = await (store.register(name) if name == DEFAULT_NAMESPACE else store.find(name))
        return found.id


async def open_client(opening: Opening, parallel: Parallel) -> Client:
    """Open the table and return a client of it."""
    location = SqliteLocation(default_path()) if opening.url is None else parse_location(opening.url)
    match location:
        case MemoryLocation():
            table, where = _embedded(MemoryTable(), opening), "memory://"
        case SqliteLocation(path=path):
            table, where = _embedded(_file(path), opening), sqlite_url(path)
        case DynamoLocation():
            raise ValidationError(
                "url", opening.url, "DynamoDB comes with the next release; use sqlite:///file.db until then"
            )
        case never:
            assert_never(never)
    clock, random = opening.clock, opening.random
    return Client(table, clock, random, opening.settings, parallel, where, nonces(random))


def _embedded(table: BlockingTable, opening: Opening) -> EmbeddedTable:
    return EmbeddedTable(table, opening.clock, opening.settings.deadline_s, opening.random.random)


def _file(path: str) -> BlockingTable:
    from zae_limiter.tables.sqlite import SqliteTable

    return SqliteTable(path)


def default_path() -> str:
    """Return the file that is used where nobody names another."""
    from platformdirs import user_data_path

    return str(Path(user_data_path("zae-limiter", appauthor=False)) / "limiter.db")
