"""The version of a table, as users ask for it."""

from zae_limiter._async.store.scope import Scope
from zae_limiter._async.store.versions import VersionStore
from zae_limiter.core.version import VersionRecord


class VersionVerbs:
    """Reads the version record."""

    _scope: Scope

    async def get_version_record(self) -> VersionRecord | None:
        """Return what the table says of its own version, None if it says nothing."""
        return await VersionStore(self._scope.client).read()
