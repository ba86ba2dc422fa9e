"""Changes told to the audit: one transaction of change and event, tried again while others get between."""

from collections.abc import Awaitable, Callable, Sequence

from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import Change, check_principal, record
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Committed, Unavailable
from zae_limiter.schema import audit_item
from zae_limiter.schema.operations import Operation

_SECONDS_PER_DAY = 24 * 3600
_MOST_TRIES = 16


async def make_change(scope: Scope, change: Change, decide: Callable[[], Awaitable[Sequence[Operation]]]) -> None:
    """Carry out a change and tell the audit, in one transaction.

    ``decide`` reads what there is and returns the operations, conditioned on what was read; it is asked again when
    others were faster. No operations: there is nothing to change, and nothing is told.

    Raises:
        RateLimiterUnavailable: The table did not answer, or others kept changing the same records.
    """
    check_principal(change.principal)
    outcome: object = None
    for _ in range(_MOST_TRIES):
        operations = await decide()
        if not operations:
            return
        token = f"change-{next(scope.client.nonces)}"
        outcome = await scope.table.transact([*operations, _event(scope, change)], token)
        if isinstance(outcome, Committed):
            return
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)
    raise RateLimiterUnavailable(TimeoutError(f"others kept changing {change.entity_id!r}: {outcome}"))


def _event(scope: Scope, change: Change) -> Operation:
    now_ms = scope.now_ms()
    # Nonces rise, so that a client's changes within one millisecond are told in the order they were made.
    event = record(change, now_ms, next(scope.client.nonces))
    expires_s = now_ms // 1000 + scope.settings.audit_retention_days * _SECONDS_PER_DAY
    return audit_item.write(scope.namespace_id, event, expires_s)
