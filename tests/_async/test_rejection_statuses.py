"""The statuses of a rejection are made when they are read, and show the bucket as the request found it."""

import pytest

from zae_limiter import Limit, RateLimitExceeded

from .clients import take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


async def test_statuses_read_after_other_calls_are_those_of_the_rejection(limiter, clock):
    """Later takes, refill and changed limits do not change what an error says."""
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, {"rpm": 58, "tpm": 10})
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, {"rpm": 3, "tpm": 100})

    await take(limiter, {"rpm": 2})
    clock.advance(30_000)
    await limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    await take(limiter, {"rpm": 1})

    found = [(one.limit_name, one.available, one.requested, one.limit.capacity) for one in caught.value.statuses]
    assert [("rpm", 2, 3, 60), ("tpm", 5_990, 100, 6_000)] == found
    assert 1.0 == caught.value.retry_after_seconds
