"""Bucket and capacity queries: get_buckets and get_resource_capacity."""

import pytest

from zae_limiter import BucketState, EntityCapacity, Limit, RateLimiter, ResourceCapacity, ValidationError
from zae_limiter.core.entity import Entity
from zae_limiter.schema import entity_item

from .clients import START_MS

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture
async def limiter(repo):
    made = RateLimiter(repo)
    await made.set_system_defaults(LIMITS)
    return made


async def use(limiter, entity_id, resource, **consume):
    async with limiter.acquire(entity_id, resource, consume):
        pass


async def test_get_buckets_returns_balance_and_total_consumption_per_limit(repo, limiter, clock):
    """The balance is the one at the last refill."""
    await use(limiter, "user-1", "gpt-4", rpm=1, tpm=500)
    await use(limiter, "user-1", "gpt-4o", rpm=2)
    await use(limiter, "user-2", "gpt-4", rpm=3)
    clock.advance(1_000)

    rpm = BucketState("user-1", "gpt-4", "rpm", 59_000, START_MS, 60_000, 60_000, 60_000, 1_000)
    tpm = BucketState("user-1", "gpt-4", "tpm", 5_500_000, START_MS, 6_000_000, 6_000_000, 60_000, 500_000)
    assert [rpm, tpm] == await repo.get_buckets("user-1", "gpt-4")
    assert ["gpt-4", "gpt-4", "gpt-4o", "gpt-4o"] == [one.resource for one in await limiter.get_buckets("user-1")]
    assert [] == await repo.get_buckets("nobody")


async def test_get_buckets_returns_more_buckets_than_fit_one_page(repo, limiter, monkeypatch):
    """Pages are joined in the order of the resources."""
    monkeypatch.setattr("zae_limiter._async.store.bucket_queries._AT_ONCE", 3)
    for number in range(8):
        await use(limiter, "user-1", f"model-{number}", rpm=1)

    found = await repo.get_buckets("user-1")
    assert [f"model-{number // 2}" for number in range(16)] == [one.resource for one in found]


async def test_resource_capacity_sums_the_current_levels_of_all_entities(repo, limiter, clock):
    """Refill since the last write is included."""
    await use(limiter, "user-1", "gpt-4", rpm=30)
    await use(limiter, "user-2", "gpt-4", rpm=60)
    await use(limiter, "user-3", "gpt-4o", rpm=60)
    clock.advance(15_000)

    expected = ResourceCapacity(
        "gpt-4", "rpm", 120, 60, 50.0, [EntityCapacity("user-1", 60, 45), EntityCapacity("user-2", 60, 15)]
    )
    assert expected == await repo.get_resource_capacity("gpt-4", "rpm")
    assert expected == await limiter.get_resource_capacity("gpt-4", "rpm")
    assert ResourceCapacity("gpt-4", "other", 0, 0, 0.0, []) == await repo.get_resource_capacity("gpt-4", "other")


async def test_resource_capacity_with_parents_only_leaves_out_children(repo, limiter):
    """An entity that was never created, or was deleted, has no parent."""
    for entity_id in ("project", "key-1", "stranger", "gone"):
        await use(limiter, entity_id, "gpt-4", rpm=6)
    namespace_id, table = repo.scope.namespace_id, repo.scope.table
    await table.write(entity_item.create(namespace_id, Entity("project"), None))
    await table.write(entity_item.create(namespace_id, Entity("key-1", parent_id="project"), None))
    gone = entity_item.create(namespace_id, Entity("gone", parent_id="project"), None)
    await table.write(gone)
    await table.write(entity_item.tombstone(namespace_id, "gone", entity_item.facts_from_item(gone.item)))

    found = await repo.get_resource_capacity("gpt-4", "rpm", parents_only=True)
    assert ["gone", "project", "stranger"] == [one.entity_id for one in found.entities]
    assert (180, 162) == (found.total_capacity, found.total_available)


async def test_capacity_queries_with_invalid_names_raise(repo):
    """Names are checked before anything is read."""
    for names in (("a#b", None), ("a", "b#c")):
        with pytest.raises(ValidationError):
            await repo.get_buckets(*names)
    for names in (("b#c", "rpm"), ("gpt-4", "wcu")):
        with pytest.raises(ValidationError):
            await repo.get_resource_capacity(*names)
