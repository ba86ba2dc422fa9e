"""Opening the store a command works on, and saying which one it is where nobody named it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.cli._options import StoreChoice
from zae_limiter.cli._output import print_note


@contextmanager
def opened(store: StoreChoice) -> Iterator[SyncRateLimiter]:
    """Open the store, and close it in the end."""
    # What the library warns of, commands say in their own words.
    logging.getLogger("zae_limiter").addHandler(logging.NullHandler())
    with SyncRepository.open(store.url, namespace=store.namespace) as repository:
        announce(store, repository.name)
        yield SyncRateLimiter(repository)


def announce(store: StoreChoice, location: str) -> None:
    """Say where the data is if the user did not, and that memory keeps nothing."""
    if store.url is None:
        print_note(f"Using {shown(location)} (choose another with --url)")
    elif location == "memory://":
        print_note("memory:// lasts no longer than this command; sqlite:///file.db keeps its data")


def shown(location: str) -> str:
    """Return a location as a user knows it: a file by its path."""
    return location.removeprefix("sqlite:///")
