"""Opening the store a command works on, and saying which one it is where nobody named it.

The limiter is loaded when it is opened: help and completion, which load commands, do without.
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
"""How long somebody at a terminal would rather wait for an answer than be told that there is none."""
QUICK_S = 1.0
"""How long a call that is to be limited waits, as in the library."""


@contextmanager
def opened(store: StoreChoice, deadline_s: float = PATIENT_S) -> "Iterator[SyncRateLimiter]":
    """Open the store, and close it in the end; a stack around it is left as it is.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
        InfrastructureError: The limiter is not there, cannot be used, or did not answer.
        VersionError: The table is of another schema, or asks for a newer client.
    """
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.repository import SyncRepository

    _be_quiet()
    announce(store.target)
    with asking(store.target), SyncRepository.open(store.url, namespace=store.namespace, deadline_s=deadline_s) as repo:
        yield SyncRateLimiter(repo)


@contextmanager
def opened_registry(target: Target) -> "Iterator[SyncRepository]":
    """Open the registry of a store's namespaces; a table that lacks even the default one will do.

    Raises:
        InfrastructureError: The limiter is not there, cannot be used, or did not answer.
        VersionError: The table is of another schema, or asks for a newer client.
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
    """Show that a limiter on AWS is being asked; files answer at once."""
    return nullcontext() if target.place is None else working(f"Asking {target.place.name}")


def _be_quiet() -> None:
    # What the library warns of, commands say in their own words.
    logging.getLogger("zae_limiter").addHandler(logging.NullHandler())
