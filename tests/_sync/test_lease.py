"""The lease: what it holds, and what becomes of it."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import LeaseExpiredError, Limit, RateLimitExceeded, ValidationError

from .clients import balance_of, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults(LIMITS)


def left(limiter):
    """What is available of both limits."""
    available = limiter.available("user-1", "gpt-4")
    return available["rpm"], available["tpm"]


def acquire(limiter, **consume):
    return limiter.acquire("user-1", "gpt-4", consume)


def test_a_lease_tells_what_it_consumed(limiter):
    """By limit, and as entries that name the bucket."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        consumed, entries, degraded = lease.consumed, lease.entries, lease.degraded

    assert ({"rpm": 1, "tpm": 500}, False) == (consumed, degraded)
    assert [("user-1", "gpt-4", {"rpm": 1, "tpm": 500})] == [(e.entity_id, e.resource, e.consumed) for e in entries]


def test_what_a_lease_tells_is_the_callers_to_keep(limiter):
    """Changing the answer, or what was passed to acquire, changes nothing in the lease."""
    consume = {"rpm": 1, "tpm": 500}

    with limiter.acquire("user-1", "gpt-4", consume) as lease:
        lease.consumed["rpm"] = 1_000
        lease.entries[0].consumed["rpm"] = 1_000
        consume["rpm"] = 1_000
        lease.release(rpm=1)

    assert {"rpm": 0, "tpm": 500} == lease.consumed
    assert (60, 5_500) == left(limiter)


def test_the_tokens_are_gone_on_entering(limiter):
    """Inside the block they are taken already."""
    with acquire(limiter, rpm=1, tpm=500):
        inside = left(limiter)

    assert (59, 5_500) == inside == left(limiter)


def test_adjusting_up_charges_more_when_the_lease_ends(limiter):
    """Inside it counts for the lease, in the bucket only afterwards."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=250)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 750} == lease.consumed
    assert ((59, 5_500), (59, 5_250)) == (inside, left(limiter))


def test_adjusting_down_gives_back_when_the_lease_ends(limiter):
    """What was not used is there for others."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=-380)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 120} == lease.consumed
    assert ((59, 5_500), (59, 5_880)) == (inside, left(limiter))


def test_adjusting_may_go_into_debt(limiter, clock):
    """What was used was used: the balance goes below zero, and refill pays it off first."""
    with acquire(limiter, rpm=1, tpm=6_000) as lease:
        lease.adjust(tpm=1_500)
    owed = left(limiter)
    clock.advance(15_000)

    assert ((59, -1_500), (60, 0)) == (owed, left(limiter))


def test_adjusting_may_go_beyond_the_capacity(limiter):
    """An adjustment has no bound but that of an amount."""
    with acquire(limiter, tpm=1) as lease:
        lease.adjust(tpm=60_000)

    assert (60, -54_001) == left(limiter)


def test_adjustments_add_up(limiter):
    """Ups and downs are netted and written once."""
    with acquire(limiter, rpm=1, tpm=100) as lease:
        lease.adjust(tpm=50)
        lease.adjust(tpm=-120, rpm=2)
        lease.adjust(rpm=-1)

    assert {"rpm": 2, "tpm": 30} == lease.consumed
    assert (58, 5_970) == left(limiter)


def test_one_limit_goes_up_while_another_goes_down(limiter):
    """Debit and credit travel in one write."""
    with acquire(limiter, rpm=10, tpm=100) as lease:
        lease.adjust(tpm=1_000, rpm=-7)

    assert (57, 4_900) == left(limiter)


def test_an_adjustment_is_charged_to_a_bucket_that_filled_up_meanwhile(limiter, clock):
    """Overflow that nobody was owed does not pay for it."""
    with acquire(limiter, tpm=100) as lease:
        clock.advance(3_600_000)
        lease.adjust(tpm=1_000)

    assert (60, 5_000) == left(limiter)


def test_what_is_given_back_to_a_full_bucket_overflows(limiter, clock):
    """A bucket never holds more than its capacity."""
    with acquire(limiter, tpm=100) as lease:
        clock.advance(3_600_000)
        lease.release(tpm=100)
    full = left(limiter)
    take(limiter, {"tpm": 6_000})

    assert ((60, 6_000), (60, 0)) == (full, left(limiter))


