"""The lease: what it holds, and how its methods and its exit change the bucket."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import LeaseExpiredError, Limit, RateLimitExceeded, ValidationError

from .clients import balance_of, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults(LIMITS)


def left(limiter):
    """Return what is available of both limits."""
    available = limiter.available("user-1", "gpt-4")
    return available["rpm"], available["tpm"]


def acquire(limiter, **consume):
    return limiter.acquire("user-1", "gpt-4", consume)


def test_lease_reports_its_consumption_by_limit_and_by_entry(limiter):
    """The entries name entity and resource."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        consumed, entries, degraded = lease.consumed, lease.entries, lease.degraded

    assert ({"rpm": 1, "tpm": 500}, False) == (consumed, degraded)
    assert [("user-1", "gpt-4", {"rpm": 1, "tpm": 500})] == [(e.entity_id, e.resource, e.consumed) for e in entries]


def test_changing_values_returned_by_a_lease_does_not_change_the_lease(limiter):
    """Changing the dict that was passed to acquire has no effect either."""
    consume = {"rpm": 1, "tpm": 500}

    with limiter.acquire("user-1", "gpt-4", consume) as lease:
        lease.consumed["rpm"] = 1_000
        lease.entries[0].consumed["rpm"] = 1_000
        consume["rpm"] = 1_000
        lease.release(rpm=1)

    assert {"rpm": 0, "tpm": 500} == lease.consumed
    assert (60, 5_500) == left(limiter)


def test_acquire_debits_the_bucket_on_entry(limiter):
    """Inside the block the tokens are already taken."""
    with acquire(limiter, rpm=1, tpm=500):
        inside = left(limiter)

    assert (59, 5_500) == inside == left(limiter)


def test_adjust_up_debits_the_bucket_at_exit(limiter):
    """Inside the block, only ``consumed`` changes."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=250)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 750} == lease.consumed
    assert ((59, 5_500), (59, 5_250)) == (inside, left(limiter))


def test_adjust_down_credits_the_bucket_at_exit(limiter):
    """Unused tokens become available to other requests."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=-380)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 120} == lease.consumed
    assert ((59, 5_500), (59, 5_880)) == (inside, left(limiter))


def test_adjust_up_may_put_the_bucket_into_debt(limiter, clock):
    """Actual use is always debited; refill first pays off the debt."""
    with acquire(limiter, rpm=1, tpm=6_000) as lease:
        lease.adjust(tpm=1_500)
    owed = left(limiter)
    clock.advance(15_000)

    assert ((59, -1_500), (60, 0)) == (owed, left(limiter))


def test_adjust_up_may_exceed_the_capacity(limiter):
    """Only the general maximum of an amount bounds an adjustment."""
    with acquire(limiter, tpm=1) as lease:
        lease.adjust(tpm=60_000)

    assert (60, -54_001) == left(limiter)


def test_several_adjustments_are_summed(limiter):
    """They are written once, as one net amount."""
    with acquire(limiter, rpm=1, tpm=100) as lease:
        lease.adjust(tpm=50)
        lease.adjust(tpm=-120, rpm=2)
        lease.adjust(rpm=-1)

    assert {"rpm": 2, "tpm": 30} == lease.consumed
    assert (58, 5_970) == left(limiter)


def test_adjust_may_raise_one_limit_and_lower_another(limiter):
    """Debit and credit are sent in one write."""
    with acquire(limiter, rpm=10, tpm=100) as lease:
        lease.adjust(tpm=1_000, rpm=-7)

    assert (57, 4_900) == left(limiter)


def test_adjust_up_debits_a_bucket_that_is_full_by_now(limiter, clock):
    """Refill beyond the capacity does not offset the debit."""
    with acquire(limiter, tpm=100) as lease:
        clock.advance(3_600_000)
        lease.adjust(tpm=1_000)

    assert (60, 5_000) == left(limiter)


def test_release_to_a_full_bucket_does_not_exceed_the_capacity(limiter, clock):
    """A bucket never holds more than its capacity."""
    with acquire(limiter, tpm=100) as lease:
        clock.advance(3_600_000)
        lease.release(tpm=100)
    full = left(limiter)
    take(limiter, {"tpm": 6_000})

    assert ((60, 6_000), (60, 0)) == (full, left(limiter))


