"""A bypass lifts limits, not the rules for arguments."""

import pytest

from zae_limiter import Limit, RateLimiter, ValidationError


@pytest.mark.parametrize("amounts", [{"rpm": 10.5}, {"rpm": "1"}, {"rpm": None}, {"rpm": 10**19}, {"nope": 1}])
async def test_invalid_request_of_an_entity_with_a_bypass_is_an_error(repo, amounts):
    """Nothing is counted."""
    await repo.set_system_defaults([Limit.per_minute("rpm", 10)])
    await repo.create_entity("monitor")
    await repo.set_bypass("monitor", True)

    with pytest.raises(ValidationError):
        async with RateLimiter(repo).acquire("monitor", "gpt-4", amounts):
            pass

    assert {0} >= {one.total_consumed_milli for one in await repo.get_buckets("monitor", "gpt-4")}