def test_releasing_gives_back_at_once(limiter):
    """Others need not wait until the lease ends."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.release(tpm=200)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 300} == lease.consumed
    assert (59, 5_700) == inside == left(limiter)


def test_a_release_takes_off_first_what_was_only_put_off(limiter):
    """An adjustment that was not written yet need not be given back."""
    with acquire(limiter, tpm=100) as lease:
        lease.adjust(tpm=50)
        lease.release(tpm=30)
        after_a_part = (left(limiter), lease.consumed)
        lease.release(tpm=70)
        after_more = (left(limiter), lease.consumed)

    assert ((60, 5_900), {"tpm": 120}) == after_a_part
    assert ((60, 5_950), {"tpm": 50}) == after_more
    assert (60, 5_950) == left(limiter)


def test_a_release_beside_an_adjustment_down_gives_back_both(limiter):
    """Together they give back what the lease held, and no more."""
    with acquire(limiter, tpm=100) as lease:
        lease.adjust(tpm=-40)
        lease.release(tpm=60)

    assert {"tpm": 0} == lease.consumed
    assert (60, 6_000) == left(limiter)


def test_consuming_more_takes_at_once(limiter):
    """And belongs to the lease from then on."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.consume(tpm=1_500)
        inside = left(limiter)

    assert {"rpm": 1, "tpm": 2_000} == lease.consumed
    assert (59, 4_000) == inside == left(limiter)


def test_consuming_more_than_there_is_leaves_the_lease_as_it_was(limiter):
    """A rejection inside the block takes nothing, and the lease goes on."""
    with acquire(limiter, rpm=1, tpm=5_000) as lease:
        with pytest.raises(RateLimitExceeded) as caught:
            lease.consume(rpm=1, tpm=1_001)
        after_rejection = lease.consumed
        lease.consume(tpm=1_000)
        lease.adjust(tpm=7)

    assert 1_000 == caught.value.primary_violation.available
    assert ({"rpm": 1, "tpm": 5_000}, {"rpm": 1, "tpm": 6_007}) == (after_rejection, lease.consumed)
    assert (59, -7) == left(limiter)


def test_an_exception_gives_everything_back(limiter):
    """What failed is not charged, adjustments included."""

    def failing():
        with acquire(limiter, rpm=1, tpm=500) as lease:
            lease.consume(tpm=100)
            lease.adjust(tpm=1_000)
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert (60, 6_000) == left(limiter)


def test_an_exception_after_a_release_gives_back_only_what_is_still_held(limiter):
    """Nothing is given back twice."""
    take(limiter, {"rpm": 10, "tpm": 3_000})

    def failing():
        with acquire(limiter, rpm=1, tpm=500) as lease:
            lease.release(tpm=200)
            lease.adjust(tpm=-100)
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert (50, 3_000) == left(limiter)


def test_a_rejection_inside_the_block_that_is_not_caught_gives_everything_back(limiter):
    """It is an exception like others."""
    with pytest.raises(RateLimitExceeded):
        with acquire(limiter, tpm=5_000) as lease:
            lease.consume(tpm=5_000)

    assert (60, 6_000) == left(limiter)


def test_what_is_given_back_is_not_counted_as_consumed(limiter, repo):
    """The total that usage is read from is what was used in the end."""
    with pytest.raises(KeyError):
        with acquire(limiter, tpm=500):
            raise KeyError
    with acquire(limiter, tpm=500) as lease:
        lease.adjust(tpm=100)
        lease.release(tpm=50)

    assert 550_000 == balance_of(repo, "tpm", "tc")


def test_leases_nest(limiter):
    """An inner block that fails gives back its own."""
    with acquire(limiter, rpm=1, tpm=100):
        with pytest.raises(KeyError):
            with acquire(limiter, rpm=1, tpm=200):
                raise KeyError
        with acquire(limiter, rpm=1, tpm=300):
            pass

    assert (58, 5_600) == left(limiter)


def test_a_lease_of_nothing_owes_nothing(limiter, repo):
    """Zero tokens are given back as zero tokens."""
    with pytest.raises(KeyError):
        with acquire(limiter, rpm=0, tpm=0):
            raise KeyError

    assert (60, 6_000) == left(limiter)
    assert 0 == balance_of(repo, "rpm", "tc")


