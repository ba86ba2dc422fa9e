"""The admin methods, one module for each kind of record; a repository and a limiter have all of them."""  # generated from _async by tools/mirror.py; do not edit

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from zae_limiter._sync.admin.entities import EntityVerbs
from zae_limiter._sync.admin.limits import LimitVerbs
from zae_limiter._sync.admin.namespaces import NamespaceVerbs
from zae_limiter._sync.admin.operators import OperatorVerbs
from zae_limiter._sync.admin.reports import ReportVerbs
from zae_limiter._sync.protocol import SyncRepositoryProtocol
from zae_limiter.core.location import deployed_name
from zae_limiter.core.status import CacheStats
from zae_limiter.infra.naming import table_name


class AdminVerbs(EntityVerbs, OperatorVerbs, LimitVerbs, NamespaceVerbs, ReportVerbs):
    """Every admin method, and the names of stack and table."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the stack on DynamoDB, else the URL of the table."""

    @property
    def stack_name(self) -> str:
        """The name of the CloudFormation stack.

        Raises:
            UnsupportedByBackendError: The table is a file or in memory, so it has no stack.
        """
        return deployed_name(self.name, "stack_name")

    @property
    def table_name(self) -> str:
        """The name of the DynamoDB table.

        Raises:
            UnsupportedByBackendError: The table is a file or in memory, so it has no name.
        """
        return table_name(deployed_name(self.name, "table_name"))


ADMIN_VERBS = tuple(
    name
    for name in dir(AdminVerbs)
    if isinstance(getattr(AdminVerbs, name), FunctionType) and not name.startswith("_") and name != "get_cache_stats"
)
"""The names of all admin methods that may wait."""


def _find(repository: Any, verb: str) -> Any:
    """Return a method of a repository; if a wrapper lacks it, that of the wrapped repository."""
    while not hasattr(repository, verb):
        repository = repository.wrapped
    return getattr(repository, verb)


def _delegated(verb: str) -> Callable[..., Any]:
    @wraps(getattr(AdminVerbs, verb))
    def delegated(self: "DelegatedVerbs", *positional: Any, **named: Any) -> Any:
        return _find(self._repository, verb)(*positional, **named)

    return delegated


class DelegatedVerbs(AdminVerbs):
    """Every admin method, called on the repository that the limiter was given, so that a wrapper can intercept it."""

    _repository: SyncRepositoryProtocol
    # In a class body, locals() is the namespace from which the class is made.
    locals().update({verb: _delegated(verb) for verb in ADMIN_VERBS})

    def get_cache_stats(self) -> CacheStats:
        """Return the statistics of the cache of limits."""
        stats: CacheStats = _find(self._repository, "get_cache_stats")()
        return stats
