"""A request that takes 0 of a limit: its debt is not the request's, and the request does not change it."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

from .clients import another, balance_of, buckets_in, take
from .shards import Other, levels
from .test_cascade_rejection import Distant

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture(params=[None, Distant], ids=["in place", "distant"])
def client(request, repo):
    return RateLimiter(another(repo, request.param))


@pytest.fixture(autouse=True)
async def _debt(repo, limiter):
    """A bucket that owes 40 of rpm."""
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 60}) as lease:
        await lease.adjust(rpm=40)


@pytest.mark.parametrize("consume", [{"rpm": 0}, {"rpm": 0, "tpm": 0}, {"rpm": 0, "tpm": 5}])
async def test_nothing_of_a_limit_in_debt_is_admitted(repo, client, consume):
    """Alone, or beside an amount of a limit that has enough; twice, as a client that has seen the debt too."""
    await take(client, consume)
    await take(client, consume)

    assert -40 == (await client.available("user-1", "gpt-4"))["rpm"]
    assert 6_000 - 2 * consume.get("tpm", 0) == (await client.available("user-1", "gpt-4"))["tpm"]


async def test_a_take_of_nothing_does_not_let_a_debt_expire(repo, client):
    """A bucket that comes back after its expiry is full: its debt would be forgiven."""
    await take(client, {"rpm": 0, "tpm": 5})

    (bucket,) = buckets_in(repo)
    assert "ttl" not in bucket


async def test_a_take_of_nothing_changes_no_balance(repo, client, clock):
    """Not even where the bucket is full and overflows."""
    clock.advance(3_600_000)
    before = balance_of(repo, "rpm")
    await take(client, {"rpm": 0})

    assert before == balance_of(repo, "rpm")


async def test_a_rejection_does_not_name_a_limit_that_nothing_was_asked_of(client):
    """The other one is short."""
    await take(client, {"rpm": 0, "tpm": 6_000})
    with pytest.raises(RateLimitExceeded) as caught:
        await take(client, {"rpm": 0, "tpm": 6_000})

    assert ["tpm"] == [one.limit_name for one in caught.value.violations]


async def test_nothing_needs_no_wait(client):
    """An acquire would be admitted now."""
    assert 0.0 == await client.time_until_available("user-1", "gpt-4", {"rpm": 0})


async def test_nothing_of_shards_in_debt_is_admitted(repo, client, clock):
    """Whether one shard is asked, or all; both owe, so no other shard can admit the request instead."""
    await Other(repo).split()
    clock.advance(3_600_000)
    for _ in range(2):
        async with client.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            await lease.adjust(rpm=35)
    owed = levels(repo, "rpm", clock.now_ms())
    for consume in ({"rpm": 0}, {"rpm": 0, "tpm": 4_000}):
        await take(client, consume)

    assert {0: -6_000, 1: -6_000} == owed == levels(repo, "rpm", clock.now_ms())
    assert 2_000 == (await client.available("user-1", "gpt-4"))["tpm"]


async def test_nothing_of_a_limit_in_debt_is_admitted_by_a_rebase(repo, client):
    """Limits that changed put the bucket on new ones in the same write."""
    await take(client, {"rpm": 0})
    await repo.set_system_defaults([Limit.per_minute("rpm", 30), TPM])
    await repo.invalidate_config_cache()
    other = RateLimiter(another(repo))
    await take(other, {"rpm": 0, "tpm": 1})

    assert -40 == (await other.available("user-1", "gpt-4"))["rpm"]
