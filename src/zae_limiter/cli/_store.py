"""Opening the store a command works on, and saying which one it is where nobody named it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.cli._place import StoreChoice, announce

PATIENT_S = 10.0
"""How long somebody at a terminal would rather wait for an answer than be told that there is none."""
QUICK_S = 1.0
"""How long a call that is to be limited waits, as in the library."""


@contextmanager
def opened(store: StoreChoice, deadline_s: float = PATIENT_S) -> Iterator[SyncRateLimiter]:
    """Open the store, and close it in the end; a stack around it is left as it is.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
        InfrastructureError: The limiter is not there, cannot be used, or did not answer.
        VersionError: The table is of another schema, or asks for a newer client.
    """
    # What the library warns of, commands say in their own words.
    logging.getLogger("zae_limiter").addHandler(logging.NullHandler())
    announce(store.target)
    with SyncRepository.open(store.url, namespace=store.namespace, deadline_s=deadline_s) as repository:
        yield SyncRateLimiter(repository)
