"""An amount above a capacity: a rejection that no wait clears, and an invalid argument."""  # generated from _async by tools/mirror.py; do not edit

import pickle

import pytest

from zae_limiter import AmountExceedsCapacityError, Limit, SyncRateLimiter, RateLimitExceeded, ValidationError

from .clients import FailingTable, another, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults(LIMITS)


def error_of(call):
    with pytest.raises(AmountExceedsCapacityError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("known", [False, True])
def test_acquire_above_a_capacity_is_a_rejection_with_all_statuses(limiter, known):
    """A handler of 429 finds every limit, cold and cached, and nothing was taken."""
    if known:
        take(limiter, {"rpm": 6})

    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 61, "tpm": 10}).__enter__)

    assert isinstance(error, RateLimitExceeded)
    assert isinstance(error, ValidationError)
    assert [("rpm", 61, True), ("tpm", 10, False)] == [(s.limit_name, s.requested, s.exceeded) for s in error.statuses]
    assert "rpm" == error.primary_violation.limit_name
    assert {"rpm": 54 if known else 60, "tpm": 6_000} == limiter.available("user-1", "gpt-4")


def test_acquire_above_a_capacity_says_that_it_is_never_admitted(limiter):
    """``never`` tells a handler that no wait helps."""
    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 61}).__enter__)

    assert (True, True) == (error.never, error.as_dict()["never"])
    assert "can never be admitted" in str(error)


def test_rejection_that_a_wait_clears_is_not_never(limiter):
    """The same key exists in every rejection."""
    take(limiter, {"rpm": 60})

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"rpm": 1})

    assert (False, False) == (caught.value.never, caught.value.as_dict()["never"])


def test_retry_after_above_a_capacity_is_the_time_until_the_bucket_is_full(limiter):
    """So a handler that waits and retries neither crashes nor hangs."""
    take(limiter, {"rpm": 15})

    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 100}).__enter__)

    assert 15.0 == error.retry_after_seconds
    assert "15" == error.retry_after_header


def test_error_above_a_capacity_survives_pickling(limiter):
    """A worker process may send it to its parent."""
    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 61}).__enter__)

    copy = pickle.loads(pickle.dumps(error))

    assert (error.statuses, error.field, str(error)) == (copy.statuses, copy.field, str(copy))


def test_acquire_above_the_capacity_of_a_parent_names_both_buckets(limiter):
    """The child could admit it, its parent never."""
    limiter.create_entity("project")
    limiter.create_entity("key", parent_id="project", cascade=True)
    limiter.set_limits("project", [Limit.per_minute("rpm", 10)])

    error = error_of(limiter.acquire("key", "gpt-4", {"rpm": 20}).__enter__)

    assert ["key", "key", "project"] == [status.entity_id for status in error.statuses]
    assert ["project"] == [status.entity_id for status in error.violations]
    assert str(error).endswith("of limit 'rpm' (10): it can never be admitted for entity 'project'")
    assert {"rpm": 10, "tpm": 6_000} == limiter.available("key", "gpt-4")


def test_consume_above_a_capacity_keeps_what_the_lease_holds(limiter):
    """The statuses have what is left beside the lease."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
        error = error_of(lambda: lease.consume(rpm=61))
        consumed = lease.consumed

    assert {"rpm": 10} == consumed
    assert [50, 6_000] == [status.available for status in error.statuses]


def test_time_until_more_than_a_capacity_is_available_raises_with_statuses(limiter):
    """There is no such time."""
    error = error_of(lambda: limiter.time_until_available("user-1", "gpt-4", {"rpm": 61}))

    assert ("needed[rpm]", 61) == (error.field, error.value)
    assert [("rpm", 60), ("tpm", 6_000)] == [(status.limit_name, status.available) for status in error.statuses]


def test_invalid_amount_beside_one_above_a_capacity_is_left_out_of_the_statuses(limiter):
    """The first invalid amount is reported."""
    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 61, "tpm": "many"}).__enter__)

    assert [61, 0] == [status.requested for status in error.statuses]


def test_acquire_above_the_capacity_of_a_parent_names_it_without_a_cache(repo):
    """A handler of 429 reads the primary violation."""
    limiter = SyncRateLimiter(another(repo, config_cache_ttl_ms=0))
    limiter.create_entity("project")
    limiter.create_entity("key", parent_id="project", cascade=True)
    limiter.set_limits("project", [Limit.per_minute("rpm", 10)])

    error = error_of(limiter.acquire("key", "gpt-4", {"rpm": 20}).__enter__)

    assert "project" == error.primary_violation.entity_id


def test_acquire_above_a_capacity_has_a_violation_while_the_store_is_unavailable(repo):
    """A bucket that was never seen counts as full."""
    other = another(repo, FailingTable)
    limiter = SyncRateLimiter(other)
    limiter.resolve_limits("user-1", "gpt-4")
    other.scope.table.unavailable = True

    error = error_of(limiter.acquire("user-1", "gpt-4", {"rpm": 61}).__enter__)

    assert ("rpm", 60) == (error.primary_violation.limit_name, error.primary_violation.available)