def test_nothing_may_be_adjusted_consumed_or_released(limiter):
    """Amounts of zero, or none at all, are allowed."""
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
def test_a_lease_that_has_ended_refuses_every_verb(limiter, verb):
    """After the block nothing can be changed."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        pass

    with pytest.raises(LeaseExpiredError) as caught:
        getattr(lease, verb)(tpm=1)

    assert (verb, "user-1", "gpt-4") == (caught.value.verb, caught.value.entity_id, caught.value.resource)
    assert (59, 5_500) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_a_lease_that_was_given_back_refuses_every_verb(limiter, verb):
    """A block left by an exception has ended too."""
    with pytest.raises(KeyError):
        with acquire(limiter, rpm=1) as lease:
            raise KeyError

    with pytest.raises(LeaseExpiredError):
        getattr(lease, verb)()

    assert (60, 6_000) == left(limiter)


def test_more_than_is_held_cannot_be_released(limiter):
    """Else a caller could fill a bucket for others."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        with pytest.raises(ValidationError) as caught:
            lease.release(rpm=1, tpm=501)

    assert ("tpm", 501) == (caught.value.field, caught.value.value)
    assert {"rpm": 1, "tpm": 500} == lease.consumed
    assert (59, 5_500) == left(limiter)


def test_what_was_released_cannot_be_released_again(limiter):
    """The lease holds less after each release."""
    with acquire(limiter, tpm=500) as lease:
        lease.release(tpm=400)
        with pytest.raises(ValidationError):
            lease.release(tpm=101)
        lease.release(tpm=100)

    assert (60, 6_000) == left(limiter)


def test_an_adjustment_cannot_go_below_nothing(limiter):
    """Nobody consumes less than nothing; pending adjustments count."""
    with acquire(limiter, rpm=1, tpm=500) as lease:
        lease.adjust(tpm=-400)
        with pytest.raises(ValidationError) as caught:
            lease.adjust(rpm=1, tpm=-101)

    assert "tpm" == caught.value.field
    assert {"rpm": 1, "tpm": 100} == lease.consumed
    assert (59, 5_900) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
def test_only_limits_that_the_acquire_named_can_be_changed(limiter, verb):
    """A name left out is as unknown as one that does not exist."""
    with acquire(limiter, rpm=2) as lease:
        for name in ("tpm", "unknown", "wcu", ""):
            with pytest.raises(ValidationError) as caught:
                getattr(lease, verb)(**{"rpm": 1, name: 1})
            assert (verb, name) == (caught.value.field, caught.value.value)

    assert {"rpm": 2} == lease.consumed
    assert (58, 6_000) == left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
@pytest.mark.parametrize("amount", [1.0, True, "1", None, float("nan"), 10**18 + 1, [1]], ids=str)
def test_amounts_are_whole_numbers(limiter, verb, amount):
    """Nothing else is counted in tokens."""
    with acquire(limiter, rpm=2) as lease:
        with pytest.raises(ValidationError) as caught:
            getattr(lease, verb)(rpm=amount)

    assert f"{verb}(rpm)" == caught.value.field
    assert (58, 6_000) == left(limiter)


@pytest.mark.parametrize("verb", ["consume", "release"])
def test_only_an_adjustment_may_be_negative(limiter, verb):
    """Consuming goes one way and releasing the other."""
    with acquire(limiter, rpm=2) as lease:
        with pytest.raises(ValidationError):
            getattr(lease, verb)(rpm=-1)

    assert (58, 6_000) == left(limiter)


def test_consuming_more_than_the_capacity_can_never_be_admitted(limiter):
    """It is a mistake and no rejection."""
    with acquire(limiter, rpm=1) as lease:
        with pytest.raises(ValidationError, match="60"):
            lease.consume(rpm=61)

    assert (59, 6_000) == left(limiter)


def test_a_limit_may_bear_any_name_that_is_allowed(limiter):
    """Also one that Python uses for itself."""
    limits = [Limit.per_second(name, 10) for name in ("self", "a.b", "a-b", "amounts")]
    consume = {limit.name: 1 for limit in limits}

    with limiter.acquire("user-1", "gpt-4", consume, limits) as lease:
        lease.adjust(**consume)
        lease.consume(**consume)
        lease.release(**consume)

    assert {"self": 2, "a.b": 2, "a-b": 2, "amounts": 2} == lease.consumed
    assert {"self": 8, "a.b": 8, "a-b": 8, "amounts": 8} == limiter.available("user-1", "gpt-4", limits)
