"""The store is away: block or let through, by the choice of the call, the client, the system, in this order."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError

from .clients import FailingTable, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture
def away(repo):
    """A client whose table fails on demand, its limits stored and known."""
    other = another(repo, FailingTable)
    other.set_system_defaults(LIMITS)
    return SyncRateLimiter(other)


def table_of(limiter):
    return limiter.repository.scope.table


def choosing(limiter, choice):
    """Return a client that was opened with a choice."""
    return SyncRateLimiter(another(limiter.repository, on_unavailable=choice))


def is_let_through(limiter, choice=None):
    """Say whether a request goes through while the store is away."""
    table_of(limiter).away = True
    try:
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=choice) as lease:
            return lease.degraded
    except RateLimiterUnavailable:
        return False
    finally:
        table_of(limiter).away = False


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_blocked_request_names_entity_resource_and_cause(away, seen_before):
    """Whether the bucket was seen before or is read for the first time."""
    if seen_before:
        take(away, {"rpm": 1})
    table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        take(away, {"rpm": 1})

    error = caught.value
    assert ("user-1", "gpt-4", table_of(away).cause) == (error.entity_id, error.resource, error.cause)
    assert "'user-1'" in str(error)
    assert "the store is away" in str(error)


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_request_that_is_let_through_yields_a_degraded_lease(away, seen_before):
    """It says so, limits nothing, and writes nothing."""
    if seen_before:
        take(away, {"rpm": 1})
    before = everything_in(away.repository)
    table_of(away).away = True

    with away.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        found = (lease.degraded, lease.consumed, lease.entries)

    assert (True, {"rpm": 1}, []) == found
    assert before == everything_in(away.repository)


def test_a_degraded_lease_has_every_verb_and_owes_nothing(away):
    """Code that uses a lease need not know; and when the store is back it gets nothing of it."""
    table_of(away).away = True

    with away.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 10}, on_unavailable="allow") as lease:
        table_of(away).away = False
        lease.adjust(tpm=100)
        lease.consume(rpm=1)
        lease.release(tpm=60)

    assert {"rpm": 2, "tpm": 50} == lease.consumed
    assert {"rpm": 60, "tpm": 6_000} == away.available("user-1", "gpt-4")


def test_a_degraded_lease_gives_nothing_back(away):
    """It took nothing, so an exception credits nothing."""
    take(away, {"tpm": 1_000})
    table_of(away).away = True

    def failing():
        with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow"):
            table_of(away).away = False
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert {"rpm": 60, "tpm": 5_000} == away.available("user-1", "gpt-4")


@pytest.mark.parametrize("amount", [-1, 1.5, True, None, "1"])
def test_bad_amounts_are_refused_while_the_store_is_away(away, amount):
    """Letting through is not letting pass."""
    table_of(away).away = True

    with pytest.raises(ValidationError):
        with away.acquire("user-1", "gpt-4", {"rpm": amount}, on_unavailable="allow"):
            pass


def test_without_a_choice_requests_are_blocked(away):
    """Nobody is let through by accident."""
    assert not is_let_through(away)


def test_the_choice_of_the_system_counts_where_nobody_else_chose(away):
    """It is known from the last time the limits were read."""
    away.set_system_defaults(LIMITS, on_unavailable="allow")
    take(away, {"rpm": 1})

    assert is_let_through(away)


def test_the_choice_of_the_system_is_not_forgotten_with_the_limits(away, clock):
    """When the cache has run out and nothing can be read, what was last read counts."""
    away.set_system_defaults(LIMITS, on_unavailable="allow")
    take(away, {"rpm": 1})
    clock.advance(3_600_000)
    first = is_let_through(away)
    away.invalidate_config_cache()

    assert (True, True) == (first, is_let_through(away))


@pytest.mark.parametrize("choice", ["block", OnUnavailable.BLOCK])
def test_the_choice_of_the_client_outranks_the_systems(away, choice):
    """As it was opened, so it behaves."""
    away.set_system_defaults(LIMITS, on_unavailable="allow")
    client = choosing(away, OnUnavailable(choice))
    take(client, {"rpm": 1})

    assert not is_let_through(client)


@pytest.mark.parametrize(("client", "call", "expected"), [("block", "allow", True), ("allow", "block", False)])
def test_the_choice_of_the_call_outranks_all(away, client, call, expected):
    """The last word."""
    away.set_system_defaults(LIMITS, on_unavailable=client)
    limiter = choosing(away, OnUnavailable(client))
    take(limiter, {"rpm": 1})

    assert expected == is_let_through(limiter, call)


def test_a_choice_may_be_a_member_or_its_name(away):
    """Both mean the same."""
    assert (True, True, False) == (
        is_let_through(away, OnUnavailable.ALLOW),
        is_let_through(away, "allow"),
        is_let_through(away, OnUnavailable.BLOCK),
    )


def test_leaving_with_an_adjustment_while_the_store_is_away_raises(away):
    """Who blocks learns that the true cost was not written."""

    def adjusting():
        with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            lease.adjust(tpm=100)
            table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable):
        adjusting()

    table_of(away).away = False
    assert {"rpm": 60, "tpm": 5_500} == away.available("user-1", "gpt-4")


def test_leaving_while_the_store_is_away_names_entity_and_resource(away):
    """As on entering."""

    def adjusting():
        with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            lease.adjust(tpm=100)
            table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        adjusting()

    assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)


def test_leaving_with_an_adjustment_while_the_store_is_away_is_let_through_and_logged(away, caplog):
    """Who lets through is not stopped on leaving either."""
    with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        lease.adjust(tpm=100)
        table_of(away).away = True

    assert ["zae_limiter"] == [record.name for record in caplog.records]
    assert "Not settled" in caplog.text


def test_an_exception_is_not_hidden_by_a_store_that_is_away(away, caplog):
    """What the block raised counts; that the tokens were not given back is logged."""

    def failing():
        with away.acquire("user-1", "gpt-4", {"tpm": 500}):
            table_of(away).away = True
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()

    assert "Not settled" in caplog.text


def test_leaving_without_an_adjustment_needs_no_store(away):
    """There is nothing to write."""
    with away.acquire("user-1", "gpt-4", {"tpm": 500}):
        table_of(away).away = True

    table_of(away).away = False
    assert {"rpm": 60, "tpm": 5_500} == away.available("user-1", "gpt-4")


def test_consuming_more_while_the_store_is_away_goes_by_the_same_choice(away):
    """A request that would have been let through at the start is let through later."""
    with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(away).away = True
        lease.consume(tpm=100)
        table_of(away).away = False

    assert 500 <= lease.consumed["tpm"]


def test_releasing_while_the_store_is_away_raises_and_never_gives_back_twice(away):
    """A credit that may have been written is not written again on leaving."""

    def releasing():
        with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            table_of(away).away = True
            try:
                lease.release(tpm=200)
            finally:
                table_of(away).away = False

    with pytest.raises(RateLimiterUnavailable):
        releasing()

    assert {"rpm": 60, "tpm": 5_800} == away.available("user-1", "gpt-4")


def test_releasing_while_the_store_is_away_is_let_through_and_logged(away, caplog):
    """Who is let through is not stopped by tokens that stay charged for a while."""
    with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(away).away = True
        lease.release(tpm=200)
        table_of(away).away = False

    assert {"tpm": 300} == lease.consumed
    assert "tokens not given back" in caplog.text


def test_looking_while_the_store_is_away_raises(away):
    """There is no answer that would be true."""
    table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable):
        away.available("user-1", "gpt-4")
    with pytest.raises(RateLimiterUnavailable):
        away.time_until_available("user-1", "gpt-4", {"rpm": 1})


def test_changing_limits_while_the_store_is_away_raises(away):
    """And what was stored stays."""
    table_of(away).away = True
    with pytest.raises(RateLimiterUnavailable):
        away.set_limits("user-1", LIMITS)
    table_of(away).away = False

    assert [] == away.get_limits("user-1")


def test_whether_the_store_is_away_can_be_asked(away):
    """``ping`` and ``is_available`` tell, and never raise."""
    answers = [away.is_available(timeout=60), away.repository.ping()]
    table_of(away).away = True
    answers += [away.is_available(timeout=60), away.repository.ping()]

    assert [True, True, False, False] == answers


def test_a_rejection_from_memory_needs_no_store(away):
    """What is known to be exhausted stays rejected."""
    take(away, {"rpm": 60})
    table_of(away).away = True

    with pytest.raises(RateLimitExceeded):
        take(away, {"rpm": 1})


def test_after_the_store_is_back_all_is_as_before(away):
    """Nothing that failed has left a trace."""
    take(away, {"rpm": 10})
    is_let_through(away, "allow")
    is_let_through(away, "block")

    take(away, {"rpm": 10})

    assert {"rpm": 40, "tpm": 6_000} == away.available("user-1", "gpt-4")
