"""Acquire: what is admitted, and how much."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded
from zae_limiter.runtime.threads import Parallel

from .clients import another, balance_of, buckets_in, take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
SLOW = Limit.custom("slow", 3, 1, 7)


def test_a_new_bucket_is_full(limiter):
    """Whoever comes first finds the whole capacity."""
    assert {"rps": 10, "tpm": 6_000} == limiter.available("user-1", "gpt-4", [RPS, TPM])


def test_an_acquire_takes_from_every_limit_it_names(limiter):
    """Each limit by its own amount."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 500}, [RPS, TPM]):
        pass

    assert {"rps": 9, "tpm": 5_500} == limiter.available("user-1", "gpt-4", [RPS, TPM])


def test_a_limit_that_is_not_named_is_not_touched(limiter):
    """An acquire may name some of the limits only."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 4}, [RPS, TPM]):
        pass

    assert {"rps": 6, "tpm": 6_000} == limiter.available("user-1", "gpt-4", [RPS, TPM])


def test_all_limits_are_taken_from_or_none(limiter):
    """One limit that lacks the tokens leaves the others whole."""
    limiter.set_system_defaults([RPS, TPM])
    take(limiter, {"rps": 1, "tpm": 5_900})

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 1, "tpm": 101})

    assert {"rps": 9, "tpm": 100} == limiter.available("user-1", "gpt-4")


def test_a_rejected_first_limit_leaves_the_second_whole(limiter):
    """The order of the names makes no difference."""
    limiter.set_system_defaults([RPS, TPM])
    take(limiter, {"rps": 10})

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"tpm": 100, "rps": 1})

    assert {"rps": 0, "tpm": 6_000} == limiter.available("user-1", "gpt-4")


def test_the_whole_capacity_may_be_taken_at_once(limiter):
    """A request of just the capacity is admitted by a full bucket."""
    limiter.set_system_defaults([RPS])

    take(limiter, {"rps": 10})

    assert {"rps": 0} == limiter.available("user-1", "gpt-4")


def test_the_whole_capacity_may_be_taken_again_once_it_is_back(limiter, clock):
    """A bucket that was emptied is full after the time it takes to fill, and not a millisecond before."""
    limiter.set_system_defaults([RPS])
    take(limiter, {"rps": 10})

    clock.advance(999)
    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 10})
    clock.advance(1)
    take(limiter, {"rps": 10})

    assert {"rps": 0} == limiter.available("user-1", "gpt-4")


@pytest.mark.parametrize("idle_ms", [1_000, 60_000, 365 * 86_400_000])
def test_an_idle_bucket_bursts_to_its_capacity_and_not_a_token_more(limiter, clock, idle_ms):
    """However long nobody came, no more than the capacity has gathered."""
    limiter.set_system_defaults([RPS])
    take(limiter, {"rps": 3})
    clock.advance(idle_ms)

    for _ in range(10):
        take(limiter, {"rps": 1})

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 1})


def test_a_burst_above_the_rate_is_the_capacity(limiter, clock):
    """``burst`` sets what a bucket holds, the rate what comes back."""
    limiter.set_system_defaults([Limit.per_second("rps", 10, burst=25)])
    take(limiter, {"rps": 25})
    clock.advance(1_000)

    assert {"rps": 10} == limiter.available("user-1", "gpt-4")


def test_a_slow_limit_loses_nothing_to_a_fast_one(limiter, clock):
    """A limit of one token in seven seconds refills exactly, though the bucket is used every few milliseconds."""
    limiter.set_system_defaults([Limit.per_second("fast", 1_000), SLOW])
    start_ms = clock.now_ms()
    take(limiter, {"slow": 3})

    while clock.now_ms() < start_ms + 6_993:
        clock.advance(3)
        take(limiter, {"fast": 1})
    before = (limiter.available("user-1", "gpt-4"))["slow"]
    clock.time_ms = start_ms + 7_000

    assert (0, 1) == (before, (limiter.available("user-1", "gpt-4"))["slow"])


def test_refill_adds_up_to_the_rate_at_any_pace(limiter, clock):
    """Over a long time just what the rate offers is admitted, though it is asked for at odd moments."""
    limiter.set_system_defaults([Limit.custom("odd", 5, 7, 3)])
    admitted = 0
    take(limiter, {"odd": 5})

    for _ in range(600):
        clock.advance(101)
        try:
            take(limiter, {"odd": 1})
        except RateLimitExceeded:
            continue
        admitted += 1

    assert 600 * 101 * 7 // 3_000 == admitted + (limiter.available("user-1", "gpt-4"))["odd"]


def test_consuming_nothing_names_a_limit(limiter):
    """An amount of zero takes nothing, and the lease may adjust the limit later."""
    limiter.set_system_defaults([RPS, TPM])

    with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 0}) as lease:
        lease.adjust(tpm=40)

    assert {"rps": 9, "tpm": 5_960} == limiter.available("user-1", "gpt-4")


def test_consuming_nothing_is_admitted_by_an_empty_bucket(limiter):
    """Zero tokens are there even when there are none."""
    limiter.set_system_defaults([RPS])
    take(limiter, {"rps": 10})

    take(limiter, {"rps": 0})

    assert {"rps": 0} == limiter.available("user-1", "gpt-4")


def test_a_limit_in_debt_does_not_hold_back_the_others(limiter):
    """Who does not name a limit does not wait for it."""
    limiter.set_system_defaults([RPS, TPM])
    with limiter.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        lease.adjust(tpm=1_000)

    take(limiter, {"rps": 1})

    assert {"rps": 9, "tpm": -1_000} == limiter.available("user-1", "gpt-4")


def test_entities_and_resources_have_buckets_of_their_own(limiter):
    """What one takes is not missing elsewhere."""
    with (
        limiter.acquire("user-1", "gpt-4", {"rps": 10}, [RPS]),
        limiter.acquire("user-2", "gpt-4", {"rps": 9}, [RPS]),
        limiter.acquire("user-1", "other", {"rps": 8}, [RPS]),
    ):
        pass

    left = [
        limiter.available("user-1", "gpt-4", [RPS]),
        limiter.available("user-2", "gpt-4", [RPS]),
        limiter.available("user-1", "other", [RPS]),
    ]
    assert [{"rps": 0}, {"rps": 1}, {"rps": 2}] == left


def test_what_is_available_is_told_in_whole_tokens_rounded_down(limiter, clock):
    """Half a token is none."""
    limiter.set_system_defaults([RPS])
    take(limiter, {"rps": 10})
    clock.advance(199)

    assert {"rps": 1} == limiter.available("user-1", "gpt-4")


def test_looking_takes_nothing(repo, limiter):
    """``available`` and ``time_until_available`` write nothing, not even a bucket."""
    limiter.set_system_defaults([RPS])

    limiter.available("user-1", "gpt-4")
    limiter.time_until_available("user-1", "gpt-4", {"rps": 10})

    assert [] == buckets_in(repo)


def test_the_time_until_available_is_that_of_the_slowest_limit(limiter):
    """Everything needed must be there."""
    limiter.set_system_defaults([RPS, Limit.per_second("slow", 1, burst=3)])
    take(limiter, {"rps": 10, "slow": 3})

    waits = [
        limiter.time_until_available("user-1", "gpt-4", {"rps": 1}),
        limiter.time_until_available("user-1", "gpt-4", {"rps": 1, "slow": 2}),
        limiter.time_until_available("user-1", "gpt-4", {"rps": 0}),
    ]
    assert [0.1, 2.0, 0.0] == waits


def test_huge_limits_are_exact(limiter, repo):
    """The largest capacity there may be is counted to the millitoken."""
    most = 10**18
    limiter.set_system_defaults([Limit.per_second("huge", most)])

    take(limiter, {"huge": most - 1})

    assert 1_000 == balance_of(repo, "huge")


def test_a_clock_that_steps_back_earns_nothing_and_charges_nothing(limiter, clock):
    """Time before the bucket was made counts as no time."""
    limiter.set_system_defaults([RPS])
    take(limiter, {"rps": 4})
    clock.advance(-60_000)

    take(limiter, {"rps": 6})

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 1})


def test_two_clients_see_what_the_other_took(repo):
    """A bucket is shared by all that use the table, whatever each remembers of it."""
    first, second = SyncRateLimiter(another(repo)), SyncRateLimiter(another(repo))
    first.set_system_defaults([RPS])

    for _ in range(5):
        take(first, {"rps": 1})
        take(second, {"rps": 1})

    with pytest.raises(RateLimitExceeded):
        take(first, {"rps": 1})
    with pytest.raises(RateLimitExceeded):
        take(second, {"rps": 1})
    assert {"rps": 0} == second.available("user-1", "gpt-4")


def test_two_clients_at_once_never_take_more_than_there_is(repo):
    """Stale views are refused by the table, and what is left is admitted to whoever asks."""
    first, second = SyncRateLimiter(another(repo)), SyncRateLimiter(another(repo))
    first.set_system_defaults([Limit.per_second("rps", 50)])
    admitted = []

    def work(limiter):
        for _ in range(40):
            try:
                take(limiter, {"rps": 1})
            except RateLimitExceeded:
                continue
            admitted.append(limiter)

    Parallel().run([lambda: work(first), lambda: work(second)])

    assert 50 == len(admitted)
    assert 50_000 == balance_of(repo, "rps", "tc")


def test_an_acquire_is_entered_once(limiter):
    """The tokens of a lease are taken once."""
    acquisition = limiter.acquire("user-1", "gpt-4", {"rps": 1}, [RPS])
    with acquisition:
        pass

    with pytest.raises(RuntimeError):
        acquisition.__enter__()

    assert {"rps": 9} == limiter.available("user-1", "gpt-4", [RPS])