def test_release_credits_the_bucket_immediately(limiter):
    """Other requests need not wait for the end of the lease."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.release(tpm=200)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 300} == lease.consumed
    assert (59, 5_700) == inside == left(limiter)


def test_release_first_cancels_adjustments_that_are_not_written_yet(limiter):
    """An adjustment that was not written need not be credited."""
    with acquire(limiter, tpm=100) as lease:
        lease.adjust(tpm=50)
        lease.release(tpm=30)
        after_a_part = (left(limiter), lease.consumed)
        lease.release(tpm=70)
        after_more = (left(limiter), lease.consumed)

    assert ((60, 5_900), {"tpm": 120}) == after_a_part
    assert ((60, 5_950), {"tpm": 50}) == after_more
    assert (60, 5_950) == left(limiter)


def test_release_and_adjust_down_credit_both_amounts(limiter):
    """Together they credit what the lease held, and no more."""
    with acquire(limiter, tpm=100) as lease:
        lease.adjust(tpm=-40)
        lease.release(tpm=60)

    assert {"tpm": 0} == lease.consumed
    assert (60, 6_000) == left(limiter)


def test_consume_debits_the_bucket_immediately(limiter):
    """The tokens belong to the lease from then on."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.consume(tpm=1_500)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 2_000} == lease.consumed
    assert (59, 4_000) == inside == left(limiter)


def test_rejected_consume_leaves_the_lease_unchanged(limiter):
    """It takes nothing, and the lease can still be used."""
    with acquire(limiter, rpm=1, tpm=5_000) as lease:
        with pytest.raises(RateLimitExceeded) as caught:
            lease.consume(rpm=1, tpm=1_001)
        after_rejection = lease.consumed
        lease.consume(tpm=1_000)
        lease.adjust(tpm=7)

    assert 1_000 == caught.value.primary_violation.available
    assert ({"rpm": 1, "tpm": 5_000}, {"rpm": 1, "tpm": 6_007}) == (after_rejection, lease.consumed)
    assert (59, -7) == left(limiter)


def test_exception_in_a_lease_credits_everything(limiter):
    """A failed request is not debited; its adjustments are dropped."""

    def failing():
        with acquire(limiter, rpm=1, tpm=500) as lease:
            lease.consume(tpm=100)
            lease.adjust(tpm=1_000)
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert (60, 6_000) == left(limiter)


def test_exception_after_a_release_credits_only_the_remaining_tokens(limiter):
    """Nothing is credited twice."""
    take(limiter, {"rpm": 10, "tpm": 3_000})

    def failing():
        with acquire(limiter, rpm=1, tpm=500) as lease:
            lease.release(tpm=200)
            lease.adjust(tpm=-100)
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert (50, 3_000) == left(limiter)


def test_uncaught_rejection_in_a_lease_credits_everything(limiter):
    """It is handled like any other exception."""
    with pytest.raises(RateLimitExceeded):
        with acquire(limiter, tpm=5_000) as lease:
            lease.consume(tpm=5_000)

    assert (60, 6_000) == left(limiter)


def test_credits_reduce_the_total_consumption_counter(limiter, repo):
    """The counter that usage is computed from holds the final consumption."""
    with pytest.raises(KeyError):
        with acquire(limiter, tpm=500):
            raise KeyError
    with acquire(limiter, tpm=500) as lease:
        lease.adjust(tpm=100)
        lease.release(tpm=50)

    assert 550_000 == balance_of(repo, "tpm", "tc")


def test_exception_in_a_nested_lease_credits_only_that_lease(limiter):
    """The outer lease keeps its tokens."""
    with acquire(limiter, rpm=1, tpm=100):
        with pytest.raises(KeyError):
            with acquire(limiter, rpm=1, tpm=200):
                raise KeyError
        with acquire(limiter, rpm=1, tpm=300):
            pass

    assert (58, 5_600) == left(limiter)


def test_exception_in_a_lease_of_zero_tokens_changes_nothing(limiter, repo):
    """Crediting zero tokens is a no-op."""
    with pytest.raises(KeyError):
        with acquire(limiter, rpm=0, tpm=0):
            raise KeyError

    assert (60, 6_000) == left(limiter)
    assert 0 == balance_of(repo, "rpm", "tc")


def test_lease_methods_accept_zero_or_no_amounts(limiter):
    """Amounts of zero, or none at all, change nothing."""
    with acquire(limiter, rpm=1) as lease:
        lease.adjust()
        lease.consume()
        lease.release()
        lease.adjust(rpm=0)
        lease.consume(rpm=0)
        lease.release(rpm=0)

    assert {"rpm": 1} == lease.consumed
    assert (59, 6_000) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_lease_methods_after_exit_raise_lease_expired(limiter, verb):
    """After the block nothing can be changed."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        pass

    with pytest.raises(LeaseExpiredError) as caught:
        getattr(lease, verb)(tpm=1)

    assert (verb, "user-1", "gpt-4") == (caught.value.verb, caught.value.entity_id, caught.value.resource)
    assert (59, 5_500) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_lease_methods_after_exit_by_exception_raise_lease_expired(limiter, verb):
    """A block left by an exception has ended too."""
    with pytest.raises(KeyError):
        with acquire(limiter, rpm=1) as lease:
            raise KeyError

    with pytest.raises(LeaseExpiredError):
        getattr(lease, verb)()

    assert (60, 6_000) == left(limiter)


def test_release_of_more_than_the_lease_holds_raises(limiter):
    """Otherwise a caller could add tokens that it never took."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        with pytest.raises(ValidationError) as caught:
            lease.release(rpm=1, tpm=501)

    assert ("tpm", 501) == (caught.value.field, caught.value.value)
    assert {"rpm": 1, "tpm": 500} == lease.consumed
    assert (59, 5_500) == left(limiter)


