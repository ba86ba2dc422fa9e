"""Upgrading a table to this package's schema; a table of an older one can be opened by nothing else."""

from random import Random
from typing import Any

from zae_limiter._async.opening import Opening, located, open_client
from zae_limiter._async.runtime import Parallel
from zae_limiter._async.store.migrations import Migrations
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import Migrated

_DEADLINE_S = 10.0


async def upgrade(
    url: str | None = None, *, dry_run: bool = False, principal: str | None = None, session: Any = None
) -> list[Migrated]:
    """Carry out the migrations that the table of a URL has yet to go through, and return what they did.

    A dry run writes nothing and returns what would be done. One that was interrupted is finished by calling it again.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this package's.
        InfrastructureError: The table cannot be used, or did not answer.
    """
    opening = Opening(located(url), make_settings(deadline_s=_DEADLINE_S), SystemClock(), Random(), session)
    client = await open_client(opening, Parallel("auto"))
    try:
        return await Migrations(client).run(dry_run=dry_run, principal=principal)
    finally:
        await client.table.close()
