"""Buckets of several shards, that others split and merge: what is there is admitted, and nothing that is not."""

from random import Random

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.schema.operations import Key

from .clients import Wrapped, another, counted, take
from .shards import BUCKET, Other, counts, levels, stored, total, used

RPM = Limit("rpm", 80, 80, 3_600)
TPM = Limit("tpm", 8_000, 1_000, 60)


@pytest.fixture
async def limiter(repo):
    await repo.set_system_defaults([RPM, TPM])
    return RateLimiter(another(repo, reject_locally_ms=0))


@pytest.fixture
def other(repo):
    return Other(repo)


def cold(repo, **settings):
    """Return a client that has seen nothing yet."""
    return RateLimiter(another(repo, **settings))


async def rejected(limiter, consume):
    """Return the error of a request that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, consume)
    return caught.value


async def test_it_grows_to_eight_and_back_and_loses_nothing(repo, limiter, other, clock):
    """What is there is the same at every count, and is all admitted."""
    await take(limiter, {"rpm": 10})
    seen = []
    for shard_count in (2, 4, 8):
        await other.grow(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))
    for shard_count in (4, 2, 1):
        await other.shrink(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))

    assert [(2, 70_000), (4, 70_000), (8, 70_000), (4, 70_000), (2, 70_000), (1, 70_000)] == seen


async def test_a_cold_client_finds_all_shards(repo, limiter, other):
    """One that has seen nothing takes all there is, token by token."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    client = cold(repo, reject_locally_ms=0)
    for _ in range(79):
        await take(client, {"rpm": 1})

    assert 80 == used(repo, "rpm")
    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available


async def test_a_warm_client_takes_with_one_write(repo, limiter, other):
    """Once it has seen them all, as with one shard."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client, table = counted(repo)
    for _ in range(40):
        await take(client, {"rpm": 1})
    table.drain()
    for _ in range(8):
        await take(client, {"rpm": 1})

    assert ["write"] * 8 == table.drain()


async def test_requests_fall_to_all_shards(repo, limiter, other):
    """Each as often as its share is large, by chance."""
    await take(limiter, {"rpm": 0, "tpm": 1})
    await other.grow(4)
    for _ in range(400):
        await take(limiter, {"tpm": 1})
    parts = [item["b_tpm_tc"] // 1000 for item in stored(repo).values()]

    assert all(60 < part < 150 for part in parts)


async def test_a_client_that_saw_one_shard_is_set_right(repo, limiter, other):
    """It is refused, for the shard was split since, and learns of the others."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    for _ in range(79):
        await take(limiter, {"rpm": 1})

    assert 80 == used(repo, "rpm")


async def test_a_client_that_saw_eight_is_set_right(repo, limiter, other, clock):
    """What it takes from shards that are gone falls to those that they were merged into."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    for _ in range(9):
        await take(limiter, {"rpm": 1})
    await other.shrink(1)
    for _ in range(70):
        await take(limiter, {"rpm": 1})

    assert {0: 1} == counts(repo)
    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_a_missing_shard_costs_a_few_calls(repo, limiter, other):
    """The one it was merged into is looked at, not all of them."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    client, table = counted(repo)
    for _ in range(40):
        await take(client, {"tpm": 1})
    await other.shrink(1)
    table.drain()
    await take(client, {"tpm": 1})

    assert len(table.drain()) <= 8


async def test_a_request_larger_than_a_share_is_admitted(repo, limiter, other, clock):
    """It is taken from as many shards as it needs, at once."""
    await take(limiter, {"rpm": 5})
    await other.grow(8)
    await take(limiter, {"rpm": 75})

    assert 0 == total(repo, "rpm", clock.now_ms())
    assert 80 == used(repo, "rpm")


async def test_a_request_is_taken_from_several_where_none_has_it(repo, limiter, other, clock):
    """Other shards are tried first, then all of them together."""
    await take(limiter, {"rpm": 0})
    await other.grow(8)
    await take(limiter, {"rpm": 60})
    for _ in range(4):
        await take(limiter, {"rpm": 5})

    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_a_rejection_has_the_true_total_and_the_true_wait(repo, limiter, other, clock):
    """Admitted when it is told, and not a millisecond before."""
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


async def test_a_rejection_is_remembered_for_a_moment(repo, limiter, other, clock):
    """Where all shards were seen just now, nobody is asked again."""
    await take(limiter, {"rpm": 80})
    await other.grow(4)
    client, table = counted(repo)
    await rejected(client, {"rpm": 2})
    table.drain()
    error = await rejected(client, {"rpm": 2})

    assert [] == table.drain()
    assert 0 == error.primary_violation.available


async def test_available_is_the_sum(repo, limiter, other):
    """For one that has seen all shards and one that has seen none."""
    await take(limiter, {"rpm": 11})
    await other.grow(8)

    assert {"rpm": 69, "tpm": 8_000} == await limiter.available(*BUCKET) == await cold(repo).available(*BUCKET)
    assert 0 == await limiter.time_until_available(*BUCKET, {"rpm": 69})


async def test_a_debit_is_spread(repo, limiter, other, clock):
    """No shard owes while others have."""
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        await lease.adjust(rpm=59)

    assert 20_000 == total(repo, "rpm", clock.now_ms())
    assert min(levels(repo, "rpm", clock.now_ms()).values()) >= 0


async def test_a_debt_is_borne_by_all(repo, limiter, other, clock):
    """What nobody has is owed by each, as far as its share goes."""
    await take(limiter, {"rpm": 0})
    await other.grow(4)
    async with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        await lease.adjust(rpm=119)

    assert [-10_000] * 4 == list(levels(repo, "rpm", clock.now_ms()).values())
    assert -40 == (await limiter.available(*BUCKET))["rpm"]


