"""A file that another process keeps locked: unavailable after the deadline, and never a caller that hangs."""

import re
import subprocess
import sys
import time

import pytest

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository

DEADLINE_S = 0.5
# So little is earned that nothing is while a test runs.
LIMITS = [Limit.custom("rpm", 60, 1, 365 * 86_400)]
HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


class Holder:
    """Another process, which locks the file until it is told to let go."""

    def __init__(self, path):
        command = [sys.executable, "-c", HOLD, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert "locked\n" == self._process.stdout.readline()

    def let_go(self):
        if self._process.poll() is None:
            self._process.communicate("\n")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "limiter.db"


@pytest.fixture
async def limiter(path):
    async with await Repository.open(f"sqlite:///{path}", deadline_s=DEADLINE_S) as repo:
        await repo.set_system_defaults(LIMITS)
        yield RateLimiter(repo)


@pytest.fixture
def holder(path, limiter):
    holding = Holder(path)
    yield holding
    holding.let_go()


async def test_a_request_is_blocked_after_the_deadline(limiter, holder):
    """Not before it, and the error says what it waited for."""
    began_s = time.monotonic()
    with pytest.raises(RateLimiterUnavailable) as caught:
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    took_s = time.monotonic() - began_s
    told = re.search(r"locked by others for (\d+\.\d) s", str(caught.value))

    assert took_s >= DEADLINE_S
    assert float(told[1]) <= took_s + 0.05
    assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)


async def test_a_request_is_let_through_after_the_deadline(limiter, holder):
    """If that is the choice."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded


async def test_reading_needs_no_lock(limiter, holder):
    """Writers do not keep readers out."""
    assert {"rpm": 60} == await limiter.available("user-1", "gpt-4")
    assert await limiter.is_available(timeout=60)


async def test_limits_cannot_be_changed_meanwhile(limiter, holder):
    """A transaction has the same deadline."""
    with pytest.raises(RateLimiterUnavailable):
        await limiter.set_limits("user-1", LIMITS)


async def test_giving_back_has_a_deadline_too(limiter, path):
    """The exception of the block comes out, though the tokens could not be given back."""

    async def failing():
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            holders.append(Holder(path))
            raise KeyError

    holders = []
    try:
        with pytest.raises(KeyError):
            await failing()
    finally:
        holders[0].let_go()

    assert {"rpm": 59} == await limiter.available("user-1", "gpt-4")


async def test_once_the_lock_is_gone_all_goes_on(limiter, holder):
    """Nothing of the blocked request was written."""
    with pytest.raises(RateLimiterUnavailable):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    holder.let_go()

    async with limiter.acquire("user-1", "gpt-4", {"rpm": 5}):
        pass

    assert {"rpm": 55} == await limiter.available("user-1", "gpt-4")


async def test_upkeep_that_finds_its_table_closed_leaves_it_alone(path):
    """It runs on a thread of its own, where nobody would hear what it raises."""
    async with await Repository.open(f"sqlite:///{path}") as repo:
        table = repo.scope.table
    table._tidy(True)

    assert not table._upkeep_runs
