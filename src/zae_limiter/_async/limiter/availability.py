"""What to do with a request while the store is unavailable."""

from zae_limiter._async.store.scope import Scope
from zae_limiter.core.status import OnUnavailable, check_on_unavailable


def chosen(asked: object, scope: Scope) -> OnUnavailable:
    """Return what to do: as the call says, else as the client was opened, else as the system's config says, else block.

    Raises:
        ValidationError: The call says neither allow nor block.
    """
    return (
        check_on_unavailable(asked)
        or scope.settings.on_unavailable
        or scope.caches.on_unavailable
        or OnUnavailable.BLOCK
    )
