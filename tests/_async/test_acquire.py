"""Acquire: what is admitted, and how much."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.runtime.aio import Parallel

from .clients import another, balance_of, buckets_in, take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
SLOW = Limit.custom("slow", 3, 1, 7)


async def test_a_new_bucket_is_full(limiter):
    """Whoever comes first finds the whole capacity."""
    assert {"rps": 10, "tpm": 6_000} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_an_acquire_takes_from_every_limit_it_names(limiter):
    """Each limit by its own amount."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 500}, [RPS, TPM]):
        pass

    assert {"rps": 9, "tpm": 5_500} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_a_limit_that_is_not_named_is_not_touched(limiter):
    """An acquire may name some of the limits only."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 4}, [RPS, TPM]):
        pass

    assert {"rps": 6, "tpm": 6_000} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_all_limits_are_taken_from_or_none(limiter):
    """One limit that lacks the tokens leaves the others whole."""
    await limiter.set_system_defaults([RPS, TPM])
    await take(limiter, {"rps": 1, "tpm": 5_900})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1, "tpm": 101})

    assert {"rps": 9, "tpm": 100} == await limiter.available("user-1", "gpt-4")


async def test_a_rejected_first_limit_leaves_the_second_whole(limiter):
    """The order of the names makes no difference."""
    await limiter.set_system_defaults([RPS, TPM])
    await take(limiter, {"rps": 10})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"tpm": 100, "rps": 1})

    assert {"rps": 0, "tpm": 6_000} == await limiter.available("user-1", "gpt-4")


async def test_the_whole_capacity_may_be_taken_at_once(limiter):
    """A request of just the capacity is admitted by a full bucket."""
    await limiter.set_system_defaults([RPS])

    await take(limiter, {"rps": 10})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


async def test_the_whole_capacity_may_be_taken_again_once_it_is_back(limiter, clock):
    """A bucket that was emptied is full after the time it takes to fill, and not a millisecond before."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    clock.advance(999)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 10})
    clock.advance(1)
    await take(limiter, {"rps": 10})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


@pytest.mark.parametrize("idle_ms", [1_000, 60_000, 365 * 86_400_000])
async def test_an_idle_bucket_bursts_to_its_capacity_and_not_a_token_more(limiter, clock, idle_ms):
    """However long nobody came, no more than the capacity has gathered."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 3})
    clock.advance(idle_ms)

    for _ in range(10):
        await take(limiter, {"rps": 1})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1})


async def test_a_burst_above_the_rate_is_the_capacity(limiter, clock):
    """``burst`` sets what a bucket holds, the rate what comes back."""
    await limiter.set_system_defaults([Limit.per_second("rps", 10, burst=25)])
    await take(limiter, {"rps": 25})
    clock.advance(1_000)

    assert {"rps": 10} == await limiter.available("user-1", "gpt-4")


async def test_a_slow_limit_loses_nothing_to_a_fast_one(limiter, clock):
    """A limit of one token in seven seconds refills exactly, though the bucket is used every few milliseconds."""
    await limiter.set_system_defaults([Limit.per_second("fast", 1_000), SLOW])
    start_ms = clock.now_ms()
    await take(limiter, {"slow": 3})

    while clock.now_ms() < start_ms + 6_993:
        clock.advance(3)
        await take(limiter, {"fast": 1})
    before = (await limiter.available("user-1", "gpt-4"))["slow"]
    clock.time_ms = start_ms + 7_000

    assert (0, 1) == (before, (await limiter.available("user-1", "gpt-4"))["slow"])


async def test_refill_adds_up_to_the_rate_at_any_pace(limiter, clock):
    """Over a long time just what the rate offers is admitted, though it is asked for at odd moments."""
    await limiter.set_system_defaults([Limit.custom("odd", 5, 7, 3)])
    admitted = 0
    await take(limiter, {"odd": 5})

    for _ in range(600):
        clock.advance(101)
        try:
            await take(limiter, {"odd": 1})
        except RateLimitExceeded:
            continue
        admitted += 1

    assert 600 * 101 * 7 // 3_000 == admitted + (await limiter.available("user-1", "gpt-4"))["odd"]


async def test_consuming_nothing_names_a_limit(limiter):
    """An amount of zero takes nothing, and the lease may adjust the limit later."""
    await limiter.set_system_defaults([RPS, TPM])

    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 0}) as lease:
        await lease.adjust(tpm=40)

    assert {"rps": 9, "tpm": 5_960} == await limiter.available("user-1", "gpt-4")


async def test_consuming_nothing_is_admitted_by_an_empty_bucket(limiter):
    """Zero tokens are there even when there are none."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    await take(limiter, {"rps": 0})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


