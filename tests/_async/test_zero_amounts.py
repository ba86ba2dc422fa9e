"""A request for 0 tokens of a limit: the debt of that limit neither rejects it nor changes."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

from .clients import another, balance_of, buckets_in, take
from .shards import OtherClient, levels
from .test_cascade_rejection import AsynchronousTable

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture(params=[None, AsynchronousTable], ids=["in place", "distant"])
def client(request, repo):
    return RateLimiter(another(repo, request.param))


@pytest.fixture(autouse=True)
async def _debt(repo, limiter):
    """A bucket with a debt of 40 rpm."""
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 60}) as lease:
        await lease.adjust(rpm=40)


@pytest.mark.parametrize("consume", [{"rpm": 0}, {"rpm": 0, "tpm": 0}, {"rpm": 0, "tpm": 5}])
async def test_acquire_of_zero_tokens_of_a_limit_in_debt_is_admitted(repo, client, consume):
    """Alone or with other limits, and also by a client that has seen the debt."""
    await take(client, consume)
    await take(client, consume)

    assert -40 == (await client.available("user-1", "gpt-4"))["rpm"]
    assert 6_000 - 2 * consume.get("tpm", 0) == (await client.available("user-1", "gpt-4"))["tpm"]


async def test_acquire_of_zero_tokens_sets_no_ttl_on_a_bucket_in_debt(repo, client):
    """A bucket recreated after its expiry is full, so the debt would be lost."""
    await take(client, {"rpm": 0, "tpm": 5})

    (bucket,) = buckets_in(repo)
    assert "ttl" not in bucket


async def test_acquire_of_zero_tokens_does_not_change_the_stored_balance(repo, client, clock):
    """This holds even if the bucket is full and overflows."""
    clock.advance(3_600_000)
    before = balance_of(repo, "rpm")
    await take(client, {"rpm": 0})

    assert before == balance_of(repo, "rpm")


async def test_rejection_does_not_report_a_limit_in_debt_with_a_zero_amount(client):
    """Only the other limit lacks tokens."""
    await take(client, {"rpm": 0, "tpm": 6_000})
    with pytest.raises(RateLimitExceeded) as caught:
        await take(client, {"rpm": 0, "tpm": 6_000})

    assert ["tpm"] == [one.limit_name for one in caught.value.violations]


async def test_time_until_available_of_zero_tokens_in_debt_is_zero(client):
    """An acquire would be admitted now."""
    assert 0.0 == await client.time_until_available("user-1", "gpt-4", {"rpm": 0})


async def test_acquire_of_zero_tokens_from_shards_in_debt_is_admitted(repo, client, clock):
    """All shards are in debt, so no other shard could admit the request instead."""
    await OtherClient(repo).split()
    clock.advance(3_600_000)
    for _ in range(2):
        async with client.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            await lease.adjust(rpm=35)
    owed = levels(repo, "rpm", clock.now_ms())
    for consume in ({"rpm": 0}, {"rpm": 0, "tpm": 4_000}):
        await take(client, consume)

    assert {0: -6_000, 1: -6_000} == owed == levels(repo, "rpm", clock.now_ms())
    assert 2_000 == (await client.available("user-1", "gpt-4"))["tpm"]


async def test_acquire_of_zero_tokens_in_debt_is_admitted_together_with_a_rebase(repo, client):
    """Changed limits and the take are one write."""
    await take(client, {"rpm": 0})
    await repo.set_system_defaults([Limit.per_minute("rpm", 30), TPM])
    await repo.invalidate_config_cache()
    other = RateLimiter(another(repo))
    await take(other, {"rpm": 0, "tpm": 1})

    assert -40 == (await other.available("user-1", "gpt-4"))["rpm"]
