"""SyncRepositoryProtocol: what the limiter needs of a repository."""  # generated from _async by tools/mirror.py; do not edit

from typing import Protocol

from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.status import BackendCapabilities


class SyncRepositoryProtocol(Protocol):
    """A place where limits and buckets are kept, seen through one namespace."""

    @property
    def scope(self) -> Scope:
        """The table, the namespace, and the client's memory of it."""

    @property
    def name(self) -> str:
        """Where it is."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What its table can do."""

    def ensure_infrastructure(self) -> None:
        """See that what it needs is deployed."""

    def ping(self) -> bool:
        """Say whether the table answers."""

    def close(self) -> None:
        """Let go of the table."""
