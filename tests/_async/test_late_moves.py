"""What a client does that notices a move, or the first limits across resources, only when its cached limits expire."""

import pytest

from zae_limiter import ALL_RESOURCES, Limit, RateLimiter

from .clients import AsynchronousTable, another, buckets_in, own_level

RPM = Limit.per_minute("rpm", 60)


@pytest.fixture(params=["in place", "at the same time"])
def client(request, repo):
    """A client with its own cache that writes in place, or one that sends writes at the same time."""
    return another(repo, AsynchronousTable if request.param == "at the same time" else None)


async def left(repo, *entities):
    """Return the requests left of each entity's own bucket."""
    return [(await own_level(RateLimiter(repo), entity))["rpm"] for entity in entities]


async def test_acquire_with_a_cached_link_from_before_two_moves_is_admitted(repo, client):
    """A chain that was never stored as a whole must not fail a request: its links are read again."""
    await repo.set_system_defaults([RPM])
    await repo.create_entity("a")
    await repo.create_entity("b")
    await repo.set_parent("a", "b", cascade=True)
    limiter = RateLimiter(client)
    async with limiter.acquire("a", "gpt-4", {"rpm": 1}):
        pass
    await repo.set_parent("a", None)
    await repo.set_parent("b", "a", cascade=True)
    client.scope.caches.forget_limits_of("b")

    async with limiter.acquire("b", "gpt-4", {"rpm": 1}) as lease:
        charged = sorted(entry.entity_id for entry in lease.entries)

    assert ["a", "b"] == charged


async def test_lease_that_consumes_after_a_move_settles_with_the_buckets_it_took_from(repo, client):
    """The first parent gave 5 and the second 3; each gets back what it gave."""
    await repo.set_system_defaults([RPM])
    for entity in ("key", "old", "new"):
        await repo.create_entity(entity)
    await repo.set_parent("key", "old", cascade=True)
    limiter = RateLimiter(client)

    async def fail():
        async with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
            await repo.set_parent("key", "new", cascade=True)
            client.scope.caches.forget_limits_of("key")
            await lease.consume(rpm=3)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()

    assert [60, 60, 60] == await left(repo, "key", "old", "new")


async def test_debit_of_a_lease_that_consumed_after_a_move_is_charged_to_a_parent(repo, client):
    """A key with a parent never uses tokens that no parent is charged for."""
    await repo.set_system_defaults([RPM])
    for entity in ("key", "old", "new"):
        await repo.create_entity(entity)
    await repo.set_parent("key", "old", cascade=True)
    limiter = RateLimiter(client)
    async with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
        await repo.set_parent("key", "new", cascade=True)
        client.scope.caches.forget_limits_of("key")
        await lease.consume(rpm=3)
        await lease.adjust(rpm=20)

    key, old, new = await left(repo, "key", "old", "new")
    assert 60 - key <= (60 - old) + (60 - new)


async def test_first_limits_across_resources_apply_once_a_client_reads_its_kinds_again(repo, client, clock):
    """Limits that it has read before it knew the kind are not used any more, although they are fresh."""
    await repo.set_system_defaults([RPM])
    limiter = RateLimiter(client)
    async with limiter.acquire("other", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(1_000)
    await repo.set_limits("key", [Limit.per_minute("rpm", 2)], ALL_RESOURCES)
    clock.advance(58_000)
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(5_000)
    async with limiter.acquire("other", "gpt-4", {"rpm": 1}):
        pass

    async with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        charged = [entry.resource for entry in lease.entries]

    assert ["gpt-4", ALL_RESOURCES] == charged


async def test_bucket_that_lost_a_limit_gets_back_only_what_it_gave(repo, client):
    """The limit still exists across resources, so the lease may take more of it, but only from there."""
    await repo.set_system_defaults([RPM])
    await repo.set_limits("key", [RPM], ALL_RESOURCES)
    limiter = RateLimiter(client)

    async def fail():
        async with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
            await repo.set_system_defaults([Limit.per_minute("tpm", 60)])
            client.scope.caches.forget_limits()
            await lease.consume(rpm=3)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()

    used = {item["PK"].split("#")[2]: item["b_rpm_tc"] for item in buckets_in(repo)}
    assert {"gpt-4": 0, ALL_RESOURCES: 0} == used