def test_release_of_tokens_that_were_already_released_raises(limiter):
    """The lease holds less after each release."""
    with acquire(limiter, tpm=500) as lease:
        lease.release(tpm=400)
        with pytest.raises(ValidationError):
            lease.release(tpm=101)
        lease.release(tpm=100)

    assert (60, 6_000) == left(limiter)


def test_adjust_below_zero_consumption_raises(limiter):
    """Pending adjustments count."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=-400)
        with pytest.raises(ValidationError) as caught:
            lease.adjust(rpm=1, tpm=-101)

    assert "tpm" == caught.value.field
    assert {"rpm": 1, "tpm": 100} == lease.consumed
    assert (59, 5_900) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_lease_method_with_a_limit_that_is_not_in_force_raises(limiter, verb):
    """Nothing is changed for the other limits of the call either."""
    with acquire(limiter, rpm=2) as lease:
        for name in ("unknown", "wcu", ""):
            with pytest.raises(ValidationError) as caught:
                getattr(lease, verb)(**{"rpm": 1, name: 1})
            assert (verb, name) == (caught.value.field, caught.value.value)

    assert {"rpm": 2} == lease.consumed
    assert (58, 6_000) == left(limiter)


def test_release_of_a_limit_that_was_not_acquired_raises(limiter):
    """A lease gives back only what it holds."""
    with acquire(limiter, rpm=2) as lease:
        with pytest.raises(ValidationError) as caught:
            lease.release(tpm=1)

    assert ("tpm", 1) == (caught.value.field, caught.value.value)
    assert (58, 6_000) == left(limiter)


def test_adjust_of_a_limit_that_was_not_acquired_is_charged_at_exit(limiter):
    """Every limit in force can be adjusted: a gateway may learn the tokens only from the answer."""
    with acquire(limiter, rpm=2) as lease:
        lease.adjust(tpm=730)
        consumed = lease.consumed

    assert {"rpm": 2, "tpm": 730} == consumed
    assert (58, 5_270) == left(limiter)


def test_consume_of_a_limit_that_was_not_acquired_takes_and_gives_it_back(limiter):
    """It belongs to the lease from then on."""
    lease = acquire(limiter, rpm=2)
    lease.__enter__()
    lease.consume(tpm=500)
    inside = left(limiter)
    lease.__exit__(OSError, OSError("the model failed"), None)

    assert (58, 5_500) == inside
    assert (60, 6_000) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
@pytest.mark.parametrize("amount", [1.0, True, "1", None, float("nan"), 10**18 + 1, [1]], ids=str)
def test_lease_method_with_a_non_integer_amount_raises(limiter, verb, amount):
    """Tokens are counted in integers."""
    with acquire(limiter, rpm=2) as lease:
        with pytest.raises(ValidationError) as caught:
            getattr(lease, verb)(rpm=amount)

    assert f"{verb}(rpm)" == caught.value.field
    assert (58, 6_000) == left(limiter)


@pytest.mark.parametrize("verb", ["consume", "release"])
def test_consume_and_release_of_a_negative_amount_raise(limiter, verb):
    """Only ``adjust`` takes amounts of both signs."""
    with acquire(limiter, rpm=2) as lease:
        with pytest.raises(ValidationError):
            getattr(lease, verb)(rpm=-1)

    assert (58, 6_000) == left(limiter)


def test_consume_of_more_than_the_capacity_raises_validation_error(limiter):
    """It can never be admitted, so it is not a rejection."""
    with acquire(limiter, rpm=1) as lease:
        with pytest.raises(ValidationError, match="60"):
            lease.consume(rpm=61)

    assert (59, 6_000) == left(limiter)


def test_lease_methods_accept_every_valid_limit_name(limiter):
    """Names such as ``self`` do not clash with parameters."""
    limits = [Limit.per_second(name, 10) for name in ("self", "a.b", "a-b", "amounts")]
    consume = {limit.name: 1 for limit in limits}

    with limiter.acquire("user-1", "gpt-4", consume, limits) as lease:
        lease.adjust(**consume)
        lease.consume(**consume)
        lease.release(**consume)

    assert {"self": 2, "a.b": 2, "a-b": 2, "amounts": 2} == lease.consumed
    assert {"self": 8, "a.b": 8, "a-b": 8, "amounts": 8} == limiter.available("user-1", "gpt-4", limits)
