"""A lease is entered once and left once, and its methods fail after its end."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import LeaseExpiredError, Limit, RateLimitExceeded, ValidationError

from .clients import take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults(LIMITS)


def left(limiter):
    return (limiter.available("user-1", "gpt-4"))["rpm"]


def acquire(limiter, amount=10):
    return limiter.acquire("user-1", "gpt-4", {"rpm": amount})


def leave(lease, failure=None):
    lease.__exit__(None if failure is None else type(failure), failure, None)


def test_lease_left_by_an_exception_several_times_credits_once(limiter):
    """Later exits have no effect."""
    take(limiter, {"rpm": 10})
    lease = acquire(limiter).__enter__()
    for _ in range(3):
        leave(lease, KeyError("failed"))

    assert 50 == left(limiter)


def test_lease_left_normally_and_then_by_an_exception_credits_nothing(limiter):
    """The first exit decides."""
    lease = acquire(limiter).__enter__()
    leave(lease)
    leave(lease, KeyError("failed"))

    assert 50 == left(limiter)


def test_a_lease_left_twice_writes_its_adjustments_once(limiter):
    """It still reports what it consumed."""
    lease = acquire(limiter).__enter__()
    lease.adjust(rpm=5)
    leave(lease)
    leave(lease)

    assert {"rpm": 15} == lease.consumed
    assert 45 == left(limiter)


def test_exit_of_a_lease_that_was_never_entered_changes_nothing(limiter):
    """There is nothing to credit."""
    leave(acquire(limiter), KeyError("failed"))

    assert 60 == left(limiter)


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_lease_method_after_the_end_raises_and_changes_nothing(limiter, verb, failure):
    """The way in which the lease was left makes no difference."""
    lease = acquire(limiter).__enter__()
    leave(lease, failure)
    before = left(limiter)

    with pytest.raises(LeaseExpiredError):
        getattr(lease, verb)(rpm=1)
    assert before == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_lease_method_after_a_rejected_acquire_raises(limiter, verb):
    """Such a lease holds nothing that could be changed."""
    take(limiter, {"rpm": 55})
    lease = acquire(limiter)
    with pytest.raises(RateLimitExceeded):
        lease.__enter__()

    with pytest.raises(RuntimeError):
        getattr(lease, verb)(rpm=1)
    assert 5 == left(limiter)


def test_lease_that_is_entered_again_after_its_end_raises(limiter):
    """A lease cannot be reused."""
    lease = acquire(limiter).__enter__()
    leave(lease)

    with pytest.raises(RuntimeError):
        lease.__enter__()
    assert 50 == left(limiter)


def test_second_release_of_more_than_the_rest_raises(limiter):
    """Each release reduces what the lease holds."""
    with acquire(limiter) as lease:
        lease.release(rpm=6)
        with pytest.raises(ValidationError):
            lease.release(rpm=6)

    assert 56 == left(limiter)
