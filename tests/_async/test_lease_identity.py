"""A lease says whose it is."""

from zae_limiter import Limit, RateLimiter, Repository


async def test_lease_has_its_entity_and_resource() -> None:
    """A load test counts leases by them, without listing what they hold."""
    async with await Repository.open("memory://") as repository:
        await repository.set_system_defaults([Limit.per_minute("rpm", 10)])
        async with RateLimiter(repository).acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            assert ("user-1", "gpt-4") == (lease.entity_id, lease.resource)
