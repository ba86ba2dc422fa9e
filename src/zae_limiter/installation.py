"""Read how this copy was installed, and name the command that installs an extra of it.

The metadata is read when a message needs it, never at import.
"""

from importlib import metadata

from zae_limiter.core.errors import MissingExtraError
from zae_limiter.core.installation import PROJECT, Installation, origin_of

__all__ = ["extra_command", "missing_extra", "this_installation"]


def this_installation() -> Installation:
    """Return how this copy was installed; sources that were never installed have no metadata."""
    try:
        found = metadata.distribution(PROJECT)
    except metadata.PackageNotFoundError:
        return Installation()
    installer = (found.read_text("INSTALLER") or "").strip()
    return Installation(origin_of(found.read_text("direct_url.json")), tuple(found.requires or ()), installer)


def extra_command(extra: str, package: str) -> str:
    """Return the command that installs an extra of this copy; ``package`` is one of its packages."""
    return this_installation().extra_command(extra, package)


def missing_extra(extra: str, package: str) -> MissingExtraError:
    """Return the error for a package of an extra that is not installed."""
    return MissingExtraError(extra, package, extra_command(extra, package))
