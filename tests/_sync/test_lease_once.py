"""A lease is entered once and left once, and its verbs end with it."""  # generated from _async by tools/mirror.py; do not edit

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


def test_a_lease_left_by_an_exception_again_gives_nothing_back(limiter):
    """The second exit is no exit: others hold what is available by then."""
    take(limiter, {"rpm": 10})
    lease = acquire(limiter).__enter__()
    for _ in range(3):
        leave(lease, KeyError("failed"))

    assert 50 == left(limiter)


def test_a_lease_left_normally_and_then_by_an_exception_keeps_its_tokens(limiter):
    """The first exit decides."""
    lease = acquire(limiter).__enter__()
    leave(lease)
    leave(lease, KeyError("failed"))

    assert 50 == left(limiter)


def test_a_lease_left_twice_writes_its_adjustments_once(limiter):
    """And still says what it consumed."""
    lease = acquire(limiter).__enter__()
    lease.adjust(rpm=5)
    leave(lease)
    leave(lease)

    assert {"rpm": 15} == lease.consumed
    assert 45 == left(limiter)


def test_a_lease_that_was_never_entered_is_left_without_effect(limiter):
    """There is nothing to give back."""
    leave(acquire(limiter), KeyError("failed"))

    assert 60 == left(limiter)


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_a_verb_after_the_end_raises_and_changes_nothing(limiter, verb, failure):
    """However the lease was left."""
    lease = acquire(limiter).__enter__()
    leave(lease, failure)
    before = left(limiter)

    with pytest.raises(LeaseExpiredError):
        getattr(lease, verb)(rpm=1)
    assert before == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_a_verb_of_a_lease_whose_acquire_was_rejected_raises(limiter, verb):
    """It holds nothing, so there is nothing to change."""
    take(limiter, {"rpm": 55})
    lease = acquire(limiter)
    with pytest.raises(RateLimitExceeded):
        lease.__enter__()

    with pytest.raises(RuntimeError):
        getattr(lease, verb)(rpm=1)
    assert 5 == left(limiter)


def test_a_lease_is_entered_once(limiter):
    """Not even after its end."""
    lease = acquire(limiter).__enter__()
    leave(lease)

    with pytest.raises(RuntimeError):
        lease.__enter__()
    assert 50 == left(limiter)


def test_releases_give_back_at_most_what_is_held(limiter):
    """The second one sees what the first has left."""
    with acquire(limiter) as lease:
        lease.release(rpm=6)
        with pytest.raises(ValidationError):
            lease.release(rpm=6)

    assert 56 == left(limiter)
