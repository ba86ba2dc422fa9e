"""The token bucket as pure functions of one limit's state.

The balance of a state is its balance at ``last_refill_ms``. All amounts are integers: millitokens and milliseconds.

A limit of concurrent use has free slots as its balance. Nothing is refilled: cohorts of slots in use that end after
``last_refill_ms`` are added to it at their end. A function that consumes slots adds no cohort.
"""

from typing import NamedTuple

from zae_limiter.core.bucket import Baseline, LimitShare
from zae_limiter.core.names import check_amount
from zae_limiter.core.slots import SlotLevel
from zae_limiter.core.status import BucketState, LimitStatus


class RefillResult(NamedTuple):
    """A balance, and the time at which it is valid."""

    new_tokens_milli: int
    new_last_refill_ms: int


class ConsumeResult(NamedTuple):
    """The result of `try_consume`; on failure the balance contains the refill and nothing is consumed."""

    success: bool
    new_tokens_milli: int
    new_last_refill_ms: int
    available: int
    retry_after_seconds: float


def refill_bucket(state: BucketState, now_ms: int) -> RefillResult:
    """Add the refill up to ``now_ms`` to a balance, and cut it at the capacity.

    Example:
        ```python
        >>> from zae_limiter.bucket import BucketState, refill_bucket
        >>> state = BucketState("user-1", "gpt-4", "rpm", 0, 0, 100_000, 100_000, 60_000)
        >>> refill_bucket(state, 600)
        RefillResult(new_tokens_milli=1000, new_last_refill_ms=600)

        ```
    """
    if state.schedule is not None:
        renewed = state.resets_at is not None and now_ms >= state.resets_at * 1000
        level = state.capacity_milli if renewed else state.tokens_milli
    elif state.hold_seconds:
        level = _slots(state).available_milli((now_ms, now_ms))
    else:
        level = _baseline(state).level(state.tokens_milli, now_ms)
    return RefillResult(level, max(now_ms, state.last_refill_ms))


def try_consume(state: BucketState, requested: int, now_ms: int) -> ConsumeResult:
    """Consume the requested tokens if they are available.

    Raises:
        ValidationError: The amount is negative or no whole number.
    """
    check_amount("requested", requested)
    level, as_of_ms = refill_bucket(state, now_ms)
    if would_refill_satisfy(state, requested, now_ms):
        left = level - requested * 1000
        return ConsumeResult(True, left, as_of_ms, left // 1000, 0.0)
    wait_s = calculate_retry_after(state, requested, now_ms)
    return ConsumeResult(False, level, as_of_ms, level // 1000, wait_s)


def force_consume(state: BucketState, amount: int, now_ms: int) -> RefillResult:
    """Consume tokens even if too few are available; the balance may become negative. A negative amount adds tokens."""
    level, as_of_ms = refill_bucket(state, now_ms)
    return RefillResult(min(state.capacity_milli, level - amount * 1000), as_of_ms)


def calculate_retry_after(state: BucketState, requested: int, now_ms: int) -> float:
    """Return the seconds until the request would be admitted, or infinity if it exceeds the capacity.

    For a limit of concurrent use, these are the most seconds if no lease renews its slots.
    """
    if requested * 1000 > state.capacity_milli:
        return float("inf")
    if state.schedule is not None:
        lacks = not would_refill_satisfy(state, requested, now_ms) and state.resets_at is not None
        return max(0, (state.resets_at or 0) * 1000 - now_ms) / 1000 if lacks else 0.0
    if state.hold_seconds:
        return _slots(state).wait_ms(requested * 1000, (now_ms, now_ms)) / 1000
    return max(0, _baseline(state).ready_ms(state.tokens_milli, requested * 1000) - now_ms) / 1000


def calculate_available(state: BucketState, now_ms: int) -> int:
    """Return the available tokens, rounded down; negative if the bucket is in debt."""
    return refill_bucket(state, now_ms).new_tokens_milli // 1000


def would_refill_satisfy(state: BucketState, requested: int, now_ms: int) -> bool:
    """Return whether the request would be admitted at ``now_ms``."""
    return refill_bucket(state, now_ms).new_tokens_milli >= requested * 1000


def build_limit_status(state: BucketState, requested: int, now_ms: int) -> LimitStatus:
    """Return the status of one limit for one request."""
    exceeded = not would_refill_satisfy(state, requested, now_ms)
    return LimitStatus(
        entity_id=state.entity_id,
        resource=state.resource,
        limit_name=state.limit_name,
        limit=state.limit,
        available=calculate_available(state, now_ms),
        requested=requested,
        exceeded=exceeded,
        retry_after_seconds=calculate_retry_after(state, requested, now_ms) if exceeded else 0.0,
        exact=not state.hold_seconds,
        in_use=state.in_use(now_ms) if state.hold_seconds else None,
        resets_at=state.resets_at,
    )


def _baseline(state: BucketState) -> Baseline:
    return Baseline.of(state.limit, state.last_refill_ms)


def _slots(state: BucketState) -> SlotLevel:
    # Cohorts that ended before the time of the balance are in it.
    cohorts = tuple([one for one in state.cohorts if one[0] * 1000 > state.last_refill_ms])
    return SlotLevel(LimitShare.of(state.limit), state.tokens_milli, cohorts)
