"""The interface that a limiter needs of a repository, and the search for the repository inside its wrappers."""

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

from zae_limiter._async.store.scope import Scope
from zae_limiter.core.repository_misuse import not_a_repository
from zae_limiter.core.status import BackendCapabilities

_WRAPPER = ("name", "ensure_infrastructure", "ping", "close", "wrapped")
# Bounds the search, because a mock has an endless chain of `wrapped`.
_MOST_WRAPPERS = 16


@runtime_checkable
class RepositoryProtocol(Protocol):
    """A repository, or a wrapper that exposes one as ``wrapped``.

    A limiter calls these methods and the admin methods on the wrapper. Admin methods that the wrapper lacks are called
    on the wrapped repository. Acquires always use the wrapped repository directly.
    """

    @property
    def name(self) -> str:
        """The name of the stack on DynamoDB, else the URL of the table."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The features of the table."""

    async def ensure_infrastructure(self) -> None:
        """Deploy the stack of the repository."""

    async def ping(self) -> bool:
        """Return whether the table responds."""

    async def close(self) -> None:
        """Close the table."""


class ScopedRepository:
    """A repository with a scope; a wrapper has none."""

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """The table, the namespace and its caches."""

    @property
    def is_open(self) -> bool:
        """Whether there is a scope; False after a deprecated constructor, until a method has opened the table."""
        return True


def unwrap(repository: object) -> ScopedRepository:
    """Return the repository itself, or the one inside its wrappers.

    Raises:
        ValidationError: It is neither a repository nor a wrapper of one.
    """
    found: Any = repository
    for _ in range(_MOST_WRAPPERS):
        if isinstance(found, ScopedRepository):
            return found
        if not all(hasattr(found, name) for name in _WRAPPER):
            break
        found = found.wrapped
    raise not_a_repository(repository, RepositoryProtocol.__name__.removesuffix("Protocol"))
