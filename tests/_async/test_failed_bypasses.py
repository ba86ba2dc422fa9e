"""What is given back if an acquire fails that takes for several entities with a bypass."""

import pytest

from zae_limiter import Also, Limit, RateLimiter, RateLimiterUnavailable
from zae_limiter.core.outcome import Unavailable

from .clients import Wrapped, another, own_level

RPM = Limit.per_minute("rpm", 60)


class BrokenFor(Wrapped):
    """A table that is unavailable for writes to the bucket of one entity."""

    entity = "second"

    async def write(self, operation, until_s=None):
        if f"BUCKET#{self.entity}#" in operation.key.pk:
            return Unavailable(ConnectionError("the test has cut the connection"), ambiguous=False)
        return await super().write(operation, until_s)


async def test_acquire_that_fails_for_the_second_bypass_gives_the_first_one_back(repo):
    """All or none: also a request that nothing rejects is given back if another one fails."""
    await repo.set_system_defaults([RPM])
    for entity in ("first", "second"):
        await repo.create_entity(entity)
        await repo.set_bypass(entity, True)
        async with RateLimiter(repo).acquire(entity, "gpt-4", {"rpm": 1}):
            pass
    limiter = RateLimiter(another(repo, BrokenFor))

    with pytest.raises(RateLimiterUnavailable):
        await limiter.acquire("first", "gpt-4", {"rpm": 5}, also=[Also("second", "gpt-4", {"rpm": 5})]).__aenter__()

    assert 59 == (await own_level(RateLimiter(repo), "first"))["rpm"]
