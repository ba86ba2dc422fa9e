"""Inspects a table of any schema, and upgrades it to the schema of this package.

Every other way of opening a table rejects another schema.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from random import Random
from typing import Any

from zae_limiter._sync.open import Opening, located, open_client
from zae_limiter._sync.store.migrations import Migrations
from zae_limiter._sync.store.scope import Client
from zae_limiter._sync.store.versions import Inspected, VersionStore
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import Migrated, check_kind
from zae_limiter.runtime.threads import Parallel

_DEADLINE_S = 10.0


def inspect(url: str | None = None, *, session: Any = None) -> Inspected:
    """Inspect the table of a URL, whatever its schema.

    Raises:
        InfrastructureNotFoundError: The table does not exist.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    with _opened(url, session) as client:
        return VersionStore(client).inspect()


def upgrade(
    url: str | None = None, *, dry_run: bool = False, principal: str | None = None, session: Any = None
) -> list[Migrated]:
    """Carry out the pending migrations of the table of a URL, and return what they did.

    A dry run writes nothing and returns what would be done. Call it again to complete an interrupted upgrade.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this package's.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    with _opened(url, session) as client:
        return Migrations(client).run(dry_run=dry_run, principal=principal)


def allow_kinds(
    url: str | None, kinds: Sequence[str], *, principal: str | None = None, session: Any = None
) -> None:
    """Allow the table of a URL to store kinds of items. Clients that do not know one refuse the table from then on.

    Raises:
        ValidationError: This package does not know a kind.
        IncompatibleSchemaError: The table has another schema.
        KindNotAllowedError: The credentials do not allow a change of the version record.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    for kind in kinds:
        check_kind(kind)
    with _opened(url, session) as client:
        for kind in kinds:
            VersionStore(client).allow(kind, principal)


def record_deployed(
    url: str, lambda_version: str | None, audit_retention_days: int | None = None, *, session: Any = None
) -> None:
    """Record the version of the aggregator that was deployed beside the table of a URL, None if none was.

    ``audit_retention_days`` is how many days all clients keep audit events; None leaves it unchanged.

    Raises:
        IncompatibleSchemaError: The table has another schema.
        InfrastructureError: The table cannot be used, or did not respond.
    """
    with _opened(url, session) as client:
        VersionStore(client).set_deployed(lambda_version, audit_retention_days)


def _opened(url: str | None, session: Any) -> Client:
    opening = Opening(located(url), make_settings(deadline_s=_DEADLINE_S), SystemClock(), Random(), session)
    return open_client(opening, Parallel("auto"))
