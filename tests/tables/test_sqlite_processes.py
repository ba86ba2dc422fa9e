"""Several processes on one file: exact sums, crashes, forks, and locks that do not block an event loop."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tables.engines import KEY, FixedClock, item
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Applied, Committed, Unavailable
from zae_limiter.schema.operations import Delete, ItemExists, Key, Put, Query, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.access import FileAccess
from zae_limiter.tables.sqlite.table import SqliteTable

Worker = subprocess.Popen[str]
Start = Callable[..., Worker]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker; every worker is ended with the test."""
    workers: list[Worker] = []

    def begin(*arguments: object) -> Worker:
        command = [sys.executable, "-m", "tests.tables.worker", *map(str, arguments)]
        root = Path(__file__).parents[2]
        worker = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        worker.kill()
        worker.communicate()


def line(worker: Worker) -> str:
    """Return the next line that a worker prints."""
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def go(worker: Worker) -> None:
    """Let a waiting worker continue."""
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def all_at_once(workers: list[Worker]) -> None:
    """Wait until every worker is ready, start them together, and wait for their end."""
    assert ["ready"] * len(workers) == [line(worker) for worker in workers]
    for worker in workers:
        go(worker)
    assert [0] * len(workers) == [worker.wait() for worker in workers]


def whole(path: Path) -> bool:
    """Return whether SQLite finds the file undamaged."""
    connection = sqlite3.connect(path)
    answer = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return bool(answer == "ok")


def test_processes_may_create_the_file_at_the_same_time(path: Path, start: Start) -> None:
    """One process creates it, and the others use it."""
    nested = path.parent / "some" / "directories" / "limiter.db"
    all_at_once([start("create", nested) for _ in range(4)])
    table = SqliteTable(nested)

    assert item(x=4) == table.get(KEY)
    table.close()
    assert whole(nested)


def test_sums_of_several_processes_are_exact(path: Path, start: Start) -> None:
    """No addition is lost or applied twice, with and without conditions."""
    table = SqliteTable(path)
    table.write(Put(item(x=0, y=0)))
    all_at_once([start("add", path, 400) for _ in range(4)])

    assert item(x=4 * 600, y=-4 * 400) == table.get(KEY)
    table.close()
    assert whole(path)


def test_a_killed_writer_loses_no_acknowledged_write(path: Path, start: Start) -> None:
    """A kill at any moment leaves the file undamaged."""
    table = SqliteTable(path)
    acknowledged = 0
    for writes in (1, 150, 700):
        worker = start("acknowledge", path)
        for _ in range(writes):
            line(worker)
        worker.send_signal(signal.SIGKILL)
        assert worker.stdout is not None
        acknowledged += writes + worker.stdout.read().count("written\n")
        found = table.get(KEY) or {}

        # The last write may have been killed between the table's answer and the printed line.
        assert acknowledged <= found["x"] <= acknowledged + 1
        acknowledged = found["x"]
        assert Applied(item(x=acknowledged + 1)) == table.write(Update(KEY, add={"x": 1}))
        acknowledged += 1
    table.close()
    assert whole(path)


def test_a_table_may_be_used_after_a_fork(path: Path, start: Start) -> None:
    """Parent and children use the same object, each with connections of its own."""
    worker = start("fork", path, 5)

    assert str([0] * 5) == line(worker)
    assert 0 == worker.wait()
    table = SqliteTable(path)
    assert 5 * 51 == (table.get(KEY) or {})["x"]
    table.close()
    assert whole(path)


def test_a_write_to_a_locked_file_returns_busy_immediately(path: Path) -> None:
    """The write changes nothing; reads are not affected."""
    table = SqliteTable(path)
    table.write(Put(item(x=1, ttl=1)))
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")

    for write in (Update(KEY, add={"x": 1}), Put(item()), Delete(KEY), Update(KEY, set={"GSI1PK": "a"})):
        with pytest.raises(Busy):
            table.write(write)
    with pytest.raises(Busy):
        table.transact([Put(item("part", "other"))])
    with pytest.raises(Busy):
        table.batch_delete([KEY])
    with pytest.raises(Busy):
        table.sweep(10, 10)
    assert item(x=1, ttl=1) == table.get(KEY)
    assert [item(x=1, ttl=1)] == table.batch_get([KEY]) == table.query(Query("part")).items
    locker.execute("ROLLBACK")
    assert Applied(item(x=2, ttl=1)) == table.write(Update(KEY, add={"x": 1}))
    assert 1 == table.sweep(10, 10).removed
    locker.close()
    table.close()


async def test_an_event_loop_continues_while_another_process_holds_the_lock(path: Path, start: Start) -> None:
    """Only the caller waits, and its write is applied once the lock is released."""
    table = EmbeddedTable(SqliteTable(path), SystemClock(), 60.0, random.random)
    await table.write(Put(item(x=0)))
    holder = start("hold", path)
    assert "ready" == line(holder)
    waiting = [
        asyncio.create_task(table.write(Update(KEY, add={"x": 1}))),
        asyncio.create_task(table.transact([Put(item("part", "new"))], "token")),
        asyncio.create_task(table.batch_delete([Key("part", "gone")])),
    ]
    for _ in range(50):
        await asyncio.sleep(0.001)

    assert not any(task.done() for task in waiting)
    go(holder)
    assert [Applied(item(x=1)), Committed(), None] == await asyncio.gather(*waiting)
    await table.close()


async def test_a_call_past_its_deadline_reports_the_table_unavailable(path: Path) -> None:
    """A write returns it as a value, with nothing written; other calls raise."""
    table = EmbeddedTable(SqliteTable(path), SystemClock(), 0.02, random.random)
    await table.write(Put(item(x=0)))
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")

    written = await table.write(Update(KEY, add={"x": 1}, when=(ItemExists(),)))
    transacted = await table.transact([Delete(KEY)], "token")
    for outcome in (written, transacted):
        assert isinstance(outcome, Unavailable)
        assert isinstance(outcome.cause, TimeoutError)
        assert not outcome.ambiguous
    with pytest.raises(RateLimiterUnavailable):
        await table.batch_delete([KEY])
    locker.close()
    assert item(x=0) == await table.get(KEY)
    await table.close()


class BusyReads(FileAccess):
    """A file that is busy for the first reads, as while another process recovers the log."""

    refusals = 3

    def reading(self, call: object, argument: object) -> object:  # type: ignore[override] # replaces all reads
        if self.refusals:
            self.refusals -= 1
            raise Busy
        return super().reading(call, argument)  # type: ignore[arg-type] # passed through


async def test_a_read_of_a_busy_file_waits(path: Path, clock: FixedClock) -> None:
    """A read meets a lock rarely, and waits as a write does."""
    blocking = SqliteTable(path)
    blocking._access = access = BusyReads(blocking._pool, blocking._log)
    table = EmbeddedTable(blocking, clock, 1.0, random.random)
    await table.write(Put(item(x=0)))

    assert item(x=0) == await table.get(KEY)
    access.refusals = 3
    assert [item(x=0)] == await table.batch_get([KEY])
    access.refusals = 3
    assert [item(x=0)] == (await table.query(Query("part"))).items
    await table.close()
