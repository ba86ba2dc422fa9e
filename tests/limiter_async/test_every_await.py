"""Leases that are cancelled at every await of enter, consume, release, adjust and exit, with concurrent clients.

The cascade has two buckets. Each is settled exactly once, whichever await is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests._async.clients import another
from tests._async.shards import OtherClient
from tests.limiter_async.every_await import (
    CancelledAt,
    Contended,
    HeldFile,
    LossyTable,
    cancelled_everywhere,
    ended,
)
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository

YEAR_S = 365 * 86_400
CAPACITY = 1_000
LIMITS = [Limit.custom("rpy", CAPACITY, 1, YEAR_S)]
CHILD, PARENT = "user-1", "project-1"
KEPT = 16
"""The tokens that a program keeps if it ends normally: 10, 3 more, 2 released, 5 adjusted."""


async def prepared(url: str) -> Repository:
    repo = await Repository.open(url, deadline_s=30.0)
    await repo.set_system_defaults(LIMITS)
    await repo.create_entity(PARENT)
    await repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
    return repo


class Program:
    """Acquire, consume, release, adjust and exit; with ``fails``, exit by an exception."""

    def __init__(self, limiter: RateLimiter, *, fails: bool) -> None:
        self._limiter = limiter
        self._fails = fails
        self.kept = 0

    async def run(self) -> None:
        with suppress(KeyError):
            async with self._limiter.acquire(CHILD, "gpt-4", {"rpy": 10}) as lease:
                await lease.consume(rpy=3)
                await lease.release(rpy=2)
                await lease.adjust(rpy=5)
                if self._fails:
                    raise KeyError
                self.kept = lease.consumed["rpy"]


class Levels:
    """The consumption of both buckets, read by a separate client, and what it should be."""

    def __init__(self, repo: Repository) -> None:
        self._limiter = RateLimiter(another(repo))
        self.used = dict.fromkeys((CHILD, PARENT), 0)

    async def rival(self, entity_id: str) -> None:
        """Take one token as another client."""
        async with self._limiter.acquire(entity_id, "gpt-4", {"rpy": 1}):
            pass
        for one in {entity_id, PARENT}:
            self.used[one] += 1

    async def lost(self) -> dict[str, int]:
        """Return what each bucket lacks beyond what was used; a negative amount was credited twice."""
        states = [(await self._limiter.get_buckets(one))[0] for one in (CHILD, PARENT)]
        return {state.entity_id: state.total_consumed_milli // 1000 - self.used[state.entity_id] for state in states}

    def checked(self, limiter: RateLimiter, *, fails: bool, again: bool) -> Callable[[int], Awaitable[CancelledAt]]:
        """Return a run of the program with a cancellation, which checks that both buckets were settled once."""

        async def run(number: int) -> CancelledAt:
            body = Program(limiter, fails=fails)
            cancelled = CancelledAt(body.run(), number, again=again)
            await ended(cancelled)
            self.used[CHILD] += body.kept
            self.used[PARENT] += body.kept
            assert {CHILD: 0, PARENT: 0} == await self.lost(), f"cancelled at await {number}"
            return cancelled

        return run

    def forgive(self, lost: dict[str, int]) -> None:
        for one, amount in lost.items():
            self.used[one] += amount


@pytest.fixture(params=["memory", "sqlite"])
async def repo(request, tmp_path):
    made = await prepared("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}")
    yield made
    await made.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_cascade_cancelled_at_any_await_with_concurrent_clients_is_settled_once(repo, fails, again):
    """Other clients write to both buckets before every call, so writes are refused and retried."""
    levels = Levels(repo)
    await levels.rival(CHILD)

    async def before() -> None:
        await asyncio.sleep(0)
        await levels.rival(CHILD)
        await asyncio.sleep(0)

    limiter = RateLimiter(another(repo, lambda table: Contended(table, before)))

    assert 6 <= await cancelled_everywhere(levels.checked(limiter, fails=fails, again=again))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_cascade_cancelled_at_any_await_on_a_busy_file_is_settled_once(tmp_path, fails, again):
    """Another connection locks the file before every call, so each call has to wait."""
    path = tmp_path / "busy.db"
    repo = await prepared(f"sqlite:///{path}")
    held = HeldFile(str(path))
    levels = Levels(repo)
    await levels.rival(CHILD)
    limiter = RateLimiter(another(repo, lambda table: Contended(table, held.hold_for_a_moment)))

    try:
        assert 6 <= await cancelled_everywhere(levels.checked(limiter, fails=fails, again=again))
    finally:
        held.close()
        await repo.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_sharded_bucket_cancelled_at_any_await_is_settled_once(repo, fails, again):
    """A debit that one shard cannot cover is split in one transaction that is never repeated."""
    levels = Levels(repo)
    await levels.rival(CHILD)
    await OtherClient(repo).split()

    async def before() -> None:
        await asyncio.sleep(0)

    limiter = RateLimiter(another(repo, lambda table: Contended(table, before)))

    assert 6 <= await cancelled_everywhere(levels.checked(limiter, fails=fails, again=again))


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_lost_response_and_cancellation_never_credit_or_debit_twice(applied, fails):
    """A credit whose response was lost is given up: its tokens stay debited, and no more than that."""
    repo = await prepared("memory://")
    levels = Levels(repo)
    await levels.rival(CHILD)
    for lost in range(1, 10):
        writes = await _cancelled_with_lost_response(repo, levels, lost, applied=applied, fails=fails)
        if writes < lost:
            break
    await repo.close()


async def _cancelled_with_lost_response(repo, levels, lost, *, applied, fails) -> int:
    most_writes = 0

    async def program(number: int) -> CancelledAt:
        nonlocal most_writes
        other = another(repo, lambda table: LossyTable(table, lost, applied=applied))
        limiter = RateLimiter(other)
        body = Program(limiter, fails=fails)
        run = CancelledAt(body.run(), number)
        with suppress(RateLimiterUnavailable):
            await ended(run)
        most_writes = max(most_writes, other.scope.table.writes)
        levels.used[CHILD] += body.kept
        levels.used[PARENT] += body.kept
        left = await levels.lost()
        # A lease holds at most 18 tokens; a bucket may lack as many if the credit was lost.
        assert all(0 <= amount <= 18 for amount in left.values()), f"write {lost} lost, cancelled at {number}: {left}"
        levels.forgive(left)
        return run

    await cancelled_everywhere(program)
    return most_writes
