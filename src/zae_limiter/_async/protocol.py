"""RepositoryProtocol: what the limiter calls on a repository, and the repository behind any wrappers."""

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

from zae_limiter._async.store.scope import Scope
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.status import BackendCapabilities

_WRAPPER = ("name", "ensure_infrastructure", "ping", "close", "wrapped")
# A mock answers `wrapped` for ever.
_MOST_WRAPPERS = 16


@runtime_checkable
class RepositoryProtocol(Protocol):
    """A repository, or a wrapper that adds to one and exposes it as ``wrapped``.

    A limiter calls these verbs and the admin verbs on the wrapper. Admin verbs that the wrapper lacks are called on the
    repository that it wraps. Tokens are taken from that repository directly.
    """

    @property
    def name(self) -> str:
        """The URL of the table."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The features of the table."""

    async def ensure_infrastructure(self) -> None:
        """Deploy what the repository needs."""

    async def ping(self) -> bool:
        """Return whether the table answers."""

    async def close(self) -> None:
        """Close the table."""


class ScopedRepository:
    """A repository with a scope of its own, which a wrapper does not have."""

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """The table, the namespace, and the client's memory of it."""

    @property
    def is_open(self) -> bool:
        """Whether there is a scope; False only for a deprecated constructor's before its first verb."""
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
    kind = RepositoryProtocol.__name__
    reason = f"must be opened, as by connect() or builder(), or be a {kind} that exposes such a one as `wrapped`"
    raise ValidationError("repository", repository, reason)
