"""What is given back if an acquire fails that takes for several entities with a bypass."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Also, Limit, SyncRateLimiter, RateLimiterUnavailable
from zae_limiter.core.outcome import Unavailable

from .clients import Wrapped, another, own_level

RPM = Limit.per_minute("rpm", 60)


class BrokenFor(Wrapped):
    """A table that is unavailable for writes to the bucket of one entity."""

    entity = "second"

    def write(self, operation, until_s=None):
        if f"BUCKET#{self.entity}#" in operation.key.pk:
            return Unavailable(ConnectionError("the test has cut the connection"), ambiguous=False)
        return super().write(operation, until_s)


def test_acquire_that_fails_for_the_second_bypass_gives_the_first_one_back(repo):
    """All or none: also a request that nothing rejects is given back if another one fails."""
    repo.set_system_defaults([RPM])
    for entity in ("first", "second"):
        repo.create_entity(entity)
        repo.set_bypass(entity, True)
        with SyncRateLimiter(repo).acquire(entity, "gpt-4", {"rpm": 1}):
            pass
    limiter = SyncRateLimiter(another(repo, BrokenFor))

    with pytest.raises(RateLimiterUnavailable):
        limiter.acquire("first", "gpt-4", {"rpm": 5}, also=[Also("second", "gpt-4", {"rpm": 5})]).__enter__()

    assert 59 == (own_level(SyncRateLimiter(repo), "first"))["rpm"]