async def test_a_limit_in_debt_does_not_hold_back_the_others(limiter):
    """Who does not name a limit does not wait for it."""
    await limiter.set_system_defaults([RPS, TPM])
    async with limiter.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        await lease.adjust(tpm=1_000)

    await take(limiter, {"rps": 1})

    assert {"rps": 9, "tpm": -1_000} == await limiter.available("user-1", "gpt-4")


async def test_entities_and_resources_have_buckets_of_their_own(limiter):
    """What one takes is not missing elsewhere."""
    async with (
        limiter.acquire("user-1", "gpt-4", {"rps": 10}, [RPS]),
        limiter.acquire("user-2", "gpt-4", {"rps": 9}, [RPS]),
        limiter.acquire("user-1", "other", {"rps": 8}, [RPS]),
    ):
        pass

    left = [
        await limiter.available("user-1", "gpt-4", [RPS]),
        await limiter.available("user-2", "gpt-4", [RPS]),
        await limiter.available("user-1", "other", [RPS]),
    ]
    assert [{"rps": 0}, {"rps": 1}, {"rps": 2}] == left


async def test_what_is_available_is_told_in_whole_tokens_rounded_down(limiter, clock):
    """Half a token is none."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})
    clock.advance(199)

    assert {"rps": 1} == await limiter.available("user-1", "gpt-4")


async def test_looking_takes_nothing(repo, limiter):
    """``available`` and ``time_until_available`` write nothing, not even a bucket."""
    await limiter.set_system_defaults([RPS])

    await limiter.available("user-1", "gpt-4")
    await limiter.time_until_available("user-1", "gpt-4", {"rps": 10})

    assert [] == buckets_in(repo)


async def test_the_time_until_available_is_that_of_the_slowest_limit(limiter):
    """Everything needed must be there."""
    await limiter.set_system_defaults([RPS, Limit.per_second("slow", 1, burst=3)])
    await take(limiter, {"rps": 10, "slow": 3})

    waits = [
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 1}),
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 1, "slow": 2}),
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 0}),
    ]
    assert [0.1, 2.0, 0.0] == waits


async def test_huge_limits_are_exact(limiter, repo):
    """The largest capacity there may be is counted to the millitoken."""
    most = 10**18
    await limiter.set_system_defaults([Limit.per_second("huge", most)])

    await take(limiter, {"huge": most - 1})

    assert 1_000 == balance_of(repo, "huge")


async def test_a_clock_that_steps_back_earns_nothing_and_charges_nothing(limiter, clock):
    """Time before the bucket was made counts as no time."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 4})
    clock.advance(-60_000)

    await take(limiter, {"rps": 6})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1})


async def test_two_clients_see_what_the_other_took(repo):
    """A bucket is shared by all that use the table, whatever each remembers of it."""
    first, second = RateLimiter(another(repo)), RateLimiter(another(repo))
    await first.set_system_defaults([RPS])

    for _ in range(5):
        await take(first, {"rps": 1})
        await take(second, {"rps": 1})

    with pytest.raises(RateLimitExceeded):
        await take(first, {"rps": 1})
    with pytest.raises(RateLimitExceeded):
        await take(second, {"rps": 1})
    assert {"rps": 0} == await second.available("user-1", "gpt-4")


async def test_two_clients_at_once_never_take_more_than_there_is(repo):
    """Stale views are refused by the table, and what is left is admitted to whoever asks."""
    first, second = RateLimiter(another(repo)), RateLimiter(another(repo))
    await first.set_system_defaults([Limit.per_second("rps", 50)])
    admitted = []

    async def work(limiter):
        for _ in range(40):
            try:
                await take(limiter, {"rps": 1})
            except RateLimitExceeded:
                continue
            admitted.append(limiter)

    await Parallel().run([lambda: work(first), lambda: work(second)])

    assert 50 == len(admitted)
    assert 50_000 == balance_of(repo, "rps", "tc")


async def test_an_acquire_is_entered_once(limiter):
    """The tokens of a lease are taken once."""
    acquisition = limiter.acquire("user-1", "gpt-4", {"rps": 1}, [RPS])
    async with acquisition:
        pass

    with pytest.raises(RuntimeError):
        await acquisition.__aenter__()

    assert {"rps": 9} == await limiter.available("user-1", "gpt-4", [RPS])
