"""The specification's pure bucket functions, by name."""

import doctest
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import BucketState, ValidationError, bucket

EMPTY = BucketState("user-1", "gpt-4", "rpm", 0, 1_000, 100_000, 100_000, 60_000)
FULL = replace(EMPTY, tokens_milli=100_000)


def test_refill_adds_the_tokens_of_the_elapsed_time():
    """100 a minute are one token in 600 ms."""
    assert bucket.RefillResult(1_000, 1_600) == bucket.refill_bucket(EMPTY, 1_600)


def test_refill_stops_at_the_capacity():
    """Tokens above the capacity are lost."""
    assert 100_000 == bucket.refill_bucket(FULL, 10**9).new_tokens_milli


def test_refill_with_a_clock_that_went_back_adds_nothing():
    """The baseline never moves back."""
    assert bucket.RefillResult(0, 1_000) == bucket.refill_bucket(EMPTY, 500)


def test_try_consume_of_available_tokens_succeeds():
    """The balance decreases by the amount."""
    assert bucket.ConsumeResult(True, 60_000, 1_000, 60, 0.0) == bucket.try_consume(FULL, 40, 1_000)


def test_try_consume_of_more_than_available_takes_nothing():
    """The result contains the wait."""
    assert bucket.ConsumeResult(False, 0, 1_000, 0, 24.0) == bucket.try_consume(EMPTY, 40, 1_000)


@pytest.mark.parametrize("amount", [-1, 1.5, True, None, "1"])
def test_try_consume_of_an_invalid_amount_raises(amount):
    """The error names the argument."""
    with pytest.raises(ValidationError, match="requested"):
        bucket.try_consume(FULL, amount, 1_000)


def test_force_consume_may_go_into_debt_and_stops_at_the_capacity():
    """A forced amount never fails."""
    assert -50_000 == bucket.force_consume(EMPTY, 50, 1_000).new_tokens_milli
    assert 100_000 == bucket.force_consume(FULL, -50, 1_000).new_tokens_milli


def test_retry_after_of_more_than_the_capacity_is_infinite():
    """No wait is long enough."""
    assert math.inf == bucket.calculate_retry_after(FULL, 101, 1_000)


@given(tokens=st.integers(-(10**6), 99_999), requested=st.integers(1, 100), now_ms=st.integers(1_000, 10**6))
def test_retry_after_is_the_first_millisecond_that_satisfies_the_request(tokens, requested, now_ms):
    """It is neither early nor late."""
    state = replace(EMPTY, tokens_milli=tokens)
    wait_ms = round(bucket.calculate_retry_after(state, requested, now_ms) * 1000)

    assert bucket.would_refill_satisfy(state, requested, now_ms + wait_ms)
    assert wait_ms == 0 or not bucket.would_refill_satisfy(state, requested, now_ms + wait_ms - 1)


def test_limit_status_contains_available_requested_exceeded_and_wait():
    """The wait is 0 if the limit is not exceeded."""
    status = bucket.build_limit_status(EMPTY, 5, 1_600)

    assert (1, 5, True, 2.4) == (status.available, status.requested, status.exceeded, status.retry_after_seconds)
    assert "rpm" == status.limit.name
    assert 0.0 == bucket.build_limit_status(FULL, 5, 1_600).retry_after_seconds


def test_docstring_examples_of_the_bucket_module_run():
    """Their output is correct."""
    assert 0 == doctest.testmod(bucket).failed


SLOTS = BucketState(
    "user-1", "gpt-4", "slots", 8_000, 1_000, 20_000, 0, 0, hold_seconds=60, cohorts=((90, 5_000), (120, 7_000))
)


@pytest.mark.parametrize(("now_ms", "free"), [(1_000, 8), (89_999, 8), (90_000, 13), (120_000, 20), (10**9, 20)])
def test_slots_are_free_once_their_cohort_has_ended(now_ms, free):
    """Nothing is refilled in between. What is free and in use is the capacity at every time."""
    assert free == bucket.calculate_available(SLOTS, now_ms) == 20 - SLOTS.in_use(now_ms)
    assert bucket.RefillResult(free * 1000, now_ms) == bucket.refill_bucket(SLOTS, now_ms)


def test_cohorts_that_ended_before_the_balance_are_not_added_again():
    """A caller may keep the result as the next state, with the same cohorts."""
    first = bucket.refill_bucket(SLOTS, 100_000)
    kept = replace(SLOTS, tokens_milli=first.new_tokens_milli, last_refill_ms=first.new_last_refill_ms)

    assert 13 == bucket.calculate_available(kept, 110_000)
    assert 20 == bucket.calculate_available(kept, 120_000)


@pytest.mark.parametrize(("requested", "wait_s"), [(0, 0.0), (8, 0.0), (9, 80.0), (13, 80.0), (14, 110.0), (20, 110.0)])
def test_wait_for_slots_lasts_until_enough_cohorts_have_ended(requested, wait_s):
    """It is the longest wait: slots that are returned earlier end it."""
    assert wait_s == bucket.calculate_retry_after(SLOTS, requested, 10_000)
    assert math.inf == bucket.calculate_retry_after(SLOTS, 21, 10_000)


def test_status_of_slots_says_what_is_in_use_and_that_its_wait_is_not_exact():
    """Rate limits have no number in use."""
    status = bucket.build_limit_status(SLOTS, 9, 10_000)

    assert (True, 8, 12, False, 80.0) == (
        status.exceeded,
        status.available,
        status.in_use,
        status.exact,
        status.retry_after_seconds,
    )
    tokens = bucket.build_limit_status(FULL, 1, 1_000)
    assert (None, True) == (tokens.in_use, tokens.exact)


def test_slots_are_consumed_from_those_that_are_free():
    """Too few are a failure, and by force the number of free slots becomes negative."""
    assert (True, 3) == bucket.try_consume(SLOTS, 5, 1_000)[::3]
    assert (False, 8) == bucket.try_consume(SLOTS, 9, 1_000)[::3]
    assert -2_000 == bucket.force_consume(SLOTS, 10, 1_000).new_tokens_milli
    assert 20_000 == bucket.force_consume(SLOTS, -20, 1_000).new_tokens_milli
