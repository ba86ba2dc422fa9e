"""The write-ahead log of a SQLite file stays short under any writes and reads."""

import asyncio
import itertools
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.tables.engines import KEY, FixedClock, all_of, item, new_token
from tests.tables.test_sqlite_processes import Start, go, line, start, whole
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter.clock import SystemClock
from zae_limiter.core.checkpoint import LIMIT_BYTES
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Key, Put, Query, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.checkpoint import WriteAheadLog, WritePause
from zae_limiter.tables.sqlite.table import SqliteTable

__all__ = ["start"]

SMALL_LIMIT = 2**20
PATIENCE_S = 60.0
TEXT = "word" * 5_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


def opened(path: Path, limit_bytes: int = LIMIT_BYTES) -> EmbeddedTable:
    return EmbeddedTable(SqliteTable(path, limit_bytes), SystemClock(), PATIENCE_S, lambda: 0.5)


def log_bytes(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log.exists() else 0


class LogSize:
    """Record the largest size of the log of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.largest = 0

    def __enter__(self) -> "LogSize":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.002):
            self.largest = max(self.largest, log_bytes(self._path))


async def test_transactions_and_batch_deletes_keep_the_log_short(path: Path) -> None:
    """They write 48 MiB without a single plain write."""
    table = EmbeddedTable(SqliteTable(path), SystemClock(), PATIENCE_S, lambda: 0.5)
    with LogSize(path) as log:
        for number in range(160):
            puts = [Put(item("part", f"{number}-{count}", text=TEXT)) for count in range(12)]
            await table.transact(puts, new_token())
            await table.batch_delete([Key("part", f"{number - 1}-{count}") for count in range(12)])
    await table.close()

    assert 0 < log.largest < LIMIT_BYTES
    assert whole(path)


def test_writes_of_several_processes_keep_the_log_short(path: Path, start: Start) -> None:
    """Three processes write 72 MiB as fast as they can, and read everything from time to time."""
    SqliteTable(path).close()
    workers = [start("write_much", path, 1200) for _ in range(3)]
    assert ["ready"] * 3 == [line(worker) for worker in workers]
    with LogSize(path) as log:
        for worker in workers:
            go(worker)
        assert [0] * 3 == [worker.wait() for worker in workers]

    assert 0 < log.largest < LIMIT_BYTES
    assert whole(path)


async def test_a_log_left_by_a_crash_is_checkpointed(path: Path, tmp_path: Path, start: Start) -> None:
    """The next writes shorten it, although other processes have the file open."""
    first = SqliteTable(path)
    first.write(Put(item(x=0)))
    for number in range(100):
        first.write(Put(item("part", str(number), text=TEXT)))
    crashed = tmp_path / "crashed.db"
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", f"{crashed}{end}")
    first.close()
    reader = start("read", crashed)
    assert "ready" == line(reader)
    table = opened(crashed, SMALL_LIMIT)
    before = log_bytes(crashed)
    go(reader)
    await write_until(table, lambda: log_bytes(crashed) < SMALL_LIMIT)

    assert before > SMALL_LIMIT
    assert 100 == len([one for one in await all_of(table, "part") if "text" in one])
    await table.close()


async def write_until(table: EmbeddedTable, is_done: Callable[[], object]) -> None:
    """Write until the predicate holds."""
    for number in itertools.count():
        if is_done():
            return
        await table.write(Update(KEY, add={"x": 1}, set={"other": f"{number:05}" * 1_000}))
        await asyncio.sleep(0)


async def test_a_foreign_reader_that_blocks_checkpoints_is_reported(
    path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute a warning is logged, and the size reports it.

    Reads of this package are not reported, and writes continue.
    """
    caplog.set_level(logging.WARNING, "zae_limiter")
    clock = FixedClock()
    blocking = SqliteTable(path, SMALL_LIMIT)
    table = EmbeddedTable(blocking, clock, PATIENCE_S, lambda: 0.5)
    await table.write(Put(item(x=0)))
    reader = start("read", path)
    assert "ready" == line(reader)
    await write_until(table, lambda: log_bytes(path) > 2 * SMALL_LIMIT and caplog.messages)
    held = await table.size()
    await write_until(table, lambda: log_bytes(path) > 4 * SMALL_LIMIT)
    said = len(caplog.messages)
    newcomer = opened(path, SMALL_LIMIT)
    other = await newcomer.size()
    await newcomer.close()
    clock.time_ms += 60_000
    await write_until(table, lambda: len(caplog.messages) > said + 1)
    go(reader)
    reader.wait()
    # The log is short slightly before the checkpoint has ended.
    await write_until(table, lambda: log_bytes(path) < SMALL_LIMIT and blocking.held_back_bytes() is None)
    free = await table.size()

    assert (1, True, True) == (said, held.log_held_back, other.log_held_back)
    assert (held.log_size_bytes or 0) > SMALL_LIMIT
    assert "cannot be shortened" in caplog.messages[0]
    assert False is free.log_held_back
    assert (free.log_size_bytes or 0) < SMALL_LIMIT
    await table.close()


class SlowCheckpoints(SqliteTable):
    """A file on a disk that syncs slowly."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        super().__init__(path, limit_bytes)
        self.goes_on = threading.Event()
        self.begun = threading.Event()

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        self.begun.set()
        self.goes_on.wait()
        super().checkpoint(monotonic_s)


async def test_writers_pause_while_a_slow_checkpoint_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a log near its limit, every write waits up to a bound."""
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    blocking = SlowCheckpoints(path, SMALL_LIMIT)
    table = EmbeddedTable(blocking, SystemClock(), PATIENCE_S, lambda: 0.5)
    monkeypatch.setattr("zae_limiter.runtime.aio.sleep", noted)
    for number in range(255):
        await table.write(Put(item("part", str(number % 10), text=f"{number:05}" * 4_000)))
    before = len(pauses)
    for _ in range(3):
        await table.write(Put(item("part", "last")))
    blocking.goes_on.set()

    assert blocking.begun.wait(PATIENCE_S)
    assert 0 == before
    assert 3 * 20 == len(pauses)
    await table.close()


async def test_only_report_slices_pause_for_a_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint thread needs the interpreter while writers wait for it. A slice waits up to a bound."""
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    blocking = SlowCheckpoints(path, 4 * SMALL_LIMIT)
    table = EmbeddedTable(blocking, SystemClock(), PATIENCE_S, lambda: 0.5)
    monkeypatch.setattr("zae_limiter.runtime.aio.sleep", noted)
    await table.query(Query("part"))
    free = list(pauses)
    for number in range(300):
        await table.write(Put(item("part", str(number), text="word" * 1_000)))
    assert blocking.begun.wait(PATIENCE_S)
    pauses.clear()
    await table.get(KEY)
    await table.write(Put(item("part", "last")))
    alone = list(pauses)
    await table.query(Query("part"))
    blocking.goes_on.set()

    assert ([0], []) == (free, alone)
    assert [0] + 20 * [0.005] == pauses
    await table.close()


class RecordingCursor(sqlite3.Cursor):
    """A cursor that records what a checkpoint does, while the file is written to during its first copies."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.steps: list[str] = []
        self.writes: list[Callable[[], object]] = []

    def execute(self, statement: str, *arguments: object) -> "RecordingCursor":
        for name in ("PASSIVE", "RESTART", "BEGIN IMMEDIATE"):
            if name in statement:
                self.steps.append(name)
        super().execute(statement, *arguments)
        if "PASSIVE" in statement and self.writes:
            self.writes.pop()()
            self.steps.append("write")
        return self


def filled(path: Path) -> SqliteTable:
    """Return a table whose log is long enough to be restarted."""
    table = SqliteTable(path)
    for number in range(150):
        table.write(Put(item("part", str(number), text=TEXT)))
    return table


def test_a_log_is_restarted_only_after_a_copy_without_a_write(path: Path) -> None:
    """After a write, the restart would sync the whole copy while writers wait for the disk."""
    table = filled(path)
    # While a reader is open, no write restarts the log by itself.
    reader = sqlite3.connect(path, isolation_level=None)

    def read() -> None:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchall()

    def write(number: int) -> None:
        table.write(Put(item("part", "other", x=number)))
        reader.execute("ROLLBACK")
        if number:
            read()

    read()
    watched = sqlite3.connect(path, isolation_level=None).cursor(RecordingCursor)
    watched.writes = [partial(write, number) for number in range(3)]
    WriteAheadLog(str(path), LIMIT_BYTES).bring_in(watched, time.monotonic)
    for connection in (watched.connection, reader, table):
        connection.close()

    assert 3 * ["PASSIVE", "write"] + 2 * ["PASSIVE"] + ["RESTART", "BEGIN IMMEDIATE"] == watched.steps


def test_the_first_write_after_a_checkpoint_does_not_sync_the_log_header(path: Path) -> None:
    """SQLite syncs the log when it writes the header. The checkpoint does it, so that no event loop has to."""

    def header() -> bytes:
        with path.with_name(f"{path.name}-wal").open("rb") as log:
            return log.read(32)

    table = filled(path)
    before = header()
    table.checkpoint(time.monotonic)
    begun = header()
    table.write(Put(item("part", "other")))
    after = header()
    table.close()

    assert before != begun
    assert begun == after


def test_writers_wait_for_a_checkpoint_for_a_bounded_time(path: Path) -> None:
    """The wait ends even if the checkpoint does not."""
    now_s = 4.9
    table = SqliteTable(path)
    table._log.write_pause = WritePause(lambda: now_s, 5.0)
    with pytest.raises(Busy):
        table.write(Put(item(x=1)))
    with pytest.raises(Busy):
        table.transact([Put(item(x=1))])
    now_s = 5.0

    assert isinstance(table.write(Put(item(x=1))), Applied)
    table.close()
