"""Buckets of several shards, that others split and merge: what is there is admitted, and nothing that is not."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded
from zae_limiter.schema.operations import Key

from .clients import Wrapped, another, counted, take
from .shards import BUCKET, Other, counts, levels, stored, total, used

RPM = Limit("rpm", 80, 80, 3_600)
TPM = Limit("tpm", 8_000, 1_000, 60)


@pytest.fixture
def limiter(repo):
    repo.set_system_defaults([RPM, TPM])
    return SyncRateLimiter(another(repo, reject_locally_ms=0))


@pytest.fixture
def other(repo):
    return Other(repo)


def cold(repo, **settings):
    """Return a client that has seen nothing yet."""
    return SyncRateLimiter(another(repo, **settings))


def rejected(limiter, consume):
    """Return the error of a request that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, consume)
    return caught.value


def test_it_grows_to_eight_and_back_and_loses_nothing(repo, limiter, other, clock):
    """What is there is the same at every count, and is all admitted."""
    take(limiter, {"rpm": 10})
    seen = []
    for shard_count in (2, 4, 8):
        other.grow(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))
    for shard_count in (4, 2, 1):
        other.shrink(shard_count)
        seen.append((len(stored(repo)), total(repo, "rpm", clock.now_ms())))

    assert [(2, 70_000), (4, 70_000), (8, 70_000), (4, 70_000), (2, 70_000), (1, 70_000)] == seen


def test_a_cold_client_finds_all_shards(repo, limiter, other):
    """One that has seen nothing takes all there is, token by token."""
    take(limiter, {"rpm": 1})
    other.grow(8)
    client = cold(repo, reject_locally_ms=0)
    for _ in range(79):
        take(client, {"rpm": 1})

    assert 80 == used(repo, "rpm")
    assert 0 == (rejected(client, {"rpm": 1})).primary_violation.available


def test_a_warm_client_takes_with_one_write(repo, limiter, other):
    """Once it has seen them all, as with one shard."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    client, table = counted(repo)
    for _ in range(40):
        take(client, {"rpm": 1})
    table.drain()
    for _ in range(8):
        take(client, {"rpm": 1})

    assert ["write"] * 8 == table.drain()


def test_requests_fall_to_all_shards(repo, limiter, other):
    """Each as often as its share is large, by chance."""
    take(limiter, {"rpm": 0, "tpm": 1})
    other.grow(4)
    for _ in range(400):
        take(limiter, {"tpm": 1})
    parts = [item["b_tpm_tc"] // 1000 for item in stored(repo).values()]

    assert all(60 < part < 150 for part in parts)


def test_a_client_that_saw_one_shard_is_set_right(repo, limiter, other):
    """It is refused, for the shard was split since, and learns of the others."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    for _ in range(79):
        take(limiter, {"rpm": 1})

    assert 80 == used(repo, "rpm")


def test_a_client_that_saw_eight_is_set_right(repo, limiter, other, clock):
    """What it takes from shards that are gone falls to those that they were merged into."""
    take(limiter, {"rpm": 1})
    other.grow(8)
    for _ in range(9):
        take(limiter, {"rpm": 1})
    other.shrink(1)
    for _ in range(70):
        take(limiter, {"rpm": 1})

    assert {0: 1} == counts(repo)
    assert 0 == total(repo, "rpm", clock.now_ms())


def test_a_missing_shard_costs_a_few_calls(repo, limiter, other):
    """The one it was merged into is looked at, not all of them."""
    take(limiter, {"rpm": 1})
    other.grow(8)
    client, table = counted(repo)
    for _ in range(40):
        take(client, {"tpm": 1})
    other.shrink(1)
    table.drain()
    take(client, {"tpm": 1})

    assert len(table.drain()) <= 8


def test_a_request_larger_than_a_share_is_admitted(repo, limiter, other, clock):
    """It is taken from as many shards as it needs, at once."""
    take(limiter, {"rpm": 5})
    other.grow(8)
    take(limiter, {"rpm": 75})

    assert 0 == total(repo, "rpm", clock.now_ms())
    assert 80 == used(repo, "rpm")


def test_a_request_is_taken_from_several_where_none_has_it(repo, limiter, other, clock):
    """Other shards are tried first, then all of them together."""
    take(limiter, {"rpm": 0})
    other.grow(8)
    take(limiter, {"rpm": 60})
    for _ in range(4):
        take(limiter, {"rpm": 5})

    assert 0 == total(repo, "rpm", clock.now_ms())


def test_a_rejection_has_the_true_total_and_the_true_wait(repo, limiter, other, clock):
    """Admitted when it is told, and not a millisecond before."""
    take(limiter, {"rpm": 33, "tpm": 1})
    other.grow(4)
    take(limiter, {"rpm": 18})
    clock.advance(100)
    violation = (rejected(limiter, {"rpm": 71})).primary_violation
    clock.advance(round(violation.retry_after_seconds * 1000) - 1)
    rejected(limiter, {"rpm": 71})
    clock.advance(1)
    take(limiter, {"rpm": 71})

    assert 29 == violation.available
    assert total(repo, "rpm", clock.now_ms()) < 1_000


