"""An unavailable store: requests are blocked or allowed by the choice of the call, the client and the system."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError

from .clients import FailingTable, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture
def failing_limiter(repo):
    """A client whose table fails on demand, with stored and cached limits."""
    other = another(repo, FailingTable)
    other.set_system_defaults(LIMITS)
    return SyncRateLimiter(other)


def table_of(limiter):
    return limiter.repository.scope.table


def with_choice(limiter, choice):
    """Return a client that was opened with this ``on_unavailable``."""
    return SyncRateLimiter(another(limiter.repository, on_unavailable=choice))


def is_allowed(limiter, choice=None):
    """Return whether a request is allowed while the store is unavailable."""
    table_of(limiter).unavailable = True
    try:
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=choice) as lease:
            return lease.degraded
    except RateLimiterUnavailable:
        return False
    finally:
        table_of(limiter).unavailable = False


@pytest.mark.parametrize("seen_before", [False, True])
def test_blocked_request_raises_with_entity_resource_and_cause(failing_limiter, seen_before):
    """Whether the bucket is cached or read for the first time."""
    if seen_before:
        take(failing_limiter, {"rpm": 1})
    table_of(failing_limiter).unavailable = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        take(failing_limiter, {"rpm": 1})

    error = caught.value
    assert ("user-1", "gpt-4", table_of(failing_limiter).cause) == (error.entity_id, error.resource, error.cause)
    assert error.stack_name is None, "a file has no stack"
    assert "'user-1'" in str(error)
    assert "the test has cut the connection" in str(error)


@pytest.mark.parametrize("seen_before", [False, True])
def test_request_with_allow_yields_a_degraded_lease(failing_limiter, seen_before):
    """``degraded`` is set, and nothing is limited or written."""
    if seen_before:
        take(failing_limiter, {"rpm": 1})
    before = everything_in(failing_limiter.repository)
    table_of(failing_limiter).unavailable = True

    with failing_limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        found = (lease.degraded, lease.consumed, lease.entries)

    assert (True, {"rpm": 1}, []) == found
    assert before == everything_in(failing_limiter.repository)


def test_degraded_lease_has_every_method_and_writes_nothing(failing_limiter):
    """Code that uses a lease need not check; nothing is written when the store is back either."""
    table_of(failing_limiter).unavailable = True

    with failing_limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 10}, on_unavailable="allow") as lease:
        table_of(failing_limiter).unavailable = False
        lease.adjust(tpm=100)
        lease.consume(rpm=1)
        lease.release(tpm=60)

    assert {"rpm": 2, "tpm": 50} == lease.consumed
    assert {"rpm": 60, "tpm": 6_000} == failing_limiter.available("user-1", "gpt-4")


def test_exception_in_a_degraded_lease_credits_nothing(failing_limiter):
    """It took nothing."""
    take(failing_limiter, {"tpm": 1_000})
    table_of(failing_limiter).unavailable = True

    def failing():
        with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow"):
            table_of(failing_limiter).unavailable = False
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert {"rpm": 60, "tpm": 5_000} == failing_limiter.available("user-1", "gpt-4")


@pytest.mark.parametrize("amount", [-1, 1.5, True, None, "1"])
def test_invalid_amounts_are_refused_while_the_store_is_unavailable(failing_limiter, amount):
    """A degraded lease is not a way around validation."""
    table_of(failing_limiter).unavailable = True

    with pytest.raises(ValidationError):
        with failing_limiter.acquire("user-1", "gpt-4", {"rpm": amount}, on_unavailable="allow"):
            pass


def test_requests_are_blocked_by_default_while_the_store_is_unavailable(failing_limiter):
    """Requests are allowed only by an explicit choice."""
    assert not is_allowed(failing_limiter)


def test_on_unavailable_of_the_system_applies_if_client_and_call_have_none(failing_limiter):
    """It is cached from the last time the limits were read."""
    failing_limiter.set_system_defaults(LIMITS, on_unavailable="allow")
    take(failing_limiter, {"rpm": 1})

    assert is_allowed(failing_limiter)


def test_on_unavailable_of_the_system_outlives_the_config_cache(failing_limiter, clock):
    """If nothing can be read, the last known choice applies."""
    failing_limiter.set_system_defaults(LIMITS, on_unavailable="allow")
    take(failing_limiter, {"rpm": 1})
    clock.advance(3_600_000)
    first = is_allowed(failing_limiter)
    failing_limiter.invalidate_config_cache()

    assert (True, True) == (first, is_allowed(failing_limiter))


@pytest.mark.parametrize("choice", ["block", OnUnavailable.BLOCK])
def test_on_unavailable_of_the_client_takes_precedence_over_the_system(failing_limiter, choice):
    """The client's choice is set when it is opened."""
    failing_limiter.set_system_defaults(LIMITS, on_unavailable="allow")
    client = with_choice(failing_limiter, OnUnavailable(choice))
    take(client, {"rpm": 1})

    assert not is_allowed(client)


@pytest.mark.parametrize(("client", "call", "expected"), [("block", "allow", True), ("allow", "block", False)])
def test_on_unavailable_of_the_call_takes_precedence_over_all(failing_limiter, client, call, expected):
    """The argument of ``acquire`` decides."""
    failing_limiter.set_system_defaults(LIMITS, on_unavailable=client)
    limiter = with_choice(failing_limiter, OnUnavailable(client))
    take(limiter, {"rpm": 1})

    assert expected == is_allowed(limiter, call)


