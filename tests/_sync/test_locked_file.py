"""A file that another process keeps locked: calls end with unavailable at the deadline, and never hang."""  # generated from _async by tools/mirror.py; do not edit

import re
import subprocess
import sys
import time

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimiterUnavailable, SyncRepository

DEADLINE_S = 0.5
# The refill is so slow that no token is added while a test runs.
LIMITS = [Limit.custom("rpm", 60, 1, 365 * 86_400)]
HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


class LockingProcess:
    """Another process, which locks the file until ``unlock`` is called."""

    def __init__(self, path):
        command = [sys.executable, "-c", HOLD, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert "locked\n" == self._process.stdout.readline()

    def unlock(self):
        if self._process.poll() is None:
            self._process.communicate("\n")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "limiter.db"


@pytest.fixture
def limiter(path):
    with SyncRepository.open(f"sqlite:///{path}", deadline_s=DEADLINE_S) as repo:
        repo.set_system_defaults(LIMITS)
        yield SyncRateLimiter(repo)


@pytest.fixture
def holder(path, limiter):
    holding = LockingProcess(path)
    yield holding
    holding.unlock()


def test_acquire_on_a_locked_file_raises_unavailable_after_the_deadline(limiter, holder):
    """The error says how long the file was locked."""
    began_s = time.monotonic()
    with pytest.raises(RateLimiterUnavailable) as caught:
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    took_s = time.monotonic() - began_s
    told = re.search(r"locked by another program for (\d+\.\d) s", str(caught.value))

    assert took_s >= DEADLINE_S
    assert float(told[1]) <= took_s + 0.05
    assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)


def test_acquire_on_a_locked_file_with_allow_yields_a_degraded_lease(limiter, holder):
    """``on_unavailable`` decides."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded


def test_reads_of_a_locked_file_succeed(limiter, holder):
    """A writer does not block readers."""
    assert {"rpm": 60} == limiter.available("user-1", "gpt-4")
    assert limiter.is_available(timeout=60)


def test_set_limits_on_a_locked_file_raises_unavailable(limiter, holder):
    """A transaction has the same deadline."""
    with pytest.raises(RateLimiterUnavailable):
        limiter.set_limits("user-1", LIMITS)


def test_credit_at_exit_on_a_locked_file_keeps_the_callers_exception(limiter, path):
    """The tokens are not credited, and the exception of the block is raised."""

    def failing():
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            holders.append(LockingProcess(path))
            raise KeyError

    holders = []
    try:
        with pytest.raises(KeyError):
            failing()
    finally:
        holders[0].unlock()

    assert {"rpm": 59} == limiter.available("user-1", "gpt-4")


def test_acquire_after_the_lock_is_released_succeeds(limiter, holder):
    """Nothing of the failed request was written."""
    with pytest.raises(RateLimiterUnavailable):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass
    holder.unlock()

    with limiter.acquire("user-1", "gpt-4", {"rpm": 5}):
        pass

    assert {"rpm": 55} == limiter.available("user-1", "gpt-4")


def test_upkeep_of_a_closed_table_ends_without_an_error(path):
    """It runs on its own thread, where an exception would be lost."""
    with SyncRepository.open(f"sqlite:///{path}") as repo:
        table = repo.scope.table
    table._tidy(True)

    assert not table._upkeep_runs
