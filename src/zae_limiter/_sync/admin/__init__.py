"""The admin verbs, one room for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from zae_limiter._sync.admin.audit import AuditVerbs
from zae_limiter._sync.admin.config import ConfigVerbs
from zae_limiter._sync.admin.entities import EntityVerbs
from zae_limiter._sync.admin.namespaces import NamespaceVerbs
from zae_limiter._sync.admin.naming import Naming
from zae_limiter._sync.admin.status import StatusVerbs
from zae_limiter._sync.admin.usage import UsageVerbs
from zae_limiter._sync.admin.versions import VersionVerbs
from zae_limiter._sync.protocol import SyncRepositoryProtocol
from zae_limiter.core.status import CacheStats


class AdminVerbs(AuditVerbs, ConfigVerbs, EntityVerbs, NamespaceVerbs, StatusVerbs, UsageVerbs, VersionVerbs, Naming):
    """Every admin verb, and what stack and table are called."""


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
