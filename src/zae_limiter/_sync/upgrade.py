"""Inspects a table of any schema, and upgrades it to the schema of this package.

Every other way of opening a table rejects another schema.
"""  # generated from _async by tools/mirror.py; do not edit

from random import Random
from typing import Any

from zae_limiter._sync.open import Opening, located, open_client
from zae_limiter._sync.store.migrations import Migrations
from zae_limiter._sync.store.scope import Client
from zae_limiter._sync.store.versions import Inspected, VersionStore
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import Migrated
from zae_limiter.runtime.threads import Parallel

_DEADLINE_S = 10.0


def inspect(url: str | None = None, *, session: Any = None) -> Inspected:
    """Inspect the table of a URL, whatever its schema.

    Raises:
        InfrastructureNotFoundError: The table does not exist.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    client = _opened(url, session)
    try:
        return VersionStore(client).inspect()
    finally:
        client.table.close()


def upgrade(
    url: str | None = None, *, dry_run: bool = False, principal: str | None = None, session: Any = None
) -> list[Migrated]:
    """Carry out the pending migrations of the table of a URL, and return what they did.

    A dry run writes nothing and returns what would be done. Call it again to complete an interrupted upgrade.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this package's.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    client = _opened(url, session)
    try:
        return Migrations(client).run(dry_run=dry_run, principal=principal)
    finally:
        client.table.close()


def record_deployed(
    url: str, lambda_version: str | None, audit_retention_days: int | None = None, *, session: Any = None
) -> None:
    """Record the version of the aggregator that was deployed beside the table of a URL, None if none was.

    ``audit_retention_days`` is how many days all clients keep audit events; None leaves it unchanged.

    Raises:
        IncompatibleSchemaError: The table has another schema.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    client = _opened(url, session)
    try:
        VersionStore(client).set_deployed(lambda_version, audit_retention_days)
    finally:
        client.table.close()


def _opened(url: str | None, session: Any) -> Client:
    opening = Opening(located(url), make_settings(deadline_s=_DEADLINE_S), SystemClock(), Random(), session)
    return open_client(opening, Parallel("auto"))
