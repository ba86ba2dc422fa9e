"""Answers that are lost, after the write took effect or before it: every write counts once."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.outcome import Cancelled, Throttled, Unavailable

from .clients import Wrapped, another, balance_of, buckets_in, take
from .shards import Other, used

LIMITS = [Limit.per_minute("rpm", 60)]
CAUSE = TimeoutError("no answer")


class LossyTable(Wrapped):
    """A table that loses the answers it is told to: each is 'applied', 'lost' or 'throttled'."""

    def __init__(self, table):
        super().__init__(table)
        self.fates = []
        self.writes = 0
        self.at_each_write = lambda: None

    async def write(self, operation, until_s=None):
        self.writes += 1
        self.at_each_write()
        fate = self.fates.pop(0) if self.fates else None
        if fate == "throttled":
            return Throttled()
        if fate == "lost":
            return Unavailable(CAUSE, ambiguous=True)
        outcome = await self.table.write(operation, until_s)
        return Unavailable(CAUSE, ambiguous=True) if fate == "applied" else outcome


@pytest.fixture
async def lossy(repo):
    other = another(repo, LossyTable)
    await other.set_system_defaults(LIMITS)
    return RateLimiter(other)


def table_of(limiter):
    return limiter.repository.scope.table


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpm"]


FATES = pytest.mark.parametrize(
    "fates",
    [
        ["applied"],
        ["lost"],
        ["throttled"],
        ["applied", "applied"],
        ["lost", "applied"],
        ["applied", "lost", "throttled"],
    ],
    ids=" then ".join,
)


@FATES
async def test_a_take_counts_once(lossy, fates):
    """Sent again it finds its own mark, or takes for the first time."""
    await take(lossy, {"rpm": 1})
    table_of(lossy).fates = list(fates)

    await take(lossy, {"rpm": 10})

    assert 49 == await left(lossy)
    assert 11_000 == balance_of(lossy.repository, "rpm", "tc")


@FATES
async def test_a_creation_counts_once(lossy, fates):
    """A bucket that was made, though nobody said so, is the one that was asked for."""
    table_of(lossy).fates = list(fates)

    await take(lossy, {"rpm": 10})

    assert 50 == await left(lossy)


@FATES
async def test_a_rebase_counts_once(lossy, fates):
    """Limits and take travel together."""
    await take(lossy, {"rpm": 10})
    await lossy.set_system_defaults([Limit.per_minute("rpm", 60, burst=90)])
    table_of(lossy).fates = list(fates)

    await take(lossy, {"rpm": 10})

    assert 40 == await left(lossy)


@FATES
async def test_a_debit_counts_once(lossy, fates):
    """What was used is charged, though it takes several tries."""
    async with lossy.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
        await lease.adjust(rpm=5)
        table_of(lossy).fates = list(fates)

    assert 45 == await left(lossy)


@pytest.mark.parametrize(("fate", "expected"), [("applied", 60), ("lost", 50)])
async def test_a_credit_whose_answer_was_lost_is_never_sent_again(lossy, fate, expected):
    """It may have arrived; a second one would be a present."""

    async def failing():
        async with lossy.acquire("user-1", "gpt-4", {"rpm": 10}):
            table_of(lossy).fates = [fate]
            table_of(lossy).writes = 0
            raise KeyError

    with pytest.raises(KeyError):
        await failing()

    assert 1 == table_of(lossy).writes
    assert expected == await left(lossy)


class LateTable(Wrapped):
    """A table that a transaction comes to late: what was sent again came first, and was refused."""

    def __init__(self, table):
        super().__init__(table)
        self.delays = False
        self.late = []

    async def transact(self, operations, token, *, until_s=None):
        if self.delays:
            self.delays = False
            self.late = [operations, token]
            return Cancelled((None,) * len(operations), in_doubt=True)
        return await self.table.transact(operations, token, until_s=until_s)

    async def arrive(self):
        await self.table.transact(*self.late)


async def test_a_credit_across_shards_that_may_come_late_is_not_given_in_another_way(repo):
    """Both would be carried out."""
    limiter = RateLimiter(another(repo, LateTable))
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, {"rpm": 0})
    await Other(repo).grow(2)

    async def failing():
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 50}):
            await Other(repo).grow(8)
            table_of(limiter).delays = True
            raise KeyError

    with pytest.raises(KeyError):
        await failing()
    await table_of(limiter).arrive()

    assert 0 == used(repo, "rpm")


async def test_a_credit_that_was_throttled_is_sent_again(lossy):
    """It surely did not arrive."""

    async def failing():
        async with lossy.acquire("user-1", "gpt-4", {"rpm": 10}):
            table_of(lossy).fates = ["throttled", "throttled"]
            raise KeyError

    with pytest.raises(KeyError):
        await failing()

    assert 60 == await left(lossy)


async def test_a_take_that_was_lost_and_then_has_too_little_is_rejected(lossy):
    """Its own mark is not there, and the tokens are not either."""
    await take(lossy, {"rpm": 1})
    others = RateLimiter(another(lossy.repository))
    await take(others, {"rpm": 59})
    table_of(lossy).fates = ["lost"]

    with pytest.raises(RateLimitExceeded):
        await take(lossy, {"rpm": 10})

    assert 0 == await left(lossy)


async def test_a_take_that_was_applied_is_admitted_though_nothing_is_left_afterwards(lossy):
    """The lost answer was an admission."""
    await take(lossy, {"rpm": 1})
    table_of(lossy).fates = ["applied"]

    await take(lossy, {"rpm": 59})

    assert 0 == await left(lossy)


async def test_after_the_deadline_the_store_is_away(lossy, clock):
    """Trying again has an end."""
    await take(lossy, {"rpm": 1})
    table_of(lossy).fates = ["throttled"] * 1_000
    table_of(lossy).at_each_write = lambda: clock.advance(100)

    with pytest.raises(RateLimiterUnavailable):
        await take(lossy, {"rpm": 10})

    assert 1_000 - 11 - 1 <= len(table_of(lossy).fates)
    assert 1 == len(buckets_in(lossy.repository))
