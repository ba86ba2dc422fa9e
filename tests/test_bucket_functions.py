"""The specification's pure bucket functions, by their names."""

import doctest
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import BucketState, ValidationError, bucket

EMPTY = BucketState("user-1", "gpt-4", "rpm", 0, 1_000, 100_000, 100_000, 60_000)
FULL = replace(EMPTY, tokens_milli=100_000)


def test_refill_adds_what_was_earned():
    """100 a minute are one token in 600 ms."""
    assert bucket.RefillResult(1_000, 1_600) == bucket.refill_bucket(EMPTY, 1_600)


def test_refill_stops_at_the_capacity():
    """What is above the capacity is gone."""
    assert 100_000 == bucket.refill_bucket(FULL, 10**9).new_tokens_milli


def test_a_clock_that_went_back_earns_nothing():
    """The baseline never moves back."""
    assert bucket.RefillResult(0, 1_000) == bucket.refill_bucket(EMPTY, 500)


def test_consuming_what_is_there_succeeds():
    """The balance sinks by what was consumed."""
    assert bucket.ConsumeResult(True, 60_000, 1_000, 60, 0.0) == bucket.try_consume(FULL, 40, 1_000)


def test_consuming_more_than_is_there_takes_nothing():
    """A refusal says when to come back."""
    assert bucket.ConsumeResult(False, 0, 1_000, 0, 24.0) == bucket.try_consume(EMPTY, 40, 1_000)


@pytest.mark.parametrize("amount", [-1, 1.5, True, None, "1"])
def test_only_whole_amounts_are_consumed(amount):
    """Anything else is refused by name."""
    with pytest.raises(ValidationError, match="requested"):
        bucket.try_consume(FULL, amount, 1_000)


def test_force_goes_into_debt_and_back():
    """A forced amount never fails; given back, it stops at the capacity."""
    assert -50_000 == bucket.force_consume(EMPTY, 50, 1_000).new_tokens_milli
    assert 100_000 == bucket.force_consume(FULL, -50, 1_000).new_tokens_milli


def test_more_than_the_capacity_is_never_ready():
    """No wait is long enough."""
    assert math.inf == bucket.calculate_retry_after(FULL, 101, 1_000)


@given(tokens=st.integers(-(10**6), 99_999), requested=st.integers(1, 100), now_ms=st.integers(1_000, 10**6))
def test_retry_after_is_the_first_millisecond_that_satisfies(tokens, requested, now_ms):
    """Neither early nor late."""
    state = replace(EMPTY, tokens_milli=tokens)
    wait_ms = round(bucket.calculate_retry_after(state, requested, now_ms) * 1000)

    assert bucket.would_refill_satisfy(state, requested, now_ms + wait_ms)
    assert wait_ms == 0 or not bucket.would_refill_satisfy(state, requested, now_ms + wait_ms - 1)


def test_a_status_tells_all_of_one_limit():
    """Available, requested, exceeded and the wait."""
    status = bucket.build_limit_status(EMPTY, 5, 1_600)

    assert (1, 5, True, 2.4) == (status.available, status.requested, status.exceeded, status.retry_after_seconds)
    assert "rpm" == status.limit.name
    assert 0.0 == bucket.build_limit_status(FULL, 5, 1_600).retry_after_seconds


def test_the_examples_run():
    """Examples in docstrings are true."""
    assert 0 == doctest.testmod(bucket).failed
