"""Decide whether an environment leads to a local AWS, and which of its variables do."""

from collections.abc import Mapping

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.location import DynamoLocation, parse_location

ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"
STORE_VARIABLE = "ZAE_LIMITER_URL"
PLACEHOLDER_KEY = "test"
"""Both keys of a local AWS, which accepts any."""

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def is_local(endpoint_url: str | None) -> bool:
    """Return whether an endpoint is on this machine; False for None."""
    # Imported here: it is large, and most commands do not ask.
    from urllib.parse import urlsplit

    try:
        return urlsplit(endpoint_url or "").hostname in _THIS_MACHINE
    except ValueError:
        return False


def variable_with(endpoint_url: str, environment: Mapping[str, str]) -> str | None:
    """Return the variable that leads to an endpoint, None if there is none."""
    if environment.get(ENDPOINT_VARIABLE) == endpoint_url:
        return ENDPOINT_VARIABLE
    return STORE_VARIABLE if _store_endpoint(environment) == endpoint_url else None


def local_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that lead to a local AWS. Keys other than its placeholders are the user's own."""
    found: list[str] = []
    if is_local(environment.get(ENDPOINT_VARIABLE)):
        found += [ENDPOINT_VARIABLE, *(name for name in _REGIONS if name in environment)]
    found += [name for name in _KEYS if environment.get(name) == PLACEHOLDER_KEY]
    return [*found, STORE_VARIABLE] if is_local(_store_endpoint(environment)) else found


def _store_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the endpoint of the store that the environment selects, None if it has none."""
    try:
        location = parse_location(environment.get(STORE_VARIABLE))
    except ValidationError:
        return None
    return location.endpoint_url if isinstance(location, DynamoLocation) else None
