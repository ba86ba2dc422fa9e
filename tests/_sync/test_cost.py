"""What an acquire costs: the calls made to the table, counted."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded
from zae_limiter.schema.operations import Key

from .clients import another, buckets_in, counted, take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)


def reject(limiter, consume):
    with pytest.raises(RateLimitExceeded):
        take(limiter, consume)


@pytest.fixture
def others(repo):
    """Somebody else, who also stores the limits."""
    limiter = SyncRateLimiter(another(repo))
    limiter.set_system_defaults([RPS, TPM])
    return limiter


def test_a_first_touch_reads_limits_and_bucket_at_once_and_creates(repo, others):
    """One batch of reads and one transaction, which also requires that the namespace is active."""
    limiter, table = counted(repo)

    take(limiter, {"rps": 1, "tpm": 5})

    assert ["batch_get", "transact"] == table.drain()


def test_a_first_touch_of_a_bucket_of_others_costs_the_same(repo, others):
    """One batch of reads and one write, for a bucket that others have made."""
    take(others, {"rps": 1})
    limiter, table = counted(repo)

    take(limiter, {"rps": 1})

    assert ["batch_get", "write"] == table.drain()


def test_a_first_touch_with_known_limits_reads_the_bucket_only(repo, others):
    """Limits in the cache are not read again."""
    take(others, {"rps": 1})
    limiter, table = counted(repo)
    limiter.resolve_limits("user-1", "gpt-4")
    table.drain()

    take(limiter, {"rps": 1})

    assert ["get", "write"] == table.drain()


def test_an_admitted_request_is_one_write_and_nothing_else(repo, others, clock):
    """With or without refill in between, full or not, one round trip, and nothing on leaving."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    table.drain()
    costs = []

    for idle_ms in (0, 1, 100, 30_000, 0, 5_000):
        clock.advance(idle_ms)
        take(limiter, {"rps": 2, "tpm": 10})
        costs.append(table.drain())

    assert [["write"]] * 6 == costs


def test_own_limits_cost_no_more_than_stored_ones(repo, others):
    """The second call with the same limits is one write."""
    limiter, table = counted(repo)
    with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [Limit.per_second("mine", 5)]):
        pass
    first = table.drain()
    with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [Limit.per_second("mine", 5)]):
        pass

    assert (["batch_get", "transact"], ["write"]) == (first, table.drain())


