"""Looking at a table of any schema, and upgrading it to this package's; nothing else opens one of another."""

from random import Random
from typing import Any

from zae_limiter._async.open import Opening, located, open_client
from zae_limiter._async.store.migrations import Migrations
from zae_limiter._async.store.scope import Client
from zae_limiter._async.store.versions import Inspected, VersionStore
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import Migrated
from zae_limiter.runtime.aio import Parallel

_DEADLINE_S = 10.0


async def inspect(url: str | None = None, *, session: Any = None) -> Inspected:
    """Look at the table of a URL, whatever its schema.

    Raises:
        InfrastructureNotFoundError: There is no such table.
        InfrastructureError: The table cannot be used, or did not answer.
    """
    client = await _opened(url, session)
    try:
        return await VersionStore(client).inspect()
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
