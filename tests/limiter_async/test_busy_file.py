"""A file that another connection keeps locked for a while: the loop continues, and no cancellation is lost."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.limiter_async.conftest import LIMITS
from zae_limiter import RateLimiter, Repository


class Lock:
    """Another connection to the file, which can block all writes."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def hold(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "busy.db"


@pytest.fixture(params=[30.0])
async def limiter(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[RateLimiter]:
    async with await Repository.open(f"sqlite:///{path}", deadline_s=request.param) as repo:
        await repo.set_system_defaults(LIMITS)
        yield RateLimiter(repo)


@pytest.fixture
def lock(path: Path, limiter: RateLimiter) -> Iterator[Lock]:
    made = Lock(path)
    yield made
    made.unlock()
    made.close()


short = pytest.mark.parametrize("limiter", [0.5], indirect=True)


async def left(limiter: RateLimiter) -> int:
    return (await limiter.available("user-1", "gpt-4"))["rpy"]


async def keep(limiter: RateLimiter, amount: int) -> None:
    async with limiter.acquire("user-1", "gpt-4", {"rpy": amount}):
        pass


async def is_waiting(task: asyncio.Task[None]) -> bool:
    """Run the loop long enough for a task to wait for the lock, and return whether it is still running."""
    for _ in range(20):
        await asyncio.sleep(0.001)
    return not task.done()


async def test_event_loop_continues_while_the_file_is_locked(limiter, lock):
    """If it were blocked, the lock could not be released and the request would fail."""
    await keep(limiter, 1)
    lock.hold()
    task = asyncio.create_task(keep(limiter, 10))
    waited = await is_waiting(task)
    lock.unlock()
    await task

    assert waited
    assert 989 == await left(limiter)


async def test_acquire_cancelled_while_it_waits_for_the_lock_takes_nothing(limiter, lock):
    """It ends immediately, because no write is in flight."""
    await keep(limiter, 1)
    lock.hold()
    task = asyncio.create_task(keep(limiter, 10))
    await is_waiting(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lock.unlock()

    assert 999 == await left(limiter)


async def test_exit_cancelled_while_it_waits_for_the_lock_still_writes_the_adjustment(limiter, lock):
    """The exit completes first, then the task is cancelled."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
            await lease.adjust(rpy=5)
            lock.hold()

    task = asyncio.create_task(work())
    await is_waiting(task)
    task.cancel()
    still = await is_waiting(task)
    lock.unlock()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert still
    assert 985 == await left(limiter)


@pytest.mark.parametrize("times", [1, 3])
async def test_exit_cancelled_again_while_it_waits_for_the_lock_credits_once(limiter, lock, times):
    """The number of cancellations makes no difference."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            lock.hold()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    for _ in range(1 + times):
        await is_waiting(task)
        task.cancel()
    await is_waiting(task)
    lock.unlock()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 1_000 == await left(limiter)


@short
@pytest.mark.parametrize("choice", ["block", "allow"])
async def test_cancellation_is_not_lost_if_the_exit_fails(limiter, lock, choice):
    """The task ends as cancelled, even if the store stays unavailable."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}, on_unavailable=choice) as lease:
            await lease.adjust(rpy=5)
            lock.hold()
            # The cancellation arrives when the task next waits, which is for the lock.
            asyncio.get_running_loop().call_soon(task.cancel)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


@short
async def test_timeout_around_a_lease_stays_a_timeout_if_the_credit_fails(limiter, lock, caplog):
    """The credit that could not be written is logged."""

    async def work():
        async with asyncio.timeout(0.01), limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            lock.hold()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()

    assert "Not settled" in caplog.text
