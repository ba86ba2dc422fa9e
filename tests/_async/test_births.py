"""Credits reach only the bucket that was debited: a bucket recreated under the same name gets none."""

from contextlib import suppress

import pytest

from zae_limiter import Limit, RateLimiter
from zae_limiter.schema.operations import ItemExists, Key, Update

from .clients import another, balance_of, buckets_in, take
from .shards import OtherClient, stored, total

RPM = Limit("rpm", 1_000, 1, 365 * 86_400)


@pytest.fixture
async def limiter(repo):
    await repo.set_system_defaults([RPM])
    return RateLimiter(another(repo, reject_locally_ms=0))


async def recreate(repo, entity_id="user-1", consume=None):
    """Delete an entity with its buckets, then take from a new bucket as another client."""
    await repo.create_entity(entity_id)
    await repo.delete_entity(entity_id)
    await take(RateLimiter(another(repo)), consume or {"rpm": 0}, entity_id)


async def test_release_after_delete_and_recreate_does_not_credit_the_new_bucket(repo, limiter):
    """A bucket of 1,000 that was created during the lease stays at 1,000."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        await recreate(repo)
        await lease.release(rpm=100)

    assert 1_000_000 == balance_of(repo, "rpm")


async def test_exit_by_exception_after_recreate_does_not_credit_the_new_bucket(repo, limiter):
    """The tokens of the failed request were deleted with the old bucket."""
    with suppress(LookupError):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}):
            await recreate(repo, consume={"rpm": 300})
            raise LookupError

    assert 700_000 == balance_of(repo, "rpm")


async def test_adjust_up_after_recreate_debits_the_new_bucket(repo, limiter):
    """Consumption is always counted, in the bucket that exists."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        await recreate(repo)
        await lease.adjust(rpm=50)

    assert 950_000 == balance_of(repo, "rpm")


async def test_credit_of_a_client_that_has_seen_the_new_bucket_is_dropped(repo, limiter):
    """The lease remembers the bucket that it took from, not the bucket that its client saw last."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        await recreate(repo)
        await take(limiter, {"rpm": 10})
        await lease.release(rpm=100)

    assert 990_000 == balance_of(repo, "rpm")


async def test_release_after_rebase_split_and_merge_credits_the_bucket(repo, limiter):
    """Rebases, splits and merges keep the birth number."""
    other = OtherClient(repo)
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        births = {item["bi"] for item in buckets_in(repo)}
        await repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
        await take(RateLimiter(another(repo)), {"rpm": 0})
        await other.split()
        births |= {item["bi"] for item in buckets_in(repo)}
        await other.merge(0, 1)
        births |= {item["bi"] for item in buckets_in(repo)}
        await lease.release(rpm=100)

    assert 1 == len(births)
    assert 1_000_000 == balance_of(repo, "rpm")


async def test_release_to_shards_after_recreate_credits_no_shard_of_the_new_bucket(repo, limiter, clock):
    """The new bucket was split as well, and gets no tokens of the deleted one."""
    other = OtherClient(repo)
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 900}) as lease:
        await recreate(repo, consume={"rpm": 400})
        await other.grow(2)
        await lease.release(rpm=900)

    assert 2 == len(stored(repo))
    assert 600_000 == total(repo, "rpm", clock.now_ms())


async def test_release_to_the_shards_that_were_charged_is_given(repo, limiter, clock):
    """All shards of a bucket have the birth number of the shard they were split off."""
    other = OtherClient(repo)
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 900}) as lease:
        await lease.release(rpm=900)

    assert 1_000_000 == total(repo, "rpm", clock.now_ms())


async def test_parent_that_was_recreated_gets_no_credit(repo, limiter):
    """Each bucket of a lease has a birth number of its own: the child's credit is given."""
    await repo.create_entity("team")
    await repo.create_entity("user-1", parent_id="team", cascade=True)
    with suppress(LookupError):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}):
            await repo.delete_entity("user-1")
            await repo.delete_entity("team")
            await take(RateLimiter(another(repo)), {"rpm": 0}, "team")
            await take(RateLimiter(another(repo)), {"rpm": 0}, "user-1")
            raise LookupError

    assert [1_000_000, 1_000_000] == [item["b_rpm_tk"] for item in buckets_in(repo)]


async def test_consume_from_a_recreated_bucket_keeps_the_first_birth(repo, limiter):
    """A credit whose bucket is not certain is dropped: the lease took from both."""
    with suppress(LookupError):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
            await recreate(repo)
            await lease.consume(rpm=200)
            raise LookupError

    assert 800_000 == balance_of(repo, "rpm")


async def test_bucket_without_birth_number_gets_one_with_its_next_rebase(repo, limiter):
    """Until then credits reach any bucket of that name, as before."""
    await take(limiter, {"rpm": 100})
    await _forget_birth(repo)
    client = RateLimiter(another(repo))
    async with client.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        await lease.release(rpm=100)
    assert 900_000 == balance_of(repo, "rpm")

    await repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
    await take(RateLimiter(another(repo)), {"rpm": 0})

    (item,) = buckets_in(repo)
    assert 0 <= item["bi"] < 2**32


async def test_shard_without_birth_number_gets_that_of_shard_0(repo, limiter):
    """A client before birth numbers splits off shards without one; all shards must have the same."""
    other = OtherClient(repo)
    await take(limiter, {"rpm": 0})
    await other.split()
    await _forget_birth(repo, shard=1)
    await repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
    client = RateLimiter(another(repo, reject_locally_ms=0))
    await take(client, {"rpm": 900})

    births = {item["bi"] for item in buckets_in(repo)}
    assert (2, 1) == (len(buckets_in(repo)), len(births))


async def _forget_birth(repo, shard=0):
    """Make an item one that a version before birth numbers wrote."""
    item = stored(repo)[shard]
    key = Key(item["PK"], item["SK"])
    await repo.scope.table.write(Update(key, remove=("bi",), when=(ItemExists(),)))
