"""Credits reach only the bucket that was debited: a bucket recreated under the same name gets none."""  # generated from _async by tools/mirror.py; do not edit

from contextlib import suppress

import pytest

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.schema.operations import ItemExists, Key, Update

from .clients import another, balance_of, buckets_in, take
from .shards import OtherClient, stored, total

RPM = Limit("rpm", 1_000, 1, 365 * 86_400)


@pytest.fixture
def limiter(repo):
    repo.set_system_defaults([RPM])
    return SyncRateLimiter(another(repo, reject_locally_ms=0))


def recreate(repo, entity_id="user-1", consume=None):
    """Delete an entity with its buckets, then take from a new bucket as another client."""
    repo.create_entity(entity_id)
    repo.delete_entity(entity_id)
    take(SyncRateLimiter(another(repo)), consume or {"rpm": 0}, entity_id)


def test_release_after_delete_and_recreate_does_not_credit_the_new_bucket(repo, limiter):
    """A bucket of 1,000 that was created during the lease stays at 1,000."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        recreate(repo)
        lease.release(rpm=100)

    assert 1_000_000 == balance_of(repo, "rpm")


def test_exit_by_exception_after_recreate_does_not_credit_the_new_bucket(repo, limiter):
    """The tokens of the failed request were deleted with the old bucket."""
    with suppress(LookupError):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 100}):
            recreate(repo, consume={"rpm": 300})
            raise LookupError

    assert 700_000 == balance_of(repo, "rpm")


def test_adjust_up_after_recreate_debits_the_new_bucket(repo, limiter):
    """Consumption is always counted, in the bucket that exists."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        recreate(repo)
        lease.adjust(rpm=50)

    assert 950_000 == balance_of(repo, "rpm")


def test_credit_of_a_client_that_has_seen_the_new_bucket_is_dropped(repo, limiter):
    """The lease remembers the bucket that it took from, not the bucket that its client saw last."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        recreate(repo)
        take(limiter, {"rpm": 10})
        lease.release(rpm=100)

    assert 990_000 == balance_of(repo, "rpm")


def test_release_after_rebase_split_and_merge_credits_the_bucket(repo, limiter):
    """Rebases, splits and merges keep the birth number."""
    other = OtherClient(repo)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        births = {item["bi"] for item in buckets_in(repo)}
        repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
        take(SyncRateLimiter(another(repo)), {"rpm": 0})
        other.split()
        births |= {item["bi"] for item in buckets_in(repo)}
        other.merge(0, 1)
        births |= {item["bi"] for item in buckets_in(repo)}
        lease.release(rpm=100)

    assert 1 == len(births)
    assert 1_000_000 == balance_of(repo, "rpm")


def test_release_to_shards_after_recreate_credits_no_shard_of_the_new_bucket(repo, limiter, clock):
    """The new bucket was split as well, and gets no tokens of the deleted one."""
    other = OtherClient(repo)
    take(limiter, {"rpm": 0})
    other.grow(4)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 900}) as lease:
        recreate(repo, consume={"rpm": 400})
        other.grow(2)
        lease.release(rpm=900)

    assert 2 == len(stored(repo))
    assert 600_000 == total(repo, "rpm", clock.now_ms())


def test_release_to_the_shards_that_were_charged_is_given(repo, limiter, clock):
    """All shards of a bucket have the birth number of the shard they were split off."""
    other = OtherClient(repo)
    take(limiter, {"rpm": 0})
    other.grow(4)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 900}) as lease:
        lease.release(rpm=900)

    assert 1_000_000 == total(repo, "rpm", clock.now_ms())


def test_parent_that_was_recreated_gets_no_credit(repo, limiter):
    """Each bucket of a lease has a birth number of its own: the child's credit is given."""
    repo.create_entity("team")
    repo.create_entity("user-1", parent_id="team", cascade=True)
    with suppress(LookupError):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 100}):
            repo.delete_entity("user-1")
            repo.delete_entity("team")
            take(SyncRateLimiter(another(repo)), {"rpm": 0}, "team")
            take(SyncRateLimiter(another(repo)), {"rpm": 0}, "user-1")
            raise LookupError

    assert [1_000_000, 1_000_000] == [item["b_rpm_tk"] for item in buckets_in(repo)]


def test_consume_from_a_recreated_bucket_keeps_the_first_birth(repo, limiter):
    """A credit whose bucket is not certain is dropped: the lease took from both."""
    with suppress(LookupError):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
            recreate(repo)
            lease.consume(rpm=200)
            raise LookupError

    assert 800_000 == balance_of(repo, "rpm")


def test_bucket_without_birth_number_gets_one_with_its_next_rebase(repo, limiter):
    """Until then credits reach any bucket of that name, as before."""
    take(limiter, {"rpm": 100})
    _forget_birth(repo)
    client = SyncRateLimiter(another(repo))
    with client.acquire("user-1", "gpt-4", {"rpm": 100}) as lease:
        lease.release(rpm=100)
    assert 900_000 == balance_of(repo, "rpm")

    repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
    take(SyncRateLimiter(another(repo)), {"rpm": 0})

    (item,) = buckets_in(repo)
    assert 0 <= item["bi"] < 2**32


def test_shard_without_birth_number_gets_that_of_shard_0(repo, limiter):
    """A client before birth numbers splits off shards without one; all shards must have the same."""
    other = OtherClient(repo)
    take(limiter, {"rpm": 0})
    other.split()
    _forget_birth(repo, shard=1)
    repo.set_system_defaults([Limit("rpm", 2_000, 1, 365 * 86_400)])
    client = SyncRateLimiter(another(repo, reject_locally_ms=0))
    take(client, {"rpm": 900})

    births = {item["bi"] for item in buckets_in(repo)}
    assert (2, 1) == (len(buckets_in(repo)), len(births))


def _forget_birth(repo, shard=0):
    """Make an item one that a version before birth numbers wrote."""
    item = stored(repo)[shard]
    key = Key(item["PK"], item["SK"])
    repo.scope.table.write(Update(key, remove=("bi",), when=(ItemExists(),)))
