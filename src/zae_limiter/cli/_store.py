"""Open the store of a command, and report which one it is if none was selected.

The limiter is imported when it is opened, because help and completion do not need it.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from random import Random
from typing import TYPE_CHECKING

from zae_limiter.cli._output import working
from zae_limiter.cli._place import StoreChoice, Target, announce
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.namespace import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository

PATIENT_S = 10.0
"""Deadline in seconds of commands that a person waits for."""
QUICK_S = 1.0
"""Deadline in seconds of commands that limit a call, as in the library."""


@contextmanager
def opened(store: StoreChoice, deadline_s: float = PATIENT_S) -> "Iterator[SyncRateLimiter]":
    """Open the store, and close it at the end. A stack is not changed.

    Raises:
        NamespaceNotFoundError: The namespace does not exist.
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
        VersionError: The table has another schema, or requires a newer client.
    """
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository

    _be_quiet()
    announce(store.target)
    with asking(store.target), SyncRepository.open(store.url, namespace=store.namespace, deadline_s=deadline_s) as repo:
        yield SyncRateLimiter(repo)


@contextmanager
def opened_registry(target: Target) -> "Iterator[SyncRepository]":
    """Open the registry of a store's namespaces, even if the default namespace does not exist.

    Raises:
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
        VersionError: The table has another schema, or requires a newer client.
    """
    from zae_limiter._sync.open import Opening, located, open_client
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.clock import SystemClock
    from zae_limiter.core.settings import make_settings
    from zae_limiter.runtime.threads import Parallel

    _be_quiet()
    announce(target)
    opening = Opening(located(target.url), make_settings(deadline_s=PATIENT_S), SystemClock(), Random())
    with asking(target):
        client = open_client(opening, Parallel("auto"))
        with closing(client.table):
            with suppress(NamespaceNotFoundError):
                opening.namespace_id(client, DEFAULT_NAMESPACE)
            record = opening.check_version(client)
            yield SyncRepository(client.under(record).scope(RESERVED_NAMESPACE, RESERVED_NAMESPACE))


def asking(target: Target) -> AbstractContextManager[object]:
    """Show a status line while a limiter on AWS is called; files answer immediately."""
    return nullcontext() if target.place is None else working(f"Calling {target.place.name}")


def _be_quiet() -> None:
    # Commands report in their own words what the library logs as warnings.
    logging.getLogger("zae_limiter").addHandler(logging.NullHandler())