def test_a_rejection_is_remembered_for_a_moment(repo, limiter, other, clock):
    """Where all shards were seen just now, nobody is asked again."""
    take(limiter, {"rpm": 80})
    other.grow(4)
    client, table = counted(repo)
    rejected(client, {"rpm": 2})
    table.drain()
    error = rejected(client, {"rpm": 2})

    assert [] == table.drain()
    assert 0 == error.primary_violation.available


def test_available_is_the_sum(repo, limiter, other):
    """For one that has seen all shards and one that has seen none."""
    take(limiter, {"rpm": 11})
    other.grow(8)

    assert {"rpm": 69, "tpm": 8_000} == limiter.available(*BUCKET) == cold(repo).available(*BUCKET)
    assert 0 == limiter.time_until_available(*BUCKET, {"rpm": 69})


def test_a_debit_is_spread(repo, limiter, other, clock):
    """No shard owes while others have."""
    take(limiter, {"rpm": 0})
    other.grow(4)
    with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        lease.adjust(rpm=59)

    assert 20_000 == total(repo, "rpm", clock.now_ms())
    assert min(levels(repo, "rpm", clock.now_ms()).values()) >= 0


def test_a_debt_is_borne_by_all(repo, limiter, other, clock):
    """What nobody has is owed by each, as far as its share goes."""
    take(limiter, {"rpm": 0})
    other.grow(4)
    with limiter.acquire(*BUCKET, {"rpm": 1}) as lease:
        lease.adjust(rpm=119)

    assert [-10_000] * 4 == list(levels(repo, "rpm", clock.now_ms()).values())
    assert -40 == (limiter.available(*BUCKET))["rpm"]


def test_a_credit_to_a_shard_that_is_gone_is_given_to_another(repo, limiter, other, clock):
    """It was merged since it was taken from."""
    take(limiter, {"rpm": 0})
    other.grow(8)
    with limiter.acquire(*BUCKET, {"rpm": 40}) as lease:
        other.shrink(1)
        lease.release(rpm=40)

    assert 80_000 == total(repo, "rpm", clock.now_ms())


def test_a_lease_left_by_an_exception_gives_all_back(repo, limiter, other, clock):
    """Whatever shards it was taken from, and however many there are now."""
    take(limiter, {"rpm": 0})
    other.grow(2)
    lease = limiter.acquire(*BUCKET, {"rpm": 70})
    lease.__enter__()
    other.grow(8)
    lease.__exit__(ValueError, ValueError("left"), None)

    assert 80 == (limiter.available(*BUCKET))["rpm"]


def test_what_only_one_shard_limits_is_settled_there(repo, limiter, other, monkeypatch):
    """While others lack a limit, it is charged to and given back to the shard that has it, and never to nobody."""
    take(limiter, {"rpm": 1})
    other.grow(2)
    client = cold(repo)
    take(client, {"rpm": 1})
    monkeypatch.setattr(client._client.shards, "_choose", lambda memory, avoided: None if 1 in avoided else 1)
    own = [RPM, TPM, Limit("extra", 40, 40, 3_600)]
    for change in (3, -2):
        with client.acquire(*BUCKET, {"extra": 5}, limits=own) as lease:
            lease.adjust(extra=change)

    assert "b_extra_tc" not in stored(repo)[0]
    assert 5 + 3 + 5 - 2 == stored(repo)[1]["b_extra_tc"] // 1000


def test_a_debit_to_a_bucket_that_is_gone_is_charged(repo, limiter, other, clock):
    """It comes back as full as it was when it went, less the debit."""
    take(limiter, {"rpm": 0})
    other.grow(2)
    with limiter.acquire(*BUCKET, {"rpm": 60}) as lease:
        other.shrink(1)
        repo.scope.table.batch_delete([Key(item["PK"], item["SK"]) for item in stored(repo).values()])
        lease.adjust(rpm=50)

    assert 30_000 == total(repo, "rpm", clock.now_ms())


def test_other_limits_take_effect_on_all_shards(repo, limiter, other, clock):
    """A capacity that is lowered is lowered for all of them together."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    repo.set_system_defaults([Limit("rpm", 20, 20, 3_600), TPM])
    client = cold(repo, reject_locally_ms=0)
    for _ in range(20):
        take(client, {"rpm": 1})

    assert 0 == (rejected(client, {"rpm": 1})).primary_violation.available
    assert all(20_000 == item["b_rpm_cp"] for item in stored(repo).values())


def test_a_client_with_old_limits_takes_across_by_the_new_ones(repo, limiter, other, clock):
    """A request larger than any share makes it read them again."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    take(limiter, {"rpm": 70})
    repo.set_system_defaults([Limit("rpm", 60, 60, 60), TPM])
    clock.advance(3_600_000)
    take(cold(repo), {"rpm": 1})
    take(cold(repo), {"rpm": 50})
    clock.advance(60_000)
    take(limiter, {"rpm": 60})

    assert 0 == total(repo, "rpm", clock.now_ms())


