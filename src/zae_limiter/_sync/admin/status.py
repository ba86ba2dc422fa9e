"""How the limiter stands, as users ask for it."""  # generated from _async by tools/mirror.py; do not edit

from typing import Any

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.store.scope import Client, Scope
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.errors import InfrastructureNotFoundError, RateLimiterUnavailable
from zae_limiter.core.location import DynamoLocation, parse_location
from zae_limiter.core.status import Status
from zae_limiter.schema import version_item


class StatusVerbs:
    """Tells how table and stack are."""

    _scope: Scope

    def get_status(self) -> Status:
        """Return how the limiter stands: whether its table answers, its versions, and what is around it.

        What does not apply to the backend, or the caller is not allowed to see, is None.
        """
        from importlib import metadata

        client = self._scope.client
        known = {**_table(client), **runtime.in_thread(_around, client.location, client.session)}
        return Status(client_version=metadata.version("zae-limiter"), **known)


def _table(client: Client) -> dict[str, Any]:
    """Return what the table tells, and how long it takes to."""
    try:
        record = VersionStore(client).read()
        started_s = client.clock.monotonic_s()
        client.table.get(version_item.key())
        latency_ms = (client.clock.monotonic_s() - started_s) * 1000
        size = client.table.size()
    except (RateLimiterUnavailable, InfrastructureNotFoundError):
        return {"available": False}
    return {
        "available": True,
        "latency_ms": latency_ms,
        "schema_version": None if record is None else record.schema_version,
        "lambda_version": None if record is None else record.lambda_version,
        **({} if size is None else size._asdict()),
    }


def _around(url: str, session: Any) -> dict[str, Any]:
    """Return what is around a table; nothing is around a file, or memory."""
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        return {}
    # Whoever only limits does not pay for the clients.
    from zae_limiter.infra.clients import Clients
    from zae_limiter.infra.status import look_around

    return look_around(location.name, Clients(location.region, location.endpoint_url, session))
