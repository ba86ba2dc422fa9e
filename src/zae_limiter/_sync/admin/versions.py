"""The version of a table, as users ask for it."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.version import VersionRecord


class VersionVerbs:
    """Reads the version record."""

    _scope: Scope

    def get_version_record(self) -> VersionRecord | None:
        """Return what the table says of its own version, None if it says nothing."""
        return VersionStore(self._scope.client).read()