async def test_a_credit_to_a_shard_that_is_gone_is_given_to_another(repo, limiter, other, clock):
    """It was merged since it was taken from."""
    await take(limiter, {"rpm": 0})
    await other.grow(8)
    async with limiter.acquire(*BUCKET, {"rpm": 40}) as lease:
        await other.shrink(1)
        await lease.release(rpm=40)

    assert 80_000 == total(repo, "rpm", clock.now_ms())


async def test_a_lease_left_by_an_exception_gives_all_back(repo, limiter, other, clock):
    """Whatever shards it was taken from, and however many there are now."""
    await take(limiter, {"rpm": 0})
    await other.grow(2)
    lease = limiter.acquire(*BUCKET, {"rpm": 70})
    await lease.__aenter__()
    await other.grow(8)
    await lease.__aexit__(ValueError, ValueError("left"), None)

    assert 80 == (await limiter.available(*BUCKET))["rpm"]


async def test_what_only_one_shard_limits_is_settled_there(repo, limiter, other, monkeypatch):
    """While others lack a limit, it is charged to and given back to the shard that has it, and never to nobody."""
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


async def test_a_debit_to_a_bucket_that_is_gone_is_charged(repo, limiter, other, clock):
    """It comes back as full as it was when it went, less the debit."""
    await take(limiter, {"rpm": 0})
    await other.grow(2)
    async with limiter.acquire(*BUCKET, {"rpm": 60}) as lease:
        await other.shrink(1)
        await repo.scope.table.batch_delete([Key(item["PK"], item["SK"]) for item in stored(repo).values()])
        await lease.adjust(rpm=50)

    assert 30_000 == total(repo, "rpm", clock.now_ms())


async def test_other_limits_take_effect_on_all_shards(repo, limiter, other, clock):
    """A capacity that is lowered is lowered for all of them together."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    await repo.set_system_defaults([Limit("rpm", 20, 20, 3_600), TPM])
    client = cold(repo, reject_locally_ms=0)
    for _ in range(20):
        await take(client, {"rpm": 1})

    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available
    assert all(20_000 == item["b_rpm_cp"] for item in stored(repo).values())


async def test_a_client_with_old_limits_takes_across_by_the_new_ones(repo, limiter, other, clock):
    """A request larger than any share makes it read them again."""
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


async def test_limits_of_ones_own_hold_over_all_shards(repo, limiter, other, clock):
    """They rebase every shard they take from; the sum is what they say."""
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


async def test_limits_of_the_entity_hold_over_all_shards(repo, limiter, other):
    """As those of the system do."""
    await repo.create_entity("user-1")
    await repo.set_limits("user-1", [Limit("rpm", 16, 16, 3_600)], resource="gpt-4")
    await take(limiter, {"rpm": 1})
    await other.grow(8)
    for _ in range(15):
        await take(limiter, {"rpm": 1})

    assert 0 == (await rejected(limiter, {"rpm": 1})).primary_violation.available


async def test_who_reads_before_every_write_takes_all_there_is(repo, limiter, other, clock):
    """Without speculative writes the shards are read first."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client = RateLimiter(another(repo, reject_locally_ms=0), speculative_writes=False)
    for _ in range(19):
        await take(client, {"rpm": 1})
    await take(client, {"rpm": 60})

    assert 0 == (await rejected(client, {"rpm": 1})).primary_violation.available
    assert 0 == total(repo, "rpm", clock.now_ms())


async def test_merging_shards_that_are_no_halves_does_nothing(repo, limiter, other):
    """Nor where there is no bucket."""
    assert not await other.merge(0, 1)

    await take(limiter, {"rpm": 1})
    await other.grow(4)

    assert not await other.merge(0, 1)
    assert not await other.merge(0, 9)
    assert {0: 4, 1: 4, 2: 4, 3: 4} == counts(repo)


async def test_an_entity_goes_with_all_its_shards(repo, limiter, other):
    """Shard 0 alone would come back whole beside the others."""
    await repo.create_entity("user-1")
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    await repo.delete_entity("user-1")

    assert {} == stored(repo)


async def stir(other, random):
    """Split or merge some shard."""
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
async def test_no_request_is_rejected_that_all_shards_together_have(repo, limiter, other, clock, seed):
    """Of thousands none, with clients that are cold, warm and stale, while others split and merge."""
    random = Random(seed)
    clients = [RateLimiter(another(repo, reject_locally_ms=0), speculative_writes=n < 3) for n in range(4)]
    false = wrong = admitted = refused = 0
    await take(limiter, {"rpm": 0})
    for _ in range(2_500):
        if random.random() < 0.15:
            await stir(other, random)
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


class Overtaken(Wrapped):
    """A table where others are always a moment faster with a transaction, and then time passes."""

    async def transact(self, operations, token, *, until_s=None):
        await self.overtake()
        return await self.table.transact(operations, token, until_s=until_s)


async def test_whoever_comes_too_late_for_what_there_was_is_rejected(repo, limiter, other, clock):
    """What comes later is for whoever asks later: waiting for it, all would keep others from it and none be told."""
    await take(limiter, {"rpm": 1})
    await other.grow(4)
    client = RateLimiter(another(repo, Overtaken, reject_locally_ms=0, deadline_s=10_000))
    repository = client.repository

    async def overtake():
        await take(limiter, {"rpm": 79})
        clock.advance(3_600_000)

    repository.scope.table.overtake = overtake
    error = await rejected(client, {"rpm": 60})

    assert 0 == error.primary_violation.available
    assert 80 == (await client.available(*BUCKET))["rpm"]
