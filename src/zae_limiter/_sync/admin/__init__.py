"""The admin verbs, one module for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any

from zae_limiter._sync.admin.entities import EntityVerbs
from zae_limiter._sync.admin.limits import LimitVerbs
from zae_limiter._sync.admin.namespaces import NamespaceVerbs
from zae_limiter._sync.admin.reports import ReportVerbs
from zae_limiter._sync.protocol import SyncRepositoryProtocol
from zae_limiter.core.location import deployed_at
from zae_limiter.core.status import CacheStats
from zae_limiter.infra.naming import table_name


class AdminVerbs(EntityVerbs, LimitVerbs, NamespaceVerbs, ReportVerbs):
    """Every admin verb, and the names of stack and table."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Where the data is kept."""

    @property
    def stack_name(self) -> str:
        """The name of its stack.

        Raises:
            UnsupportedByBackendError: It is a file, or memory, which have none.
        """
        return deployed_at(self.name, "stack_name").name

    @property
    def table_name(self) -> str:
        """The name of its table.

        Raises:
            UnsupportedByBackendError: It is a file, or memory, which have none.
        """
        return table_name(deployed_at(self.name, "table_name").name)


ADMIN_VERBS = tuple(
    name
    for name, _ in inspect.getmembers(AdminVerbs, inspect.isfunction)
    if not name.startswith("_") and name != "get_cache_stats"
)
"""All admin verbs that wait."""


def _find(repository: Any, verb: str) -> Any:
    """Return a verb of a repository; a wrapper that lacks it leaves it to the repository that it wraps."""
    while not hasattr(repository, verb):
        repository = repository.wrapped
    return getattr(repository, verb)


def _delegated(verb: str) -> Callable[..., Any]:
    @wraps(getattr(AdminVerbs, verb))
    def delegated(self: "DelegatedVerbs", *positional: Any, **named: Any) -> Any:
        return _find(self._repository, verb)(*positional, **named)

    return delegated


class DelegatedVerbs(AdminVerbs):
    """Every admin verb, called on the repository that the limiter was given: a wrapper of a repository sees it."""

    _repository: SyncRepositoryProtocol
    # In a class body, locals() is the namespace that the class is made of.
    locals().update({verb: _delegated(verb) for verb in ADMIN_VERBS})

    def get_cache_stats(self) -> CacheStats:
        """Say how the cache of limits is doing."""
        stats: CacheStats = _find(self._repository, "get_cache_stats")()
        return stats
