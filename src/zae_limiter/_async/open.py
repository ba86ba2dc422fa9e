"""Opens the table of a URL, and a namespace in it."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, assert_never

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.backoff import Backoff, Pauses
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client, Nonces, PutOff, Scope
from zae_limiter._async.store.versions import VersionStore, own_version
from zae_limiter._async.store.warnings import OnWarning, Warner
from zae_limiter._async.table import Table
from zae_limiter.clock import Clock
from zae_limiter.core.errors import StorageError, UnsupportedByBackendError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.location import (
    DynamoLocation,
    Location,
    MemoryLocation,
    SqliteLocation,
    dynamo_url,
    parse_location,
    sqlite_url,
)
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.settings import Settings
from zae_limiter.core.version import VersionRecord, check_client, check_schema, unknown_kind
from zae_limiter.tables.blocking import BlockingTable, Busy
from zae_limiter.tables.memory import MemoryTable

if TYPE_CHECKING:
    from zae_limiter._async.dynamodb_table import CallMeter
    from zae_limiter.infra.given_options import GivenOptions
    from zae_limiter.runtime.aio import Parallel

_WAITS = Pauses(0.005, 0.005)


@dataclass(frozen=True, slots=True)
class Opening:
    """What to open, and how; ``session`` is the caller's botocore or boto3 session, None if not given.

    ``stack_options`` are the options of the stack that the caller set, None if it set none. ``meter`` counts the calls
    to DynamoDB. ``on_warning`` is called with the warnings of an embedded table, None if they are only logged.
    """

    location: Location
    settings: Settings
    clock: Clock
    random: Random
    session: Any = None
    stack_options: "GivenOptions | None" = None
    meter: "CallMeter | None" = None
    on_warning: OnWarning | None = None

    def __post_init__(self) -> None:
        """Require a function for warnings that can be called.

        Raises:
            ValidationError: It is something else.
        """
        if self.on_warning is not None and not callable(self.on_warning):
            raise ValidationError("on_warning", self.on_warning, "must be a function that takes a LimitWarning")

    async def namespace_id(self, client: Client, name: str) -> str:
        """Return the id of a namespace; in a table that is created on opening, register the default namespace.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
        """
        store = NamespaceStore(client)
        found = await (store.register(name) if self._makes and name == DEFAULT_NAMESPACE else store.find(name))
        return found.id

    async def check_version(self, client: Client) -> VersionRecord | None:
        """Check that this package can use the table, and return its version record, None if it has none.

        A table that is created on opening gets a version record.

        Raises:
            IncompatibleSchemaError: Its items have another layout.
            UnknownKindError: It stores a kind of items that this package does not know.
            VersionMismatchError: It requires a newer client.
        """
        versions = VersionStore(client)
        record = await (versions.ensure() if self._makes else versions.read())
        if record is not None:
            check_schema(record, client.upgrade_command)
            if record.client_min_version is not None or unknown_kind(record.kinds) is not None:
                check_client(record, own_version(), client.upgrade_command)
        return record

    @property
    def _makes(self) -> bool:
        return not isinstance(self.location, DynamoLocation) or self.location.create


def located(url: str | None) -> Location:
    """Return the location of a URL; without a URL, a file in the user's data directory.

    Raises:
        ValidationError: The URL is invalid.
    """
    return SqliteLocation(default_path(), is_default=True) if url is None else parse_location(url)


async def open_scope(
    opening: Opening,
    parallel: "Parallel",
    namespace: str,
    prepare: Callable[[Client, VersionRecord | None], Awaitable[None]] | None = None,
) -> Scope:
    """Open the table and a namespace; ``prepare`` is called with the version record before the table is used.

    Raises:
        NamespaceNotFoundError: The namespace does not exist.
        VersionError: The table has another schema, or requires a newer client.
    """
    client = await open_client(opening, parallel)
    try:
        namespace_id = await opening.namespace_id(client, namespace)
        record = await opening.check_version(client)
        if prepare is not None:
            await prepare(client, record)
    except BaseException:
        await client.table.close()
        raise
    return client.under(record).scope(namespace, namespace_id)


async def open_client(opening: Opening, parallel: "Parallel") -> Client:
    """Open the table and return a client for it."""
    table: Table
    match opening.location:
        case MemoryLocation():
            table, where = _embedded(MemoryTable(), opening), "memory://"
        case SqliteLocation() as file:
            table, where = _embedded(await _open_file(file, opening), opening), sqlite_url(file.path)
        case DynamoLocation() as place:
            table, where = await _dynamo(place, opening), dynamo_url(place)
        case never:
            assert_never(never)
    clock, random = opening.clock, opening.random
    put_off = PutOff()
    warner = Warner(opening.on_warning, put_off) if table.inline else None
    chosen = {"session": opening.session, "stack_options": opening.stack_options, "put_off": put_off, "warner": warner}
    return Client(table, clock, random, opening.settings, parallel, where, Nonces(random), **chosen)


def _embedded(table: BlockingTable, opening: Opening) -> EmbeddedTable:
    return EmbeddedTable(table, opening.clock, opening.settings.deadline_s, opening.random.random)


async def _open_file(location: SqliteLocation, opening: Opening) -> BlockingTable:
    """Open a file on a thread, because that waits for the disk; retry until the deadline if the file is locked.

    Raises:
        StorageError: The file cannot be used, or stayed locked until the deadline.
    """
    started_s = opening.clock.monotonic_s()
    backoff = Backoff(opening.clock, lambda: 1.0, _WAITS, started_s + opening.settings.deadline_s)
    while True:
        try:
            return await runtime.in_thread(_file, location)
        except Busy as busy:
            if not await backoff.wait_to_deadline():
                waited_s = opening.clock.monotonic_s() - started_s
                reason = f"another program has kept it locked for {waited_s:.1f} s. End that program, or try again."
                raise StorageError(location.path, reason) from busy


def _file(location: SqliteLocation) -> BlockingTable:
    from zae_limiter.tables.private_file import tighten
    from zae_limiter.tables.sqlite.table import SqliteTable

    if location.is_default:
        # Older versions created the default file with the mode of the umask, so others may be able to read it.
        tighten(location.path)
    return SqliteTable(location.path, wait_s=0)


async def _dynamo(place: DynamoLocation, opening: Opening) -> Table:
    """Open a table of DynamoDB; create it if the location says so and it does not exist.

    Raises:
        UnsupportedByBackendError: There is a function for warnings, which would never be called.
    """
    if opening.on_warning is not None:
        hint = "its aggregator sends warnings to EventBridge, and to the topic warning_sns_topic of its stack"
        raise UnsupportedByBackendError("on_warning", "DynamoDB", hint)
    # Loading botocore takes long and would block the event loop, so a thread does it first.
    await runtime.in_thread(_load_dynamo)
    from zae_limiter._async.dynamodb_table import open_table

    deadline_s = opening.settings.deadline_s
    table = await open_table(place, deadline_s, opening.clock, opening.random, opening.session, opening.meter)
    if place.create:
        try:
            await table.create()
        except BaseException:
            await table.close()
            raise
    return table


def _load_dynamo() -> None:
    """Import the table of DynamoDB and its transports."""
    from zae_limiter._async.dynamodb_table import open_table  # noqa: F401 - only to load it


def default_path() -> str:
    """Return the path of the default file."""
    from platformdirs import user_data_path

    return str(user_data_path("zae-limiter", appauthor=False) / "limiter.db")
