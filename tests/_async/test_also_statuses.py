"""What a lease of several requests reports of a bucket that they share."""

import pytest

from zae_limiter import Also, Limit, RateLimiter


@pytest.fixture
async def lease(repo):
    """A lease of two keys under one project, each of which has 1,000 tokens."""
    await repo.set_system_defaults([Limit.per_day("tpd", 1_000)])
    await repo.create_entity("project")
    for key in ("key-1", "key-2"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    also = [Also("key-2", "gpt-4", {"tpd": 20})]
    async with RateLimiter(repo).acquire("key-1", "gpt-4", {"tpd": 10}, also=also) as entered:
        yield entered


async def test_remaining_is_the_least_of_all_buckets(lease):
    """Both keys were taken from the project."""
    assert {"tpd": 970} == lease.remaining


async def test_statuses_of_a_shared_bucket_count_the_adjustments_of_all_requests(lease):
    """They are written as one sum when the lease ends."""
    await lease.adjust(tpd=100)
    await lease.also[0].adjust(tpd=200)

    assert {"key-1": 890, "key-2": 780, "project": 670} == {one.entity_id: one.available for one in lease.statuses}
