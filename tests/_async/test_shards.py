"""Sharded buckets that another client splits and merges: exactly the available tokens are admitted."""

from random import Random

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.schema.operations import Key

from .clients import CountingTable, Wrapped, another, counted, take
from .shards import BUCKET, OtherClient, counts, levels, stored, total, used

RPM = Limit("rpm", 80, 80, 3_600)
TPM = Limit("tpm", 8_000, 1_000, 60)


@pytest.fixture
async def limiter(repo):
    await repo.set_system_defaults([RPM, TPM])
    return RateLimiter(another(repo, reject_locally_ms=0))


@pytest.fixture
def other(repo):
    return OtherClient(repo)


def cold(repo, **settings):
    """Return a client with an empty cache."""
    return RateLimiter(another(repo, **settings))


async def rejected(limiter, consume):
    """Return the error of a request that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, consume)
    return caught.value


async def test_bucket_split_to_eight_shards_and_merged_back_keeps_its_total(repo, limiter, other, clock):
    """The total is the same at every shard count."""
    await take(limiter, {"rpm": 10})
    seen = []
    for shard_count in (2, 4, 8):
        await other.grow(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))
    for shard_count in (4, 2, 1):
        await other.shrink(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))

    assert [(2, 70_000), (4, 70_000), (8, 70_000), (4, 70_000), (2, 70_000), (1, 70_000)] == seen


async def test_cold_client_takes_all_tokens_of_all_shards(repo, limiter, other):
    """It finds the shards by itself, token by token."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    client = cold(repo, reject_locally_ms=0)
    for _ in range(79):
        await take(client, {"rpm": 1})

    assert 80 == used(repo, "rpm")
    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available


async def test_first_acquire_of_a_sharded_bucket_on_a_networked_table_makes_one_read(repo, limiter, other):
    """It takes from shard 0, which was read together with the limits; another shard would need a read of its own."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    calls = []
    for _ in range(8):
        client = another(repo, CountingTable)
        client.scope.table.inline = False
        await take(RateLimiter(client), {"rpm": 1})
        calls.append(client.scope.table.drain())

    assert [["batch_get", "write"]] * 8 == calls


async def test_warm_client_of_a_sharded_bucket_takes_with_one_write(repo, limiter, other):
    """Once it has seen all shards, the cost is that of one shard."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client, table = counted(repo)
    for _ in range(40):
        await take(client, {"rpm": 1})
    table.drain()
    for _ in range(8):
        await take(client, {"rpm": 1})

    assert ["write"] * 8 == table.drain()


