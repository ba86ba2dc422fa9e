"""The store is away: block or let through, by the choice of the call, the client, the system, in this order."""

import pytest

from zae_limiter import Limit, OnUnavailable, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError

from .clients import FailingTable, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


@pytest.fixture
async def away(repo):
    """A client whose table fails on demand, its limits stored and known."""
    other = another(repo, FailingTable)
    await other.set_system_defaults(LIMITS)
    return RateLimiter(other)


def table_of(limiter):
    return limiter.repository.scope.table


def choosing(limiter, choice):
    """Return a client that was opened with a choice."""
    return RateLimiter(another(limiter.repository, on_unavailable=choice))


async def is_let_through(limiter, choice=None):
    """Say whether a request goes through while the store is away."""
    table_of(limiter).away = True
    try:
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=choice) as lease:
            return lease.degraded
    except RateLimiterUnavailable:
        return False
    finally:
        table_of(limiter).away = False


@pytest.mark.parametrize("seen_before", [False, True])
async def test_a_blocked_request_names_entity_resource_and_cause(away, seen_before):
    """Whether the bucket was seen before or is read for the first time."""
    if seen_before:
        await take(away, {"rpm": 1})
    table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        await take(away, {"rpm": 1})

    error = caught.value
    assert ("user-1", "gpt-4", table_of(away).cause) == (error.entity_id, error.resource, error.cause)
    assert "'user-1'" in str(error)
    assert "the store is away" in str(error)


@pytest.mark.parametrize("seen_before", [False, True])
async def test_a_request_that_is_let_through_yields_a_degraded_lease(away, seen_before):
    """It says so, limits nothing, and writes nothing."""
    if seen_before:
        await take(away, {"rpm": 1})
    before = everything_in(away.repository)
    table_of(away).away = True

    async with away.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        found = (lease.degraded, lease.consumed, lease.entries)

    assert (True, {"rpm": 1}, []) == found
    assert before == everything_in(away.repository)


async def test_a_degraded_lease_has_every_verb_and_owes_nothing(away):
    """Code that uses a lease need not know; and when the store is back it gets nothing of it."""
    table_of(away).away = True

    async with away.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 10}, on_unavailable="allow") as lease:
        table_of(away).away = False
        await lease.adjust(tpm=100)
        await lease.consume(rpm=1)
        await lease.release(tpm=60)

    assert {"rpm": 2, "tpm": 50} == lease.consumed
    assert {"rpm": 60, "tpm": 6_000} == await away.available("user-1", "gpt-4")


async def test_a_degraded_lease_gives_nothing_back(away):
    """It took nothing, so an exception credits nothing."""
    await take(away, {"tpm": 1_000})
    table_of(away).away = True

    async def failing():
        async with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow"):
            table_of(away).away = False
            raise KeyError

    with pytest.raises(KeyError):
        await failing()

    assert {"rpm": 60, "tpm": 5_000} == await away.available("user-1", "gpt-4")


@pytest.mark.parametrize("amount", [-1, 1.5, True, None, "1"])
async def test_bad_amounts_are_refused_while_the_store_is_away(away, amount):
    """Letting through is not letting pass."""
    table_of(away).away = True

    with pytest.raises(ValidationError):
        async with away.acquire("user-1", "gpt-4", {"rpm": amount}, on_unavailable="allow"):
            pass


async def test_without_a_choice_requests_are_blocked(away):
    """Nobody is let through by accident."""
    assert not await is_let_through(away)


async def test_the_choice_of_the_system_counts_where_nobody_else_chose(away):
    """It is known from the last time the limits were read."""
    await away.set_system_defaults(LIMITS, on_unavailable="allow")
    await take(away, {"rpm": 1})

    assert await is_let_through(away)


async def test_the_choice_of_the_system_is_not_forgotten_with_the_limits(away, clock):
    """When the cache has run out and nothing can be read, what was last read counts."""
    await away.set_system_defaults(LIMITS, on_unavailable="allow")
    await take(away, {"rpm": 1})
    clock.advance(3_600_000)
    first = await is_let_through(away)
    await away.invalidate_config_cache()

    assert (True, True) == (first, await is_let_through(away))


@pytest.mark.parametrize("choice", ["block", OnUnavailable.BLOCK])
async def test_the_choice_of_the_client_outranks_the_systems(away, choice):
    """As it was opened, so it behaves."""
    await away.set_system_defaults(LIMITS, on_unavailable="allow")
    client = choosing(away, OnUnavailable(choice))
    await take(client, {"rpm": 1})

    assert not await is_let_through(client)


@pytest.mark.parametrize(("client", "call", "expected"), [("block", "allow", True), ("allow", "block", False)])
async def test_the_choice_of_the_call_outranks_all(away, client, call, expected):
    """The last word."""
    await away.set_system_defaults(LIMITS, on_unavailable=client)
    limiter = choosing(away, OnUnavailable(client))
    await take(limiter, {"rpm": 1})

    assert expected == await is_let_through(limiter, call)


