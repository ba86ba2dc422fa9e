"""Open the store of a command, and report which one it is if none was selected.

The limiter is imported when it is opened, because help and completion do not need it.
"""

import logging
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from random import Random
from typing import TYPE_CHECKING

from zae_limiter.cli._output import print_note, visible, working
from zae_limiter.cli._place import StoreChoice, Target, announce, require_database
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.names import ALL_RESOURCES, RESERVED_NAMESPACE
from zae_limiter.core.namespace import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.cli._options import LimitOptions
    from zae_limiter.core.limit import Limit
    from zae_limiter.core.warnings import LimitWarning

PATIENT_S = 10.0
"""Deadline in seconds of commands that a person waits for."""
QUICK_S = 1.0
"""Deadline in seconds of commands that limit a call, as in the library."""


@contextmanager
def opened(store: StoreChoice, deadline_s: float = PATIENT_S, *, create: bool = False) -> "Iterator[SyncRateLimiter]":
    """Open the store, and close it at the end. A stack is not changed.

    With ``create``, a file that does not exist is created. Commands that only read or delete pass False.

    Raises:
        click.ClickException: There is no database, and ``create`` is False.
        NamespaceNotFoundError: The namespace does not exist.
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
        VersionError: The table has another schema, or requires a newer client.
    """
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository

    _be_quiet()
    url = _ready_url(store.target, create)
    # The aggregator sends the warnings of a table on DynamoDB, which refuses a function for them.
    on_warning = _show_warning if store.target.place is None else None
    with (
        status_line(store.target),
        SyncRepository.open(url, namespace=store.namespace, deadline_s=deadline_s, on_warning=on_warning) as repo,
    ):
        yield SyncRateLimiter(repo)


@contextmanager
def opened_registry(target: Target, *, create: bool = False) -> "Iterator[SyncRepository]":
    """Open the registry of a store's namespaces, even if the default namespace does not exist.

    With ``create``, a file that does not exist is created.

    Raises:
        click.ClickException: There is no database, and ``create`` is False.
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
        VersionError: The table has another schema, or requires a newer client.
    """
    from zae_limiter._sync.open import Opening, located, open_client
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.clock import SystemClock
    from zae_limiter.core.settings import make_settings
    from zae_limiter.runtime.threads import Parallel

    _be_quiet()
    url = _ready_url(target, create)
    opening = Opening(located(url), make_settings(deadline_s=PATIENT_S), SystemClock(), Random())
    with status_line(target):
        client = open_client(opening, Parallel("auto"))
        with closing(client.table):
            with suppress(NamespaceNotFoundError):
                opening.namespace_id(client, DEFAULT_NAMESPACE)
            record = opening.check_version(client)
            yield SyncRepository(client.under(record).scope(RESERVED_NAMESPACE, RESERVED_NAMESPACE))


def limits_in_force(
    limiter: "SyncRateLimiter", options: "LimitOptions", named: Collection[str] | None = None
) -> "list[Limit]":
    """Return the limits of an entity for a resource, and others across resources.

    If all ``named`` limits are of the resource, those across resources are not read.
    """
    limits = options.limits or limiter.resolve_limits(options.entity_id, options.resource).limits or []
    known = {limit.name for limit in limits}
    if named is not None and known.issuperset(named):
        return limits
    across = limiter.resolve_limits(options.entity_id, ALL_RESOURCES).limits or []
    return [*limits, *(limit for limit in across if limit.name not in known)]


def status_line(target: Target) -> AbstractContextManager[object]:
    """Show a status line while a limiter on AWS is called; files answer immediately."""
    return nullcontext() if target.place is None else working(f"Calling {target.place.name}")


def _ready_url(target: Target, create: bool) -> str | None:
    """Return the URL to open, after reporting which file it is if none was selected."""
    if not create:
        require_database(target)
    announce(target)
    return target.url if create else target.existing_url


def _show_warning(warning: "LimitWarning") -> None:
    # Each warning is sent once, so the one that a command reaches is sent nowhere else.
    print_note(f"Warning: {visible(warning.text)}")


def _be_quiet() -> None:
    # Commands report in their own words what the library logs as warnings.
    logging.getLogger("zae_limiter").addHandler(logging.NullHandler())