async def test_requests_are_spread_randomly_over_all_shards(repo, limiter, other):
    """Each shard is chosen in proportion to its share."""
    await take(limiter, {"rpm": 0, "tpm": 1})
    await other.grow(4)
    for _ in range(400):
        await take(limiter, {"tpm": 1})
    parts = [item["b_tpm_tc"] // 1000 for item in stored(repo).values()]

    assert all(60 < part < 150 for part in parts)


async def test_client_with_a_view_of_one_shard_finds_the_split_off_shards(repo, limiter, other):
    """Its write is refused because the shard was split, and it reads the others."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    for _ in range(79):
        await take(limiter, {"rpm": 1})

    assert 80 == used(repo, "rpm")


async def test_client_with_views_of_merged_shards_takes_from_the_remaining_ones(repo, limiter, other, clock):
    """A take from a removed shard goes to the shard that it was merged into."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    for _ in range(9):
        await take(limiter, {"rpm": 1})
    await other.shrink(1)
    for _ in range(70):
        await take(limiter, {"rpm": 1})

    assert {0: 1} == counts(repo)
    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_take_from_a_merged_shard_costs_few_calls(repo, limiter, other):
    """Only the shard that it was merged into is read, not all shards."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    client, table = counted(repo)
    for _ in range(40):
        await take(client, {"tpm": 1})
    await other.shrink(1)
    table.drain()
    await take(client, {"tpm": 1})

    assert len(table.drain()) <= 8


async def test_request_larger_than_a_shard_is_taken_from_several_shards(repo, limiter, other, clock):
    """One transaction takes from as many shards as are needed."""
    await take(limiter, {"rpm": 5})
    await other.grow(8)
    await take(limiter, {"rpm": 75})

    assert 0 == total(repo, "rpm", clock.now_ms())
    assert 80 == used(repo, "rpm")


async def test_request_that_no_single_shard_can_admit_is_taken_from_several(repo, limiter, other, clock):
    """Other shards are tried first, then all of them together."""
    await take(limiter, {"rpm": 0})
    await other.grow(8)
    await take(limiter, {"rpm": 60})
    for _ in range(4):
        await take(limiter, {"rpm": 5})

    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_rejection_by_shards_reports_the_exact_total_and_wait(repo, limiter, other, clock):
    """The request is admitted after the wait, and not a millisecond earlier."""
    await take(limiter, {"rpm": 33, "tpm": 1})
    await other.grow(4)
    await take(limiter, {"rpm": 18})
    clock.advance(100)
    violation = (await rejected(limiter, {"rpm": 71})).primary_violation
    clock.advance(round(violation.retry_after_seconds * 1000) - 1)
    await rejected(limiter, {"rpm": 71})
    clock.advance(1)
    await take(limiter, {"rpm": 71})

    assert 29 == violation.available
    assert total(repo, "rpm", clock.now_ms()) < 1_000


async def test_rejection_by_fresh_views_of_all_shards_makes_no_calls(repo, limiter, other, clock):
    """All shards were just seen."""
    await take(limiter, {"rpm": 80})
    await other.grow(4)
    client, table = counted(repo)
    await rejected(client, {"rpm": 2})
    table.drain()
    error = await rejected(client, {"rpm": 2})

    assert [] == table.drain()
    assert 0 == error.primary_violation.available


async def test_available_of_a_sharded_bucket_is_the_sum_of_its_shards(repo, limiter, other):
    """The result is the same for a warm and a cold client."""
    await take(limiter, {"rpm": 11})
    await other.grow(8)

    assert {"rpm": 69, "tpm": 8_000} == await limiter.available(*BUCKET) == await cold(repo).available(*BUCKET)
    assert 0 == await limiter.time_until_available(*BUCKET, {"rpm": 69})


async def test_debit_of_a_sharded_bucket_is_spread_over_its_shards(repo, limiter, other, clock):
    """No shard is in debt while others have tokens."""
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        await lease.adjust(rpm=59)

    assert 20_000 == total(repo, "rpm", clock.now_ms())
    assert min(levels(repo, "rpm", clock.now_ms()).values()) >= 0


async def test_debt_of_a_sharded_bucket_is_divided_among_all_shards(repo, limiter, other, clock):
    """Each shard bears the debt in proportion to its share."""
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        await lease.adjust(rpm=119)

    assert [-10_000] * 4 == list(levels(repo, "rpm", clock.now_ms()).values())
    assert -40 == (await limiter.available(*BUCKET))["rpm"]


async def test_credit_to_a_merged_shard_goes_to_the_remaining_shards(repo, limiter, other, clock):
    """The shard was merged after the take."""
    await take(limiter, {"rpm": 0})
    await other.grow(8)
    async with limiter.acquire(*BUCKET, {"rpm": 40}) as lease:
        await other.shrink(1)
        await lease.release(rpm=40)

    assert 80_000 == total(repo, "rpm", clock.now_ms())


async def test_exception_in_a_lease_credits_all_shards_after_a_split(repo, limiter, other, clock):
    """The shard count may change during the lease."""
    await take(limiter, {"rpm": 0})
    await other.grow(2)
    lease = limiter.acquire(*BUCKET, {"rpm": 70})
    await lease.__aenter__()
    await other.grow(8)
    await lease.__aexit__(ValueError, ValueError("left"), None)

    assert 80 == (await limiter.available(*BUCKET))["rpm"]


async def test_limit_that_only_one_shard_has_is_settled_on_that_shard(repo, limiter, other, monkeypatch):
    """While the other shards lack the limit, no debit or credit of it is lost."""
    await take(limiter, {"rpm": 1})
    await other.grow(2)
    client = cold(repo)
    await take(client, {"rpm": 1})
    monkeypatch.setattr(client._client.shards, "_choose", lambda memory, avoided: None if 1 in avoided else 1)
    own = [RPM, TPM, Limit("extra", 40, 40, 3_600)]
    for change in (3, -2):
        async with client.acquire(*BUCKET, {"extra": 5}, limits=own) as lease:
            await lease.adjust(extra=change)

    assert "b_extra_tc" not in stored(repo)[0]
    assert 5 + 3 + 5 - 2 == stored(repo)[1]["b_extra_tc"] // 1000


async def test_debit_to_a_deleted_sharded_bucket_recreates_it_with_the_debit(repo, limiter, other, clock):
    """The new bucket starts full, less the debit."""
    await take(limiter, {"rpm": 0})
    await other.grow(2)
    async with limiter.acquire(*BUCKET, {"rpm": 60}) as lease:
        await other.shrink(1)
        await repo.scope.table.batch_delete([Key(item["PK"], item["SK"]) for item in stored(repo).values()])
        await lease.adjust(rpm=50)

    assert 30_000 == total(repo, "rpm", clock.now_ms())


async def test_changed_limits_apply_to_all_shards(repo, limiter, other, clock):
    """A lowered capacity applies to the sum of the shards."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    await repo.set_system_defaults([Limit("rpm", 20, 20, 3_600), TPM])
    client = cold(repo, reject_locally_ms=0)
    for _ in range(20):
        await take(client, {"rpm": 1})

    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available
    assert all(20_000 == item["b_rpm_cp"] for item in stored(repo).values())


async def test_client_with_old_limits_takes_from_several_shards_by_the_new_limits(repo, limiter, other, clock):
    """A request larger than any share makes it read the limits again."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    await take(limiter, {"rpm": 70})
    await repo.set_system_defaults([Limit("rpm", 60, 60, 60), TPM])
    clock.advance(3_600_000)
    await take(cold(repo), {"rpm": 1})
    await take(cold(repo), {"rpm": 50})
    clock.advance(60_000)
    await take(limiter, {"rpm": 60})

    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_passed_limits_apply_to_the_sum_of_all_shards(repo, limiter, other, clock):
    """They rebase every shard that they take from."""
    own = [Limit("rpm", 40, 40, 3_600)]
    async with limiter.acquire(*BUCKET, {"rpm": 1}, own):
        pass
    await other.grow(4)
    for _ in range(39):
        async with limiter.acquire(*BUCKET, {"rpm": 1}, own):
            pass
    with pytest.raises(RateLimitExceeded):
        await limiter.acquire(*BUCKET, {"rpm": 1}, own).__aenter__()

    assert 40 == used(repo, "rpm")


async def test_entity_limits_apply_to_the_sum_of_all_shards(repo, limiter, other):
    """They work like the system's limits."""
    await repo.create_entity("user-1")
    await repo.set_limits("user-1", [Limit("rpm", 16, 16, 3_600)], resource="gpt-4")
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    for _ in range(15):
        await take(limiter, {"rpm": 1})

    assert 0 == (await rejected(limiter, {"rpm": 1})).primary_violation.available


async def test_client_without_speculative_writes_takes_all_tokens_of_all_shards(repo, limiter, other, clock):
    """It reads the shards before each write."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client = RateLimiter(another(repo, reject_locally_ms=0), speculative_writes=False)
    for _ in range(19):
        await take(client, {"rpm": 1})
    await take(client, {"rpm": 60})

    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available
    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_merge_of_shards_that_are_not_halves_of_one_does_nothing(repo, limiter, other):
    """The same holds if there is no bucket."""
    assert not await other.merge(0, 1)

    await take(limiter, {"rpm": 1})
    await other.grow(4)

    assert not await other.merge(0, 1)
    assert not await other.merge(0, 9)
    assert {0: 4, 1: 4, 2: 4, 3: 4} == counts(repo)


async def test_delete_entity_removes_every_shard(repo, limiter, other):
    """If only shard 0 were removed, it would be recreated full next to the others."""
    await repo.create_entity("user-1")
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    await repo.delete_entity("user-1")

    assert {} == stored(repo)


async def split_or_merge(other, random):
    """Split or merge a random shard."""
    shard = random.randrange(8)
    known = counts(other.repo)
    if random.random() < 0.5 and known.get(shard, 8) < 8:
        await other.split(shard)
    else:
        for leaving in sorted(known, reverse=True):
            half = known[leaving] // 2
            if half and leaving >= half and known.get(leaving - half) == known[leaving]:
                assert await other.merge(leaving - half, leaving)
                return


@pytest.mark.parametrize("seed", range(2))
async def test_no_request_is_rejected_while_all_shards_together_have_the_tokens(repo, limiter, other, clock, seed):
    """Cold, warm and stale clients make thousands of requests while shards are split and merged."""
    random = Random(seed)
    clients = [RateLimiter(another(repo, reject_locally_ms=0), speculative_writes=n < 3) for n in range(4)]
    false = wrong = admitted = refused = 0
    await take(limiter, {"rpm": 0})
    for _ in range(2_500):
        if random.random() < 0.15:
            await split_or_merge(other, random)
        clock.advance(random.choice((0, 1, 50, 3_000, 20_000)))
        wanted = random.choice((0, 1, 1, 2, 3, 11, 25))
        has = total(repo, "rpm", clock.now_ms())
        try:
            await take(random.choice(clients), {"rpm": wanted})
            admitted += 1
            wrong += total(repo, "rpm", clock.now_ms()) != has - wanted * 1000
        except RateLimitExceeded as error:
            refused += 1
            false += has >= wanted * 1000
            wrong += error.primary_violation.available != has // 1000

    assert (0, 0) == (false, wrong)
    assert min(admitted, refused) > 100


class RacedTable(Wrapped):
    """A table where another client wins the race before every transaction, and then time passes."""

    async def transact(self, operations, token, *, until_s=None):
        await self.race()
        return await self.table.transact(operations, token, until_s=until_s)


async def test_request_that_loses_the_race_for_the_last_tokens_is_rejected(repo, limiter, other, clock):
    """It does not wait for the refill, which belongs to later requests."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client = RateLimiter(another(repo, RacedTable, reject_locally_ms=0, deadline_s=10_000))
    repository = client.repository

    async def race():
        await take(limiter, {"rpm": 79})
        clock.advance(3_600_000)

    repository.scope.table.race = race
    error = await rejected(client, {"rpm": 60})

    assert 0 == error.primary_violation.available
    assert 80 == (await client.available(*BUCKET))["rpm"]
