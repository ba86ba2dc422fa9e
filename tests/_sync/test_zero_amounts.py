"""A request for 0 tokens of a limit: the debt of that limit neither rejects it nor changes."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded

from .clients import another, balance_of, buckets_in, take
from .shards import OtherClient, levels
from .test_cascade_rejection import AsynchronousTable

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture(params=[None, AsynchronousTable], ids=["in place", "distant"])
def client(request, repo):
    return SyncRateLimiter(another(repo, request.param))


@pytest.fixture(autouse=True)
def _debt(repo, limiter):
    """A bucket with a debt of 40 rpm."""
    limiter.set_system_defaults([RPM, TPM])
    with limiter.acquire("user-1", "gpt-4", {"rpm": 60}) as lease:
        lease.adjust(rpm=40)


@pytest.mark.parametrize("consume", [{"rpm": 0}, {"rpm": 0, "tpm": 0}, {"rpm": 0, "tpm": 5}])
def test_acquire_of_zero_tokens_of_a_limit_in_debt_is_admitted(repo, client, consume):
    """Alone or with other limits, and also by a client that has seen the debt."""
    take(client, consume)
    take(client, consume)

    assert -40 == (client.available("user-1", "gpt-4"))["rpm"]
    assert 6_000 - 2 * consume.get("tpm", 0) == (client.available("user-1", "gpt-4"))["tpm"]


def test_acquire_of_zero_tokens_sets_no_ttl_on_a_bucket_in_debt(repo, client):
    """A bucket recreated after its expiry is full, so the debt would be lost."""
    take(client, {"rpm": 0, "tpm": 5})

    (bucket,) = buckets_in(repo)
    assert "ttl" not in bucket


def test_acquire_of_zero_tokens_does_not_change_the_stored_balance(repo, client, clock):
    """This holds even if the bucket is full and overflows."""
    clock.advance(3_600_000)
    before = balance_of(repo, "rpm")
    take(client, {"rpm": 0})

    assert before == balance_of(repo, "rpm")


def test_rejection_does_not_report_a_limit_in_debt_with_a_zero_amount(client):
    """Only the other limit lacks tokens."""
    take(client, {"rpm": 0, "tpm": 6_000})
    with pytest.raises(RateLimitExceeded) as caught:
        take(client, {"rpm": 0, "tpm": 6_000})

    assert ["tpm"] == [one.limit_name for one in caught.value.violations]


def test_time_until_available_of_zero_tokens_in_debt_is_zero(client):
    """An acquire would be admitted now."""
    assert 0.0 == client.time_until_available("user-1", "gpt-4", {"rpm": 0})


def test_acquire_of_zero_tokens_from_shards_in_debt_is_admitted(repo, client, clock):
    """All shards are in debt, so no other shard could admit the request instead."""
    OtherClient(repo).split()
    clock.advance(3_600_000)
    for _ in range(2):
        with client.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            lease.adjust(rpm=35)
    owed = levels(repo, "rpm", clock.now_ms())
    for consume in ({"rpm": 0}, {"rpm": 0, "tpm": 4_000}):
        take(client, consume)

    assert {0: -6_000, 1: -6_000} == owed == levels(repo, "rpm", clock.now_ms())
    assert 2_000 == (client.available("user-1", "gpt-4"))["tpm"]


def test_acquire_of_zero_tokens_in_debt_is_admitted_together_with_a_rebase(repo, client):
    """Changed limits and the take are one write."""
    take(client, {"rpm": 0})
    repo.set_system_defaults([Limit.per_minute("rpm", 30), TPM])
    repo.invalidate_config_cache()
    other = SyncRateLimiter(another(repo))
    take(other, {"rpm": 0, "tpm": 1})

    assert -40 == (other.available("user-1", "gpt-4"))["rpm"]
