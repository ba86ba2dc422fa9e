"""Acquire: which requests are admitted, and how many tokens they take."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded
from zae_limiter.runtime.aio import Parallel

from .clients import another, balance_of, buckets_in, take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
SLOW = Limit.custom("slow", 3, 1, 7)


async def test_a_new_bucket_is_full(limiter):
    """The first request on a bucket finds the whole capacity."""
    assert {"rps": 10, "tpm": 6_000} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_an_acquire_takes_from_every_limit_it_names(limiter):
    """Each limit is debited by its own amount."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 500}, [RPS, TPM]):
        pass

    assert {"rps": 9, "tpm": 5_500} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_acquire_leaves_limits_that_it_does_not_name_unchanged(limiter):
    """An acquire may name only some of the limits in force."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 4}, [RPS, TPM]):
        pass

    assert {"rps": 6, "tpm": 6_000} == await limiter.available("user-1", "gpt-4", [RPS, TPM])


async def test_acquire_that_one_limit_rejects_debits_no_limit(limiter):
    """If one limit lacks tokens, the other limits keep theirs."""
    await limiter.set_system_defaults([RPS, TPM])
    await take(limiter, {"rps": 1, "tpm": 5_900})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1, "tpm": 101})

    assert {"rps": 9, "tpm": 100} == await limiter.available("user-1", "gpt-4")


async def test_acquire_rejected_by_the_first_limit_leaves_the_second_full(limiter):
    """The order of the names makes no difference."""
    await limiter.set_system_defaults([RPS, TPM])
    await take(limiter, {"rps": 10})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"tpm": 100, "rps": 1})

    assert {"rps": 0, "tpm": 6_000} == await limiter.available("user-1", "gpt-4")


async def test_acquire_of_the_whole_capacity_is_admitted_by_a_full_bucket(limiter):
    """A request for exactly the capacity is valid."""
    await limiter.set_system_defaults([RPS])

    await take(limiter, {"rps": 10})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


async def test_acquire_of_the_whole_capacity_is_admitted_again_after_a_full_refill(limiter, clock):
    """An emptied bucket is full after its refill time, and not a millisecond earlier."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    clock.advance(999)
    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 10})
    clock.advance(1)
    await take(limiter, {"rps": 10})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


@pytest.mark.parametrize("idle_ms", [1_000, 60_000, 365 * 86_400_000])
async def test_idle_bucket_never_holds_more_than_its_capacity(limiter, clock, idle_ms):
    """A bucket stops refilling at its capacity, however long it is idle."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 3})
    clock.advance(idle_ms)

    for _ in range(10):
        await take(limiter, {"rps": 1})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1})


async def test_burst_above_the_rate_sets_the_capacity(limiter, clock):
    """``burst`` sets how much a bucket holds; the rate sets how fast it refills."""
    await limiter.set_system_defaults([Limit.per_second("rps", 10, burst=25)])
    await take(limiter, {"rps": 25})
    clock.advance(1_000)

    assert {"rps": 10} == await limiter.available("user-1", "gpt-4")


async def test_slow_limit_refills_exactly_in_a_bucket_that_is_used_often(limiter, clock):
    """A limit of one token in seven seconds loses nothing to requests every few milliseconds."""
    await limiter.set_system_defaults([Limit.per_second("fast", 1_000), SLOW])
    start_ms = clock.now_ms()
    await take(limiter, {"slow": 3})

    while clock.now_ms() < start_ms + 6_993:
        clock.advance(3)
        await take(limiter, {"fast": 1})
    before = (await limiter.available("user-1", "gpt-4"))["slow"]
    clock.time_ms = start_ms + 7_000

    assert (0, 1) == (before, (await limiter.available("user-1", "gpt-4"))["slow"])


async def test_refill_over_a_long_time_equals_the_rate_at_irregular_intervals(limiter, clock):
    """Rounding loses no tokens: requests at odd intervals are admitted exactly at the rate."""
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


async def test_acquire_of_zero_tokens_allows_a_later_adjust_of_the_limit(limiter):
    """An amount of zero takes nothing, and the lease may adjust the limit later."""
    await limiter.set_system_defaults([RPS, TPM])

    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "tpm": 0}) as lease:
        await lease.adjust(tpm=40)

    assert {"rps": 9, "tpm": 5_960} == await limiter.available("user-1", "gpt-4")


async def test_acquire_of_zero_tokens_is_admitted_by_an_empty_bucket(limiter):
    """A request for zero tokens never has to wait."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    await take(limiter, {"rps": 0})

    assert {"rps": 0} == await limiter.available("user-1", "gpt-4")


async def test_acquire_is_not_rejected_by_a_limit_in_debt_that_it_does_not_name(limiter):
    """A request is checked only against the limits that it names."""
    await limiter.set_system_defaults([RPS, TPM])
    async with limiter.acquire("user-1", "gpt-4", {"tpm": 6_000}) as lease:
        await lease.adjust(tpm=1_000)

    await take(limiter, {"rps": 1})

    assert {"rps": 9, "tpm": -1_000} == await limiter.available("user-1", "gpt-4")


async def test_each_entity_and_resource_has_a_separate_bucket(limiter):
    """Tokens taken from one bucket are not missing in another."""
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


async def test_available_rounds_down_to_whole_tokens(limiter, clock):
    """A fraction of a token is not available."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})
    clock.advance(199)

    assert {"rps": 1} == await limiter.available("user-1", "gpt-4")


async def test_available_and_time_until_available_write_nothing(repo, limiter):
    """Reading a bucket that does not exist does not create it."""
    await limiter.set_system_defaults([RPS])

    await limiter.available("user-1", "gpt-4")
    await limiter.time_until_available("user-1", "gpt-4", {"rps": 10})

    assert [] == buckets_in(repo)


async def test_time_until_available_is_the_wait_of_the_slowest_limit(limiter):
    """All limits that are needed must have their tokens."""
    await limiter.set_system_defaults([RPS, Limit.per_second("slow", 1, burst=3)])
    await take(limiter, {"rps": 10, "slow": 3})

    waits = [
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 1}),
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 1, "slow": 2}),
        await limiter.time_until_available("user-1", "gpt-4", {"rps": 0}),
    ]
    assert [0.1, 2.0, 0.0] == waits


async def test_largest_allowed_capacity_is_counted_to_the_millitoken(limiter, repo):
    """Arithmetic stays exact up to the largest allowed capacity."""
    most = 10**18
    await limiter.set_system_defaults([Limit.per_second("huge", most)])

    await take(limiter, {"huge": most - 1})

    assert 1_000 == balance_of(repo, "huge")


async def test_clock_that_steps_back_neither_refills_nor_debits_a_bucket(limiter, clock):
    """A negative time difference counts as zero."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 4})
    clock.advance(-60_000)

    await take(limiter, {"rps": 6})

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1})


async def test_two_clients_see_the_tokens_that_the_other_took(repo):
    """All clients of a table share the bucket, whatever each client has cached."""
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


async def test_two_concurrent_clients_take_exactly_the_capacity_together(repo):
    """The table refuses writes from stale views, and the remaining tokens are still admitted."""
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


async def test_acquire_that_is_entered_twice_raises_runtime_error(limiter):
    """The tokens of a lease are taken only once."""
    acquisition = limiter.acquire("user-1", "gpt-4", {"rps": 1}, [RPS])
    async with acquisition:
        pass

    with pytest.raises(RuntimeError):
        await acquisition.__aenter__()

    assert {"rps": 9} == await limiter.available("user-1", "gpt-4", [RPS])
