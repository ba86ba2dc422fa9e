"""What a lease says is left, after it has ended."""

from zae_limiter import Limit


async def test_lease_that_has_ended_counts_its_adjustment_once(repo, limiter):
    """It is part of the cached view once it is written."""
    await repo.set_system_defaults([Limit.per_day("tpd", 1_000)])
    async with limiter.acquire("user-1", "gpt-4", {"tpd": 100}) as lease:
        await lease.adjust(tpd=50)
        inside = lease.remaining

    assert inside == lease.remaining == {"tpd": 850}
