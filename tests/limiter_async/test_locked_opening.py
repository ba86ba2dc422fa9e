"""Opening a file that another process keeps locked: the loop continues, and the deadline holds."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.limiter_async.conftest import LIMITS
from tests.tables.test_sqlite_processes import Start, Worker, go, line, start
from zae_limiter import RateLimiter, RateLimiterUnavailable, Repository, StorageError

__all__ = ["start"]

LONG_S = 120.0
SHORT_S = 0.2
TICKS = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


async def create_file(path: Path) -> None:
    """Create a file with limits in it."""
    async with await Repository.open(f"sqlite:///{path}") as repo:
        await repo.set_system_defaults(LIMITS)


async def ticks_before(task: asyncio.Task[Any]) -> int:
    """Count the turns of the loop until a task is done, up to TICKS."""
    for tick in range(TICKS):
        if task.done():
            return tick
        await asyncio.sleep(0.001)
    return TICKS


async def test_event_loop_continues_while_opening_a_locked_file(path: Path, start: Start) -> None:
    """The file opens when the other process releases it."""
    await create_file(path)
    holder = start("lock", path)
    assert "ready" == line(holder)
    opening = asyncio.create_task(Repository.open(f"sqlite:///{path}", deadline_s=LONG_S))

    assert TICKS == await ticks_before(opening)
    go(holder)
    async with await opening as repo:
        assert (LIMITS, None) == await repo.get_system_defaults()


@pytest.mark.parametrize("exists", [True, False])
async def test_opening_a_file_that_stays_locked_raises_at_the_deadline(path: Path, start: Start, exists: bool) -> None:
    """The error names the lock and the time, also for a file without tables."""
    if exists:
        await create_file(path)
    holder = start("lock", path)
    assert "ready" == line(holder)

    with pytest.raises(StorageError, match=r"another program has kept it locked for \d+\.\d s") as raised:
        await Repository.open(f"sqlite:///{path}", deadline_s=SHORT_S)
    assert str(path) == raised.value.location


async def test_each_opening_of_a_locked_file_keeps_its_own_deadline(path: Path, start: Start) -> None:
    """The one with the short deadline starts later and ends first; the other waits and gets the file."""
    await create_file(path)
    holder = start("lock", path)
    assert "ready" == line(holder)
    long_opening = asyncio.create_task(Repository.open(f"sqlite:///{path}", deadline_s=LONG_S))
    assert TICKS == await ticks_before(long_opening)
    with pytest.raises(StorageError):
        await Repository.open(f"sqlite:///{path}", deadline_s=SHORT_S)

    assert not long_opening.done()
    go(holder)
    async with await long_opening as repo:
        assert (LIMITS, None) == await repo.get_system_defaults()


async def replaced_and_locked(path: Path, start: Start, deadline_s: float) -> tuple[Repository, Worker]:
    """Open a file, then replace it with a copy that another process keeps locked."""
    await create_file(path)
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    repo = await Repository.open(f"sqlite:///{path}", deadline_s=deadline_s)
    async with RateLimiter(repo).acquire("user-1", "gpt-4", {"rpy": 1}):
        pass
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    copy.rename(path)
    holder = start("lock", path)
    assert "ready" == line(holder)
    return repo, holder


async def taken(limiter: RateLimiter, on_unavailable: str) -> str:
    """Acquire, and return the outcome."""
    try:
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 1}, on_unavailable=on_unavailable) as lease:
            return "degraded" if lease.degraded else "taken"
    except RateLimiterUnavailable:
        return "unavailable"


async def test_acquire_on_a_replaced_and_locked_file_keeps_its_deadline(path: Path, start: Start) -> None:
    """The store is unavailable then, and ``on_unavailable`` decides."""
    repo, _ = await replaced_and_locked(path, start, SHORT_S)
    limiter = RateLimiter(repo)
    # A process checks for a replaced file only sometimes: the first acquires still use the old one.
    while await taken(limiter, "allow") == "taken":
        pass
    refused = await taken(limiter, "block")
    allowed = await taken(limiter, "allow")

    assert ("unavailable", "degraded") == (refused, allowed)
    await repo.close()


async def test_event_loop_continues_while_a_replaced_file_is_locked(path: Path, start: Start) -> None:
    """The acquire waits without blocking the loop, and uses the new file once it is unlocked."""
    repo, holder = await replaced_and_locked(path, start, LONG_S)
    limiter = RateLimiter(repo)
    waiting = asyncio.create_task(taken(limiter, "block"))
    while await ticks_before(waiting) < TICKS:
        assert "taken" == await waiting
        waiting = asyncio.create_task(taken(limiter, "block"))
    go(holder)

    assert "taken" == await waiting
    assert LIMITS[0].capacity - 1 == (await limiter.available("user-1", "gpt-4"))["rpy"]
    await repo.close()
