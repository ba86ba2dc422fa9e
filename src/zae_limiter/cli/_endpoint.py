"""Report a local AWS that does not run, to a command whose environment leads there."""

import os

import click

from zae_limiter.cli._hints import remember
from zae_limiter.core.local_endpoint import ENDPOINT_VARIABLE, is_local, variable_with

_ENDPOINT = "zae_limiter.endpoint"
_CONNECT_S = 0.5


def remember_endpoint(endpoint_url: str | None, *, is_aws: bool = True) -> None:
    """Store the endpoint of this command: the given one, that of the environment, or none for a file."""
    remember(_ENDPOINT, (endpoint_url or os.environ.get(ENDPOINT_VARIABLE, "")) if is_aws else "")


def stopped_endpoint_line() -> str | None:
    """Return how to start or leave the local AWS of this command, None if it runs or another one is used."""
    context = click.get_current_context(silent=True)
    endpoint_url = "" if context is None else str(context.meta.get(_ENDPOINT, ""))
    variable = variable_with(endpoint_url, os.environ)
    if variable is None or not is_local(endpoint_url) or _answers(endpoint_url):
        return None
    from urllib.parse import urlsplit

    from zae_limiter.infra.local import DEFAULT_PORT

    port = urlsplit(endpoint_url).port
    option = "" if port == DEFAULT_PORT else f" --port {port}"
    return (
        f"no server answers at {endpoint_url}, which {variable} names; start it: zae-limiter local up{option}, "
        'or stop using it: eval "$(zae-limiter local env --unset)"'
    )


def _answers(endpoint_url: str) -> bool:
    """Return whether a server accepts connections."""
    # Imported here, because only a failed command asks.
    import socket
    from urllib.parse import urlsplit

    place = urlsplit(endpoint_url)
    try:
        with socket.create_connection((place.hostname or "", place.port or 80), timeout=_CONNECT_S):
            return True
    except (OSError, ValueError):
        return False
