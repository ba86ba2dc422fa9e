"""Looking at a table of any schema, and upgrading it to this package's; nothing else opens one of another."""

from dataclasses import dataclass
from random import Random
from typing import Any

from zae_limiter._async.open import Opening, located, open_client
from zae_limiter._async.store.migrations import Migrations
from zae_limiter._async.store.scope import Client
from zae_limiter._async.store.versions import VersionStore
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import TableSize
from zae_limiter.core.version import Migrated, VersionRecord
from zae_limiter.runtime.aio import Parallel
from zae_limiter.schema import version_item

_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a table says of its version, None if it says nothing, how long it took to answer, and what it holds."""

    record: VersionRecord | None
    latency_ms: float
    size: TableSize | None = None


async def inspect(url: str | None = None, *, session: Any = None) -> Inspected:
    """Look at the table of a URL, whatever its schema.

    Raises:
        InfrastructureNotFoundError: There is no such table.
        InfrastructureError: The table cannot be used, or did not answer.
    """
    client = await _opened(url, session)
    try:
        record = await VersionStore(client).read()
        started_s = client.clock.monotonic_s()
        await client.table.get(version_item.key())
        latency_ms = (client.clock.monotonic_s() - started_s) * 1000
        return Inspected(record, latency_ms, await client.table.size())
    finally:
        await client.table.close()


async def upgrade(
    url: str | None = None, *, dry_run: bool = False, principal: str | None = None, session: Any = None
) -> list[Migrated]:
    """Carry out the migrations that the table of a URL has yet to go through, and return what they did.

    A dry run writes nothing and returns what would be done. One that was interrupted is finished by calling it again.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this package's.
        InfrastructureError: The table cannot be used, or did not answer.
    """
    client = await _opened(url, session)
    try:
        return await Migrations(client).run(dry_run=dry_run, principal=principal)
    finally:
        await client.table.close()


async def record_deployed(
    url: str, lambda_version: str | None, audit_retention_days: int | None = None, *, session: Any = None
) -> None:
    """Write down which version of the aggregator was deployed beside the table of a URL, None for no aggregator.

    And for how long every client is to keep audit events; None leaves that as it is.

    Raises:
        IncompatibleSchemaError: The table has another schema.
        InfrastructureError: The table cannot be used, or did not answer.
    """
    client = await _opened(url, session)
    try:
        await VersionStore(client).set_deployed(lambda_version, audit_retention_days)
    finally:
        await client.table.close()


async def _opened(url: str | None, session: Any) -> Client:
    opening = Opening(located(url), make_settings(deadline_s=_DEADLINE_S), SystemClock(), Random(), session)
    return await open_client(opening, Parallel("auto"))
