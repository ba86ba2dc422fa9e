"""Which statuses of a rejection are violations."""

from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.core.status import LimitStatus


def status(limit: Limit, wait_s: float) -> LimitStatus:
    return LimitStatus("user-1", "gpt-4", limit.name, limit, 0, 1, True, wait_s)


def test_exceeded_soft_limit_is_no_violation() -> None:
    """It counts, and rejects nothing."""
    hard, soft = Limit.per_minute("rpm", 1), Limit.per_minute("tpm", 1, enforce=False)
    error = RateLimitExceeded([status(hard, 7.0), status(soft, 900.0)])

    assert ["rpm"] == [one.limit_name for one in error.violations]
    assert ["tpm"] == [one.limit_name for one in error.passed]
    assert 7.0 == error.retry_after_seconds