async def test_a_choice_may_be_a_member_or_its_name(away):
    """Both mean the same."""
    assert (True, True, False) == (
        await is_let_through(away, OnUnavailable.ALLOW),
        await is_let_through(away, "allow"),
        await is_let_through(away, OnUnavailable.BLOCK),
    )


async def test_leaving_with_an_adjustment_while_the_store_is_away_raises(away):
    """Who blocks learns that the true cost was not written."""

    async def adjusting():
        async with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            await lease.adjust(tpm=100)
            table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable):
        await adjusting()

    table_of(away).away = False
    assert {"rpm": 60, "tpm": 5_500} == await away.available("user-1", "gpt-4")


async def test_leaving_while_the_store_is_away_names_entity_and_resource(away):
    """As on entering."""

    async def adjusting():
        async with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            await lease.adjust(tpm=100)
            table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable) as caught:
        await adjusting()

    assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)


async def test_leaving_with_an_adjustment_while_the_store_is_away_is_let_through_and_logged(away, caplog):
    """Who lets through is not stopped on leaving either."""
    async with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        await lease.adjust(tpm=100)
        table_of(away).away = True

    assert ["zae_limiter"] == [record.name for record in caplog.records]
    assert "Not settled" in caplog.text


async def test_an_exception_is_not_hidden_by_a_store_that_is_away(away, caplog):
    """What the block raised counts; that the tokens were not given back is logged."""

    async def failing():
        async with away.acquire("user-1", "gpt-4", {"tpm": 500}):
            table_of(away).away = True
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await failing()

    assert "Not settled" in caplog.text


async def test_leaving_without_an_adjustment_needs_no_store(away):
    """There is nothing to write."""
    async with away.acquire("user-1", "gpt-4", {"tpm": 500}):
        table_of(away).away = True

    table_of(away).away = False
    assert {"rpm": 60, "tpm": 5_500} == await away.available("user-1", "gpt-4")


async def test_consuming_more_while_the_store_is_away_goes_by_the_same_choice(away):
    """A request that would have been let through at the start is let through later."""
    async with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(away).away = True
        await lease.consume(tpm=100)
        table_of(away).away = False

    assert 500 <= lease.consumed["tpm"]


async def test_releasing_while_the_store_is_away_raises_and_never_gives_back_twice(away):
    """A credit that may have been written is not written again on leaving."""

    async def releasing():
        async with away.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
            table_of(away).away = True
            try:
                await lease.release(tpm=200)
            finally:
                table_of(away).away = False

    with pytest.raises(RateLimiterUnavailable):
        await releasing()

    assert {"rpm": 60, "tpm": 5_800} == await away.available("user-1", "gpt-4")


async def test_releasing_while_the_store_is_away_is_let_through_and_logged(away, caplog):
    """Who is let through is not stopped by tokens that stay charged for a while."""
    async with away.acquire("user-1", "gpt-4", {"tpm": 500}, on_unavailable="allow") as lease:
        table_of(away).away = True
        await lease.release(tpm=200)
        table_of(away).away = False

    assert {"tpm": 300} == lease.consumed
    assert "tokens not given back" in caplog.text


async def test_looking_while_the_store_is_away_raises(away):
    """There is no answer that would be true."""
    table_of(away).away = True

    with pytest.raises(RateLimiterUnavailable):
        await away.available("user-1", "gpt-4")
    with pytest.raises(RateLimiterUnavailable):
        await away.time_until_available("user-1", "gpt-4", {"rpm": 1})


async def test_changing_limits_while_the_store_is_away_raises(away):
    """And what was stored stays."""
    table_of(away).away = True
    with pytest.raises(RateLimiterUnavailable):
        await away.set_limits("user-1", LIMITS)
    table_of(away).away = False

    assert [] == await away.get_limits("user-1")


async def test_whether_the_store_is_away_can_be_asked(away):
    """``ping`` and ``is_available`` tell, and never raise."""
    answers = [await away.is_available(timeout=60), await away.repository.ping()]
    table_of(away).away = True
    answers += [await away.is_available(timeout=60), await away.repository.ping()]

    assert [True, True, False, False] == answers


async def test_a_rejection_from_memory_needs_no_store(away):
    """What is known to be exhausted stays rejected."""
    await take(away, {"rpm": 60})
    table_of(away).away = True

    with pytest.raises(RateLimitExceeded):
        await take(away, {"rpm": 1})


async def test_after_the_store_is_back_all_is_as_before(away):
    """Nothing that failed has left a trace."""
    await take(away, {"rpm": 10})
    await is_let_through(away, "allow")
    await is_let_through(away, "block")

    await take(away, {"rpm": 10})

    assert {"rpm": 40, "tpm": 6_000} == await away.available("user-1", "gpt-4")