def test_an_adjustment_is_one_more_write_on_leaving(repo, others):
    """However many adjustments there are, and nothing is sent before the lease ends."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    table.drain()

    with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 10}) as lease:
        lease.adjust(tpm=5)
        lease.adjust(tpm=5, rps=1)
        lease.adjust(tpm=-2)
        inside = table.drain()

    assert (["write"], ["write"]) == (inside, table.drain())


def test_adjustments_that_cancel_out_cost_nothing(repo, others):
    """Nothing is owed, so nothing is written."""
    limiter, table = counted(repo)

    with limiter.acquire("user-1", "gpt-4", {"rps": 1}) as lease:
        lease.adjust(rps=3)
        lease.adjust(rps=-3)
        table.drain()

    assert [] == table.drain()


def test_a_release_is_one_write_at_once(repo, others):
    """And leaving writes nothing more."""
    limiter, table = counted(repo)

    with limiter.acquire("user-1", "gpt-4", {"rps": 3}) as lease:
        table.drain()
        lease.release(rps=2)
        inside = table.drain()

    assert (["write"], []) == (inside, table.drain())


def test_giving_back_is_one_write(repo, others):
    """An exception in the block costs one write."""
    limiter, table = counted(repo)

    def failing():
        with limiter.acquire("user-1", "gpt-4", {"rps": 3, "tpm": 20}) as lease:
            lease.adjust(tpm=400)
            table.drain()
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert ["write"] == table.drain()


def test_a_rejection_by_a_fresh_view_costs_nothing(repo, others, clock):
    """Within a second of the last look nothing is asked of the table."""
    limiter, table = counted(repo)
    take(limiter, {"tpm": 6_000})
    table.drain()

    for _ in range(9):
        clock.advance(100)
        reject(limiter, {"tpm": 6_000})

    assert [] == table.drain()


def test_a_rejection_by_a_stale_view_costs_one_read(repo, others, clock):
    """A second after the last look the bucket is read, once, and the next rejections cost nothing again."""
    limiter, table = counted(repo)
    take(limiter, {"tpm": 6_000})
    table.drain()

    clock.advance(1_000)
    reject(limiter, {"tpm": 6_000})
    first = table.drain()
    clock.advance(999)
    reject(limiter, {"tpm": 6_000})

    assert (["get"], []) == (first, table.drain())


def test_what_others_give_back_is_seen_once_the_view_is_stale(repo, others, clock):
    """A rejection from memory is bounded: within the second it holds, after it the truth is looked at."""
    limiter, table = counted(repo)
    with others.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        reject(limiter, {"tpm": 1_000})
        lease.release(tpm=5_000)
    table.drain()

    clock.advance(999)
    reject(limiter, {"tpm": 1_000})
    within = table.drain()
    clock.advance(1)
    take(limiter, {"tpm": 1_000})

    assert ([], ["get", "write"]) == (within, table.drain())


def test_a_client_that_never_rejects_from_memory_always_looks(repo, others):
    """``reject_locally_s=0``: every rejection is a read, and what was given back is seen at once."""
    limiter, table = counted(repo, reject_locally_ms=0)
    with others.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        reject(limiter, {"tpm": 1_000})
        table.drain()
        reject(limiter, {"tpm": 1_000})
        rejected = table.drain()
        lease.release(tpm=5_000)
        take(limiter, {"tpm": 1_000})

    assert (["get"], ["get", "write"]) == (rejected, table.drain())


def test_what_this_client_gives_back_itself_it_sees_at_once(repo, others):
    """Its own credit is its newest view."""
    limiter, table = counted(repo)
    with limiter.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        reject(limiter, {"tpm": 1_000})
        lease.release(tpm=5_000)
        table.drain()

        take(limiter, {"tpm": 1_000})

    assert ["write"] == table.drain()


def test_what_others_took_costs_nothing_while_enough_is_left(repo, others):
    """A take is right for a whole range of balances."""
    limiter, table = counted(repo)
    take(limiter, {"tpm": 1})
    table.drain()
    take(others, {"tpm": 5_000})

    take(limiter, {"tpm": 999})

    assert ["write"] == table.drain()


def test_a_view_that_was_off_costs_one_more_write(repo, others, clock):
    """A bucket thought full that is not refuses, and answers with what it is, so the second try is right."""
    limiter, table = counted(repo)
    take(limiter, {"tpm": 1})
    table.drain()
    clock.advance(30_000)
    take(others, {"tpm": 1_000})

    take(limiter, {"tpm": 1})

    assert ["write", "write"] == table.drain()
    assert 4_999 == (limiter.available("user-1", "gpt-4"))["tpm"]


def test_a_refused_take_that_was_too_much_is_a_rejection_without_a_read(repo, others):
    """The item that refused says how much there was."""
    limiter, table = counted(repo)
    take(limiter, {"tpm": 1})
    table.drain()
    take(others, {"tpm": 5_000})

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"tpm": 1_000})

    assert (["write"], 999) == (table.drain(), caught.value.primary_violation.available)


def test_without_speculative_writes_every_write_is_preceded_by_a_read(repo, others):
    """A client may choose to look first; the first touch reads all at once as ever."""
    limiter, table = counted(repo, speculative_writes=False)
    take(limiter, {"rps": 1})
    first = table.drain()
    take(limiter, {"rps": 1})

    assert (["batch_get", "transact"], ["get", "write"]) == (first, table.drain())


def test_without_speculative_writes_a_rejection_looks_and_does_not_write(repo, others):
    """Whoever looks first needs no refusal to know."""
    limiter, table = counted(repo, speculative_writes=False)
    take(limiter, {"rps": 1})
    take(others, {"rps": 9})
    table.drain()

    reject(limiter, {"rps": 1})

    assert ["get"] == table.drain()


def test_a_bucket_that_vanished_is_created_again(repo, others):
    """An expired bucket was full: its limits are read once more, and it is made anew."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    (bucket,) = buckets_in(repo)
    repo.scope.table.batch_delete([Key(bucket["PK"], bucket["SK"])])
    table.drain()

    take(limiter, {"rps": 3})

    assert ["write", "batch_get", "transact"] == table.drain()
    assert {"rps": 7, "tpm": 6_000} == limiter.available("user-1", "gpt-4")


def test_looking_is_one_read(repo, others):
    """``available`` and ``time_until_available`` look at the bucket, whatever is remembered of it."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    table.drain()

    limiter.available("user-1", "gpt-4")
    limiter.time_until_available("user-1", "gpt-4", {"rps": 1})

    assert ["get", "get"] == table.drain()