def test_on_unavailable_may_be_an_enum_member_or_its_name(failing_limiter):
    """Both mean the same."""
    assert (True, True, False) == (
        is_allowed(failing_limiter, OnUnavailable.ALLOW),
        is_allowed(failing_limiter, "allow"),
        is_allowed(failing_limiter, OnUnavailable.BLOCK),
    )


def test_exit_with_an_adjustment_raises_while_the_store_is_unavailable(failing_limiter):
    """With ``block``, the caller learns that the actual cost was not written."""

    def adjusting():
        with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            lease.adjust(tpm=100)
            table_of(failing_limiter).unavailable = True

    with pytest.raises(RateLimiterUnavailable):
        adjusting()

    table_of(failing_limiter).unavailable = False
    assert {"rpm": 60, "tpm": 5_500} == failing_limiter.available("user-1", "gpt-4")


def test_unavailable_error_at_exit_names_entity_and_resource(failing_limiter):
    """The error is the same as on entry."""

    def adjusting():
        with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            lease.adjust(tpm=100)
            table_of(failing_limiter).unavailable = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        adjusting()

    assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)


def test_exit_with_an_adjustment_and_allow_is_logged_while_the_store_is_unavailable(failing_limiter, caplog):
    """With ``allow``, the exit does not raise either."""
    with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        lease.adjust(tpm=100)
        table_of(failing_limiter).unavailable = True

    assert ["zae_limiter"] == [record.name for record in caplog.records]
    assert "Not settled" in caplog.text


def test_exception_in_the_block_is_kept_while_the_store_is_unavailable(failing_limiter, caplog):
    """The credit that could not be written is logged."""

    def failing():
        with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}):
            table_of(failing_limiter).unavailable = True
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()

    assert "Not settled" in caplog.text


def test_exit_without_an_adjustment_succeeds_while_the_store_is_unavailable(failing_limiter):
    """There is nothing to write."""
    with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}):
        table_of(failing_limiter).unavailable = True

    table_of(failing_limiter).unavailable = False
    assert {"rpm": 60, "tpm": 5_500} == failing_limiter.available("user-1", "gpt-4")


def test_consume_with_allow_succeeds_while_the_store_is_unavailable(failing_limiter):
    """The choice of the acquire applies to later calls."""
    with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(failing_limiter).unavailable = True
        lease.consume(tpm=100)
        table_of(failing_limiter).unavailable = False

    assert 500 <= lease.consumed["tpm"]


def test_release_that_failed_is_not_repeated_at_exit(failing_limiter):
    """A credit that may have been written is not written again."""

    def releasing():
        with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            table_of(failing_limiter).unavailable = True
            try:
                lease.release(tpm=200)
            finally:
                table_of(failing_limiter).unavailable = False

    with pytest.raises(RateLimiterUnavailable):
        releasing()

    assert {"rpm": 60, "tpm": 5_800} == failing_limiter.available("user-1", "gpt-4")


def test_release_with_allow_is_logged_while_the_store_is_unavailable(failing_limiter, caplog):
    """The tokens stay debited, but the caller is not stopped."""
    with failing_limiter.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(failing_limiter).unavailable = True
        lease.release(tpm=200)
        table_of(failing_limiter).unavailable = False

    assert {"tpm": 300} == lease.consumed
    assert "tokens not given back" in caplog.text


def test_available_and_time_until_available_raise_while_the_store_is_unavailable(failing_limiter):
    """There is no correct result to return."""
    table_of(failing_limiter).unavailable = True

    with pytest.raises(RateLimiterUnavailable):
        failing_limiter.available("user-1", "gpt-4")
    with pytest.raises(RateLimiterUnavailable):
        failing_limiter.time_until_available("user-1", "gpt-4", {"rpm": 1})


def test_set_limits_raises_while_the_store_is_unavailable(failing_limiter):
    """The stored limits do not change."""
    table_of(failing_limiter).unavailable = True
    with pytest.raises(RateLimiterUnavailable):
        failing_limiter.set_limits("user-1", LIMITS)
    table_of(failing_limiter).unavailable = False

    assert [] == failing_limiter.get_limits("user-1")


def test_ping_and_is_available_return_false_while_the_store_is_unavailable(failing_limiter):
    """They never raise."""
    answers = [failing_limiter.is_available(timeout=60), failing_limiter.repository.ping()]
    table_of(failing_limiter).unavailable = True
    answers += [failing_limiter.is_available(timeout=60), failing_limiter.repository.ping()]

    assert [True, True, False, False] == answers


def test_cached_rejection_needs_no_store(failing_limiter):
    """A bucket that is known to be exhausted still rejects."""
    take(failing_limiter, {"rpm": 60})
    table_of(failing_limiter).unavailable = True

    with pytest.raises(RateLimitExceeded):
        take(failing_limiter, {"rpm": 1})


def test_failed_requests_change_nothing_once_the_store_is_back(failing_limiter):
    """Neither blocked nor allowed requests are debited."""
    take(failing_limiter, {"rpm": 10})
    is_allowed(failing_limiter, "allow")
    is_allowed(failing_limiter, "block")

    take(failing_limiter, {"rpm": 10})

    assert {"rpm": 40, "tpm": 6_000} == failing_limiter.available("user-1", "gpt-4")
