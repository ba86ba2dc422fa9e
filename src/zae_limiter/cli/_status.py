"""Collect the status of a limiter from its table, its stack and its version record."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from zae_limiter._sync.store.versions import Inspected
from zae_limiter._sync.upgrade import inspect
from zae_limiter.cli._place import StoreLocation, Target, file_of
from zae_limiter.core.errors import (
    InfrastructureError,
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    StackOperationError,
)
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.status import Status
from zae_limiter.infra.progress import is_failed, is_under_way
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.status import told


@dataclass(frozen=True, slots=True)
class DeployedStatus:
    """The status of a limiter, the outputs of its stack, and why the stack is unknown, None if it is known.

    ``store`` is the path of the file, or ``memory://``; None for a DynamoDB table.
    """

    status: Status
    outputs: Mapping[str, str] = field(default_factory=dict)
    unknown: str | None = None
    store: str | None = None

    @property
    def health(self) -> str:
        """The health of the limiter in a few words."""
        return health_of(self.status)


def health_of(status: Status) -> str:
    """Return the health of a limiter: first a change in progress, then the table, then the stack's last change."""
    stack = status.stack_status
    if stack is not None and is_under_way(stack):
        return "being changed"
    if not status.available:
        return "not answering"
    return "healthy" if stack is None or not is_failed(stack) else "answering, but its last change failed"


def look(target: Target) -> DeployedStatus:
    """Collect the status of a limiter.

    Raises:
        InfrastructureNotFoundError: There is neither a table nor a stack.
        InfrastructureError: There are no credentials, or the store is unusable.
    """
    if target.place is None:
        return DeployedStatus(status_of(inspect(target.existing_url)), store=file_of(target))
    try:
        inspected: Inspected | None = inspect(target.existing_url)
    except (InfrastructureNotFoundError, RateLimiterUnavailable) as error:
        return _look_around(target.place, None, error)
    return _look_around(target.place, inspected, None)


def status_of(inspected: Inspected | None, **others: Any) -> Status:
    """Return the status of a limiter whose table was inspected; ``inspected`` is None if it did not answer."""
    known: dict[str, Any] = {"available": False}
    if inspected is not None:
        known = {**inspected.status_fields(), "latency_ms": round(inspected.latency_ms, 3)}
    return Status(client_version=metadata.version("zae-limiter"), **{**known, **others})


def _look_around(
    place: StoreLocation, inspected: Inspected | None, failed: InfrastructureError | None
) -> DeployedStatus:
    """Inspect the stack of a table; without a stack, raise the failure of the table."""
    clients = place.region.clients()
    stack = Stack(place.name, clients)
    named: dict[str, Any] = {"name": place.name, "region": clients.region}
    try:
        state, facts = stack.describe(), stack.table_facts()
    except StackOperationError as error:
        # An identity that may only acquire has no permission to read the stack.
        if failed is not None:
            raise failed from error
        return DeployedStatus(status_of(inspected, **named), unknown=error.reason)
    if state is None and failed is not None:
        raise failed
    outputs = {} if state is None else state.outputs
    return DeployedStatus(status_of(inspected, **named, **told(state, facts)), outputs)