def test_limits_of_ones_own_hold_over_all_shards(repo, limiter, other, clock):
    """They rebase every shard they take from; the sum is what they say."""
    own = [Limit("rpm", 40, 40, 3_600)]
    with limiter.acquire(*BUCKET, {"rpm": 1}, own):
        pass
    other.grow(4)
    for _ in range(39):
        with limiter.acquire(*BUCKET, {"rpm": 1}, own):
            pass
    with pytest.raises(RateLimitExceeded):
        limiter.acquire(*BUCKET, {"rpm": 1}, own).__enter__()

    assert 40 == used(repo, "rpm")


def test_limits_of_the_entity_hold_over_all_shards(repo, limiter, other):
    """As those of the system do."""
    repo.create_entity("user-1")
    repo.set_limits("user-1", [Limit("rpm", 16, 16, 3_600)], resource="gpt-4")
    take(limiter, {"rpm": 1})
    other.grow(8)
    for _ in range(15):
        take(limiter, {"rpm": 1})

    assert 0 == (rejected(limiter, {"rpm": 1})).primary_violation.available


def test_who_reads_before_every_write_takes_all_there_is(repo, limiter, other, clock):
    """Without speculative writes the shards are read first."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    client = SyncRateLimiter(another(repo, reject_locally_ms=0), speculative_writes=False)
    for _ in range(19):
        take(client, {"rpm": 1})
    take(client, {"rpm": 60})

    assert 0 == (rejected(client, {"rpm": 1})).primary_violation.available
    assert 0 == total(repo, "rpm", clock.now_ms())


def test_merging_shards_that_are_no_halves_does_nothing(repo, limiter, other):
    """Nor where there is no bucket."""
    assert not other.merge(0, 1)

    take(limiter, {"rpm": 1})
    other.grow(4)

    assert not other.merge(0, 1)
    assert not other.merge(0, 9)
    assert {0: 4, 1: 4, 2: 4, 3: 4} == counts(repo)


def test_an_entity_goes_with_all_its_shards(repo, limiter, other):
    """Shard 0 alone would come back whole beside the others."""
    repo.create_entity("user-1")
    take(limiter, {"rpm": 1})
    other.grow(4)
    repo.delete_entity("user-1")

    assert {} == stored(repo)


def stir(other, random):
    """Split or merge some shard."""
    shard = random.randrange(8)
    known = counts(other.repo)
    if random.random() < 0.5 and known.get(shard, 8) < 8:
        other.split(shard)
    else:
        for leaving in sorted(known, reverse=True):
            half = known[leaving] // 2
            if half and leaving >= half and known.get(leaving - half) == known[leaving]:
                assert other.merge(leaving - half, leaving)
                return


@pytest.mark.parametrize("seed", range(2))
def test_no_request_is_rejected_that_all_shards_together_have(repo, limiter, other, clock, seed):
    """Of thousands none, with clients that are cold, warm and stale, while others split and merge."""
    random = Random(seed)
    clients = [SyncRateLimiter(another(repo, reject_locally_ms=0), speculative_writes=n < 3) for n in range(4)]
    false = wrong = admitted = refused = 0
    take(limiter, {"rpm": 0})
    for _ in range(2_500):
        if random.random() < 0.15:
            stir(other, random)
        clock.advance(random.choice((0, 1, 50, 3_000, 20_000)))
        wanted = random.choice((0, 1, 1, 2, 3, 11, 25))
        has = total(repo, "rpm", clock.now_ms())
        try:
            take(random.choice(clients), {"rpm": wanted})
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

    def transact(self, operations, token, *, until_s=None):
        self.overtake()
        return self.table.transact(operations, token, until_s=until_s)


def test_whoever_comes_too_late_for_what_there_was_is_rejected(repo, limiter, other, clock):
    """What comes later is for whoever asks later: waiting for it, all would keep others from it and none be told."""
    take(limiter, {"rpm": 1})
    other.grow(4)
    client = SyncRateLimiter(another(repo, Overtaken, reject_locally_ms=0, deadline_s=10_000))
    repository = client.repository

    def overtake():
        take(limiter, {"rpm": 79})
        clock.advance(3_600_000)

    repository.scope.table.overtake = overtake
    error = rejected(client, {"rpm": 60})

    assert 0 == error.primary_violation.available
    assert 80 == (client.available(*BUCKET))["rpm"]
