"""The cost of an acquire: the calls made to the table, counted."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.schema.operations import Key

from .clients import another, buckets_in, counted, take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)


async def reject(limiter, consume):
    with pytest.raises(RateLimitExceeded):
        await take(limiter, consume)


@pytest.fixture
async def other_client(repo):
    """Another client, which also stores the limits."""
    limiter = RateLimiter(another(repo))
    await limiter.set_system_defaults([RPS, TPM])
    return limiter


async def test_first_acquire_of_a_new_bucket_makes_one_batch_read_and_one_transaction(repo, other_client):
    """The transaction also checks that the namespace is active."""
    limiter, table = counted(repo)

    await take(limiter, {"rps": 1, "tpm": 5})

    assert ["batch_get", "transact"] == table.drain()


async def test_first_acquire_of_an_existing_bucket_makes_one_batch_read_and_one_write(repo, other_client):
    """Another client has created the bucket."""
    await take(other_client, {"rps": 1})
    limiter, table = counted(repo)

    await take(limiter, {"rps": 1})

    assert ["batch_get", "write"] == table.drain()


async def test_first_acquire_with_cached_limits_reads_only_the_bucket(repo, other_client):
    """Cached limits are not read again."""
    await take(other_client, {"rps": 1})
    limiter, table = counted(repo)
    await limiter.resolve_limits("user-1", "gpt-4")
    table.drain()

    await take(limiter, {"rps": 1})

    assert ["get", "write"] == table.drain()


async def test_warm_admitted_acquire_makes_one_write(repo, other_client, clock):
    """With or without refill, full or not, and nothing is written at the exit of the lease."""
    limiter, table = counted(repo)
    await take(limiter, {"rps": 1})
    table.drain()
    costs = []

    for idle_ms in (0, 1, 100, 30_000, 0, 5_000):
        clock.advance(idle_ms)
        await take(limiter, {"rps": 2, "tpm": 10})
        costs.append(table.drain())

    assert [["write"]] * 6 == costs


async def test_second_acquire_with_the_same_passed_limits_makes_one_write(repo, other_client):
    """Passed limits cost no more than stored ones."""
    limiter, table = counted(repo)
    async with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [Limit.per_second("mine", 5)]):
        pass
    first = table.drain()
    async with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [Limit.per_second("mine", 5)]):
        pass

    assert (["batch_get", "transact"], ["write"]) == (first, table.drain())


async def test_lease_adjustments_make_one_write_at_exit(repo, other_client):
    """Any number of adjustments are sent together at the end of the lease."""
    limiter, table = counted(repo)
    await take(limiter, {"rps": 1})
    table.drain()

    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 10}) as lease:
        await lease.adjust(tpm=5)
        await lease.adjust(tpm=5, rps=1)
        await lease.adjust(tpm=-2)
        inside = table.drain()

    assert (["write"], ["write"]) == (inside, table.drain())


async def test_lease_adjustments_that_cancel_out_make_no_write(repo, other_client):
    """The net change is zero."""
    limiter, table = counted(repo)

    async with limiter.acquire("user-1", "gpt-4", {"rps": 1}) as lease:
        await lease.adjust(rps=3)
        await lease.adjust(rps=-3)
        table.drain()

    assert [] == table.drain()


async def test_lease_release_makes_one_immediate_write(repo, other_client):
    """The exit of the lease writes nothing more."""
    limiter, table = counted(repo)

    async with limiter.acquire("user-1", "gpt-4", {"rps": 3}) as lease:
        table.drain()
        await lease.release(rps=2)
        inside = table.drain()

    assert (["write"], []) == (inside, table.drain())


async def test_exception_in_a_lease_makes_one_write(repo, other_client):
    """All tokens are credited in that write."""
    limiter, table = counted(repo)

    async def failing():
        async with limiter.acquire("user-1", "gpt-4", {"rps": 3, "tpm": 20}) as lease:
            await lease.adjust(tpm=400)
            table.drain()
            raise KeyError

    with pytest.raises(KeyError):
        await failing()

    assert ["write"] == table.drain()


async def test_rejection_by_a_fresh_view_makes_no_calls(repo, other_client, clock):
    """Within a second of the last view, the table is not called."""
    limiter, table = counted(repo)
    await take(limiter, {"tpm": 6_000})
    table.drain()

    for _ in range(9):
        clock.advance(100)
        await reject(limiter, {"tpm": 6_000})

    assert [] == table.drain()


async def test_rejection_by_a_stale_view_makes_one_read(repo, other_client, clock):
    """The read makes the view fresh, so the next rejections make no calls."""
    limiter, table = counted(repo)
    await take(limiter, {"tpm": 6_000})
    table.drain()

    clock.advance(1_000)
    await reject(limiter, {"tpm": 6_000})
    first = table.drain()
    clock.advance(999)
    await reject(limiter, {"tpm": 6_000})

    assert (["get"], []) == (first, table.drain())


async def test_release_by_another_client_is_seen_when_the_view_is_stale(repo, other_client, clock):
    """A rejection from the cache lasts a second at most; then the bucket is read."""
    limiter, table = counted(repo)
    async with other_client.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        await reject(limiter, {"tpm": 1_000})
        await lease.release(tpm=5_000)
    table.drain()

    clock.advance(999)
    await reject(limiter, {"tpm": 1_000})
    within = table.drain()
    clock.advance(1)
    await take(limiter, {"tpm": 1_000})

    assert ([], ["get", "write"]) == (within, table.drain())


async def test_reject_locally_of_zero_reads_the_bucket_for_every_rejection(repo, other_client):
    """Tokens released by other clients are seen immediately."""
    limiter, table = counted(repo, reject_locally_ms=0)
    async with other_client.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        await reject(limiter, {"tpm": 1_000})
        table.drain()
        await reject(limiter, {"tpm": 1_000})
        rejected = table.drain()
        await lease.release(tpm=5_000)
        await take(limiter, {"tpm": 1_000})

    assert (["get"], ["get", "write"]) == (rejected, table.drain())


async def test_client_sees_its_own_release_immediately(repo, other_client):
    """The response to its own credit is its newest view."""
    limiter, table = counted(repo)
    async with limiter.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        await reject(limiter, {"tpm": 1_000})
        await lease.release(tpm=5_000)
        table.drain()

        await take(limiter, {"tpm": 1_000})

    assert ["write"] == table.drain()


async def test_takes_by_other_clients_cost_no_extra_write_while_enough_is_left(repo, other_client):
    """The condition of a take holds for a whole range of balances."""
    limiter, table = counted(repo)
    await take(limiter, {"tpm": 1})
    table.drain()
    await take(other_client, {"tpm": 5_000})

    await take(limiter, {"tpm": 999})

    assert ["write"] == table.drain()


async def test_wrong_prediction_of_a_full_bucket_costs_one_more_write(repo, other_client, clock):
    """The refusal returns the current item, so the second write succeeds."""
    limiter, table = counted(repo)
    await take(limiter, {"tpm": 1})
    table.drain()
    clock.advance(30_000)
    await take(other_client, {"tpm": 1_000})

    await take(limiter, {"tpm": 1})

    assert ["write", "write"] == table.drain()
    assert 4_999 == (await limiter.available("user-1", "gpt-4"))["tpm"]


async def test_refused_take_without_enough_tokens_is_rejected_without_a_read(repo, other_client):
    """The refusal returns the item with its current level."""
    limiter, table = counted(repo)
    await take(limiter, {"tpm": 1})
    table.drain()
    await take(other_client, {"tpm": 5_000})

    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, {"tpm": 1_000})

    assert (["write"], 999) == (table.drain(), caught.value.primary_violation.available)


async def test_acquire_without_speculative_writes_reads_before_every_write(repo, other_client):
    """The first acquire of a bucket makes its batch read as usual."""
    limiter, table = counted(repo, speculative_writes=False)
    await take(limiter, {"rps": 1})
    first = table.drain()
    await take(limiter, {"rps": 1})

    assert (["batch_get", "transact"], ["get", "write"]) == (first, table.drain())


async def test_rejection_without_speculative_writes_makes_one_read_and_no_write(repo, other_client):
    """The read shows that the tokens are missing."""
    limiter, table = counted(repo, speculative_writes=False)
    await take(limiter, {"rps": 1})
    await take(other_client, {"rps": 9})
    table.drain()

    await reject(limiter, {"rps": 1})

    assert ["get"] == table.drain()


async def test_acquire_of_a_deleted_bucket_creates_it_again(repo, other_client):
    """An expired bucket was full: its limits are read again and it is created."""
    limiter, table = counted(repo)
    await take(limiter, {"rps": 1})
    (bucket,) = buckets_in(repo)
    await repo.scope.table.batch_delete([Key(bucket["PK"], bucket["SK"])])
    table.drain()

    await take(limiter, {"rps": 3})

    assert ["write", "batch_get", "transact"] == table.drain()
    assert {"rps": 7, "tpm": 6_000} == await limiter.available("user-1", "gpt-4")


async def test_available_and_time_until_available_make_one_read_each(repo, other_client):
    """They read the bucket whatever the client has cached."""
    limiter, table = counted(repo)
    await take(limiter, {"rps": 1})
    table.drain()

    await limiter.available("user-1", "gpt-4")
    await limiter.time_until_available("user-1", "gpt-4", {"rps": 1})

    assert ["get", "get"] == table.drain()
