"""A file that somebody else keeps locked for a while: the loop goes on, and a cancellation is never lost."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.limiter_async.conftest import LIMITS
from zae_limiter import RateLimiter, Repository


class Lock:
    """Another connection to the file, which can keep everybody from writing."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def hold(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
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
    made.let_go()
    made.close()


short = pytest.mark.parametrize("limiter", [0.5], indirect=True)


async def left(limiter: RateLimiter) -> int:
    return (await limiter.available("user-1", "gpt-4"))["rpy"]


async def keep(limiter: RateLimiter, amount: int) -> None:
    async with limiter.acquire("user-1", "gpt-4", {"rpy": amount}):
        pass


async def is_waiting(task: asyncio.Task[None]) -> bool:
    """Let the loop go round often enough for a task to wait for the lock."""
    for _ in range(20):
        await asyncio.sleep(0.001)
    return not task.done()


async def test_the_loop_goes_on_while_the_file_is_locked(limiter, lock):
    """Were it blocked, nobody could let go of the lock, and the request would fail."""
    await keep(limiter, 1)
    lock.hold()
    task = asyncio.create_task(keep(limiter, 10))
    waited = await is_waiting(task)
    lock.let_go()
    await task

    assert waited
    assert 989 == await left(limiter)


async def test_a_request_that_is_cancelled_while_it_waits_has_taken_nothing(limiter, lock):
    """It is cancelled at once: there is nothing in flight to wait for."""
    await keep(limiter, 1)
    lock.hold()
    task = asyncio.create_task(keep(limiter, 10))
    await is_waiting(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lock.let_go()

    assert 999 == await left(limiter)


async def test_an_adjustment_is_written_though_its_task_is_cancelled_while_it_waits(limiter, lock):
    """Leaving is seen through, then the task is cancelled."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
            await lease.adjust(rpy=5)
            lock.hold()

    task = asyncio.create_task(work())
    await is_waiting(task)
    task.cancel()
    still = await is_waiting(task)
    lock.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert still
    assert 985 == await left(limiter)


@pytest.mark.parametrize("times", [1, 3])
async def test_everything_is_given_back_though_the_task_is_cancelled_again_while_it_waits(limiter, lock, times):
    """Once, however often."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            lock.hold()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    for _ in range(1 + times):
        await is_waiting(task)
        task.cancel()
    await is_waiting(task)
    lock.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 1_000 == await left(limiter)


@short
@pytest.mark.parametrize("choice", ["block", "allow"])
async def test_a_cancellation_is_not_lost_when_settling_fails(limiter, lock, choice):
    """The task was told to end, so it ends, though the store stays away."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}, on_unavailable=choice) as lease:
            await lease.adjust(rpy=5)
            lock.hold()
            # It is told to end when it next waits, which is for the lock.
            asyncio.get_running_loop().call_soon(task.cancel)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


@short
async def test_a_timeout_around_the_block_stays_a_timeout_when_giving_back_fails(limiter, lock, caplog):
    """What cannot be given back is logged."""

    async def work():
        async with asyncio.timeout(0.01), limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            lock.hold()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()

    assert "Not settled" in caplog.text
