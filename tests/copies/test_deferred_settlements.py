"""Settlements that wait in a process, and the ways in which that process ends."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.copies.deferring_worker import CHARGED, ENTITIES, RESOURCE, TAKEN
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.ledgers import quick_engine, table_url
from tests.dynamodb.trees import KINDS, session_for
from zae_limiter import SyncRepository

PATIENCE_S = 300
LATER_S, SOON_S = 60.0, 0.05
"""Intervals: the longest one, which no process of these tests waits for, and a short one."""
LOST, WRITTEN = [TAKEN] * ENTITIES, [TAKEN + CHARGED] * ENTITIES


@pytest.fixture(params=["sqlite", "dynamodb"])
def url(request, tmp_path) -> str:
    """A table that outlives the process."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'kept.db'}"
    return table_url(fresh_table_name(), quick_engine().url)


@contextmanager
def program(kind: str, url: str, within_s: float, way: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker; it is killed at the end."""
    command = [sys.executable, "-m", "tests.copies.deferring_worker", kind, url, str(within_s), way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a worker, and return what it has printed."""
    printed, errors = process.communicate(timeout=PATIENCE_S)
    assert "" == errors
    return printed.splitlines()


def used(url: str) -> list[int]:
    """Return what the table has counted of each entity."""
    with SyncRepository.open(url, session=session_for(url), deadline_s=60.0) as repo:
        states = [repo.get_buckets(f"user-{number}", RESOURCE) for number in range(ENTITIES)]
        return [found[0].total_consumed_milli // 1000 for found in states]


@pytest.mark.parametrize("kind", KINDS)
def test_end_of_a_program_writes_what_waits(kind, url):
    """It is the end of the event loop, and in the sync tree the exit of the interpreter. Nothing is closed."""
    with program(kind, url, LATER_S, "end") as process:
        assert ["ended"] == lines(process)

    assert 0 == process.returncode
    assert WRITTEN == used(url)


@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_writes_what_waits_and_ends_the_process(kind, url):
    """The program has no handler of its own, and ends as it would without settlements."""
    with program(kind, url, LATER_S, "wait") as process:
        assert "ended\n" == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        lines(process)

    assert -signal.SIGTERM == process.returncode
    assert WRITTEN == used(url)


@pytest.mark.parametrize("kind", KINDS)
def test_end_of_the_interval_writes_what_waits(kind, url):
    """The process neither takes again nor ends."""
    with program(kind, url, SOON_S, "wait") as process:
        assert "ended\n" == process.stdout.readline()
        until_s = time.monotonic() + PATIENCE_S
        while WRITTEN != used(url) and time.monotonic() < until_s:
            time.sleep(0.01)

        assert WRITTEN == used(url)


@pytest.mark.parametrize("kind", KINDS)
def test_kill_loses_what_waits_and_nothing_else(kind, url):
    """The takes were written before the work began."""
    with program(kind, url, LATER_S, "kill") as process:
        assert ["ended"] == lines(process)

    assert LOST == used(url)


@pytest.mark.parametrize("kind", KINDS)
def test_close_in_a_forked_child_writes_nothing(kind, url):
    """The child inherits what waits and drops it. The parent writes it once."""
    with program(kind, url, LATER_S, "close in a child") as process:
        assert ["ended"] == lines(process)

    assert WRITTEN == used(url)


@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_to_a_forked_child_ends_the_child_alone(kind, url):
    """A child without a limiter of its own ends as it would without settlements; the parent continues."""
    with program(kind, url, LATER_S, "end a child") as process:
        assert [str(int(signal.SIGTERM)), "ended"] == lines(process)

    assert 0 == process.returncode
    assert WRITTEN == used(url)
