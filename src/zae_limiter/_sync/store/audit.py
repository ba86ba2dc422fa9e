"""Writes audit events, each in one transaction with its change, and reads them."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zae_limiter._sync.backoff import Pauses
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.audit import AuditChange, AuditEvent, check_principal, namespace_audit_id, record
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.names import RESERVED_NAMESPACE
from zae_limiter.core.outcome import Cancelled, Committed
from zae_limiter.schema import audit_item, namespace_item, namespace_lists
from zae_limiter.schema.operations import Key, Operation, Query

_SECONDS_PER_DAY = 24 * 3600
# With the pauses between them, these take about 1.5 s.
_MOST_TRIES = 64
_EVENTS_AT_ONCE = 100
_PAUSES = Pauses(0.001, 0.05, full_jitter=True)


class PlannedChange(NamedTuple):
    """The operations of a change, and its audit events; without operations there is nothing to change."""

    operations: Sequence[Operation]
    changes: Sequence[AuditChange]


def make_change(scope: Scope, change: AuditChange, decide: Callable[[], Sequence[Operation]]) -> None:
    """Carry out a change and write its audit event, in one transaction.

    ``decide`` reads the current items and returns operations that require them to be unchanged. It is called again if
    another client was faster. If it returns no operations, nothing is written.

    Raises:
        RateLimiterUnavailable: The table did not respond, or other clients kept changing the same records.
        NamespaceNotFoundError: The namespace was deleted meanwhile.
    """
    check_principal(change.principal)

    def plan() -> PlannedChange:
        return PlannedChange(decide(), (change,))

    make_changes(scope, plan)


def make_changes(scope: Scope, decide: Callable[[], PlannedChange]) -> None:
    """Carry out several changes as `make_change` does, each with an event, all in one transaction."""
    outcome: object = None
    backoff = scope.client.backoff(_PAUSES)
    for _ in range(_MOST_TRIES):
        operations, changes = decide()
        if not operations:
            return
        events = [_event(scope, change) for change in changes]
        required = _required(scope)
        outcome = scope.client.transact([*operations, *events, *required], "change")
        if isinstance(outcome, Committed):
            return
        if required and isinstance(outcome, Cancelled) and outcome.reasons[-1] is not None:
            raise NamespaceNotFoundError(scope.namespace)
        backoff.wait()
    raise scope.client.unavailable(TimeoutError(f"other clients kept changing the same records: {outcome}"))


def read_events(scope: Scope, audit_id: str, limit: int, before: str | None) -> list[AuditEvent]:
    """Return up to ``limit`` events, newest first; unless ``before`` is None, only those older than it."""
    query = audit_item.newest_first(scope.namespace_id, audit_id, limit, before)
    found = IndexReader(scope.table).read(query)
    return [audit_item.from_item(item) for item in found.items]


def read_all_events(scope: Scope, limit: int, before: str | None) -> list[AuditEvent]:
    """Return events of a whole namespace as `read_events` does, including those of the namespace itself.

    These are in the registry, so they are read separately.
    """
    inside = _read_listed(scope, limit, before)
    itself = read_events(scope, namespace_audit_id(scope.namespace), limit, before)
    return sorted([*inside, *itself], key=lambda event: event.event_id, reverse=True)[:limit]


def _read_listed(scope: Scope, limit: int, before: str | None) -> list[AuditEvent]:
    """Return up to ``limit`` events that are stored in a namespace, newest first."""
    found: list[AuditEvent] = []
    query: Query | None = namespace_lists.events(scope.namespace_id, before)
    index = IndexReader(scope.table)
    # An index may lag behind the table, so an entry may have no item. More pages are read in its place.
    while query is not None and len(found) < limit:
        page = index.read(replace(query, limit=min(limit - len(found), _EVENTS_AT_ONCE)))
        keys = [Key(item["PK"], item["SK"]) for item in page.items]
        items = scope.table.batch_get(keys) if keys else []
        found += [audit_item.from_item(item) for item in items if item is not None]
        query = query.after(page)
    return found


def _required(scope: Scope) -> list[Operation]:
    """Return the check that the namespace is active, so that nothing is written after a purge.

    The registry's own namespace is always active.
    """
    reserved = scope.namespace_id == RESERVED_NAMESPACE
    return [] if reserved else [namespace_item.require_active(scope.namespace_id)]


def _event(scope: Scope, change: AuditChange) -> Operation:
    now_ms = scope.now_ms()
    # Nonces increase, so events of one client within the same millisecond keep their order.
    event = record(change, now_ms, next(scope.client.nonces))
    expires_s = now_ms // 1000 + scope.settings.audit_retention_days * _SECONDS_PER_DAY
    return audit_item.write(scope.namespace_id, event, expires_s)
