"""Requests for several entities that are cancelled at every await, or whose table fails at every write.

Two of the entities have a bypass, and share the buckets of the project. What was taken is given back to every bucket.
"""

import asyncio
from contextlib import suppress

import pytest

from tests._async.clients import Wrapped, another
from tests.limiter_async.every_await import CancelledAt, Contended, cancelled_everywhere, ended
from zae_limiter import ALL_RESOURCES, Also, Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter.core.outcome import Unavailable

YEAR_S = 365 * 86_400
CAPACITY = 1_000
LIMITS = [Limit.custom("rpy", CAPACITY, 1, YEAR_S), Limit.custom("tiny", 1, 1, YEAR_S)]
ENTITIES = ("key", "monitor-1", "monitor-2", "project")
# The limit that is too small for this amount is only counted, after the other one was charged.
ALSO = [Also(one, "gpt-4", {"rpy": 10, "tiny": 2}) for one in ENTITIES if one.startswith("monitor")]


@pytest.fixture
async def repo():
    made = await Repository.open("memory://", deadline_s=30.0)
    await made.set_system_defaults(LIMITS)
    await made.create_entity("project")
    await made.set_limits("project", LIMITS, resource=ALL_RESOURCES)
    for one in ENTITIES[:-1]:
        await made.create_entity(one, parent_id="project", cascade=True)
        await made.set_bypass(one, one != "key")
    yield made
    await made.close()


async def spent(repo):
    """Return what the balance of each bucket lacks."""
    limiter = RateLimiter(another(repo))
    found = {}
    for one in ENTITIES:
        for bucket in await limiter.get_buckets(one):
            if bucket.limit_name == "rpy":
                found[one, bucket.resource] = CAPACITY - bucket.tokens
    return found


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("inline", [False, True])
async def test_cancellation_at_any_await_gives_back_to_every_bucket(repo, inline, again):
    """Also to those of a request with a bypass that was taken before, and of which a limit is being counted."""

    async def before() -> None:
        await asyncio.sleep(0)

    other = another(repo, lambda table: Contended(table, before))
    other.scope.table.inline = inline
    limiter = RateLimiter(other)

    async def program() -> None:
        with suppress(KeyError):
            async with limiter.acquire("key", "gpt-4", {"rpy": 10}, also=ALSO):
                raise KeyError

    async def run(number: int) -> CancelledAt:
        cancelled = CancelledAt(program(), number, again=again)
        await ended(cancelled)
        assert {0} >= set((await spent(repo)).values()), f"cancelled at await {number}"
        return cancelled

    assert 12 <= await cancelled_everywhere(run)


class FailsOnce(Wrapped):
    """A table that does not apply one of its writes."""

    def __init__(self, table, failing):
        super().__init__(table)
        self.writes = 0
        self._failing = failing

    async def write(self, operation, until_s=None):
        self.writes += 1
        if self.writes == self._failing:
            return Unavailable(ConnectionError("the test has cut the connection"), ambiguous=False)
        return await super().write(operation, until_s)


@pytest.mark.parametrize("inline", [False, True])
async def test_failure_of_any_write_gives_back_to_every_bucket(repo, inline):
    """The request fails, unless the write only counts use."""
    # The first request creates the buckets, which takes other calls.
    await _writes_to_enter(repo, inline, failing=0)
    needed = await _writes_to_enter(repo, inline, failing=0)
    for failing in range(1, needed + 1):
        await _writes_to_enter(repo, inline, failing)

        assert {0} >= set((await spent(repo)).values()), f"write {failing} failed"
    assert 12 <= needed


async def _writes_to_enter(repo, inline, failing):
    other = another(repo, lambda table: FailsOnce(table, failing))
    other.scope.table.inline = inline
    needed = 0
    with suppress(RateLimiterUnavailable, KeyError):
        async with RateLimiter(other).acquire("key", "gpt-4", {"rpy": 10}, also=ALSO):
            needed = other.scope.table.writes
            raise KeyError
    return needed
