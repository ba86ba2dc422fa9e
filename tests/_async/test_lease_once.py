"""A lease is entered once and left once, and its methods fail after its end."""

import pytest

from zae_limiter import LeaseExpiredError, Limit, RateLimitExceeded, ValidationError

from .clients import take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture(autouse=True)
async def _limits(limiter):
    await limiter.set_system_defaults(LIMITS)


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpm"]


def acquire(limiter, amount=10):
    return limiter.acquire("user-1", "gpt-4", {"rpm": amount})


async def leave(lease, failure=None):
    await lease.__aexit__(None if failure is None else type(failure), failure, None)


async def test_lease_left_by_an_exception_several_times_credits_once(limiter):
    """Later exits have no effect."""
    await take(limiter, {"rpm": 10})
    lease = await acquire(limiter).__aenter__()
    for _ in range(3):
        await leave(lease, KeyError("failed"))

    assert 50 == await left(limiter)


async def test_lease_left_normally_and_then_by_an_exception_credits_nothing(limiter):
    """The first exit decides."""
    lease = await acquire(limiter).__aenter__()
    await leave(lease)
    await leave(lease, KeyError("failed"))

    assert 50 == await left(limiter)


async def test_a_lease_left_twice_writes_its_adjustments_once(limiter):
    """It still reports what it consumed."""
    lease = await acquire(limiter).__aenter__()
    await lease.adjust(rpm=5)
    await leave(lease)
    await leave(lease)

    assert {"rpm": 15} == lease.consumed
    assert 45 == await left(limiter)


async def test_exit_of_a_lease_that_was_never_entered_changes_nothing(limiter):
    """There is nothing to credit."""
    await leave(acquire(limiter), KeyError("failed"))

    assert 60 == await left(limiter)


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
async def test_lease_method_after_the_end_raises_and_changes_nothing(limiter, verb, failure):
    """The way in which the lease was left makes no difference."""
    lease = await acquire(limiter).__aenter__()
    await leave(lease, failure)
    before = await left(limiter)

    with pytest.raises(LeaseExpiredError):
        await getattr(lease, verb)(rpm=1)
    assert before == await left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
async def test_lease_method_after_a_rejected_acquire_raises(limiter, verb):
    """Such a lease holds nothing that could be changed."""
    await take(limiter, {"rpm": 55})
    lease = acquire(limiter)
    with pytest.raises(RateLimitExceeded):
        await lease.__aenter__()

    with pytest.raises(RuntimeError):
        await getattr(lease, verb)(rpm=1)
    assert 5 == await left(limiter)


async def test_lease_that_is_entered_again_after_its_end_raises(limiter):
    """A lease cannot be reused."""
    lease = await acquire(limiter).__aenter__()
    await leave(lease)

    with pytest.raises(RuntimeError):
        await lease.__aenter__()
    assert 50 == await left(limiter)


async def test_second_release_of_more_than_the_rest_raises(limiter):
    """Each release reduces what the lease holds."""
    async with acquire(limiter) as lease:
        await lease.release(rpm=6)
        with pytest.raises(ValidationError):
            await lease.release(rpm=6)

    assert 56 == await left(limiter)
