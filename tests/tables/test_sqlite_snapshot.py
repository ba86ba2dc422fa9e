"""Snapshots that connections keep between quick writes: nothing is lost, read too late, or held back for long."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tables.engines import KEY, FixedClock, item
from tests.tables.test_sqlite_processes import whole
from zae_limiter._sync.embedded_table import EmbeddedTable
from zae_limiter.core.outcome import Applied, Item
from zae_limiter.schema.operations import DirectUpdate, Key, Put, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.snapshot import WRITES_PER_SNAPSHOT, KeepingCursor
from zae_limiter.tables.sqlite.table import SqliteTable

OTHER = Key("part", "other")


class Increment(DirectUpdate):
    """A usual write: it adds to one number, and sets when the item expires."""

    def __init__(self, key: Key = KEY, amount: int = 1, expires_s: int = 2_000_000_000) -> None:
        super().__init__(key, add={"x": amount}, set={"ttl": expires_s})

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the write."""
        return {**item, "x": item["x"] + self.add["x"], **self.set} if item else None

    def written_names(self) -> tuple[str, ...] | None:
        """Return the names of what it writes."""
        return ("x", "ttl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    table = SqliteTable(path)
    table.write(Put(item(x=0, ttl=1)))
    yield table
    table.close()


@pytest.fixture
def other(table: SqliteTable) -> Iterator[SqliteTable]:
    """Another process, as far as SQLite is concerned."""
    other = SqliteTable(table.path)
    yield other
    other.close()


def x_of(table: SqliteTable, key: Key = KEY) -> int:
    number: int = (table.get(key) or {})["x"]
    return number


def write_until_kept(table: SqliteTable, key: Key = KEY) -> int:
    """Write until a snapshot is kept, and return the number of writes."""
    table._pool.snapshots.is_watched = True
    for number in range(1, 3 * WRITES_PER_SNAPSHOT):
        assert isinstance(table.write(Increment(key)), Applied)
        if keeps(table):
            return number
    raise AssertionError("no snapshot is kept")


def keeps(table: SqliteTable) -> bool:
    return any(cursor.snapshot is not None for cursor in table._pool._idle)


def can_shorten(path: Path) -> bool:
    """Return whether the log can be emptied, which no open snapshot allows."""
    connection = sqlite3.connect(path, timeout=0)
    blocked = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    connection.close()
    return not blocked


def test_a_write_in_a_kept_snapshot_is_seen_by_others(table: SqliteTable, other: SqliteTable) -> None:
    """It is committed when the call returns."""
    written = write_until_kept(table)
    for number in range(1, 5):
        table.write(Increment())

        assert written + number == x_of(other)
        assert keeps(table)


def test_a_snapshot_that_another_connection_has_overtaken_loses_no_write(
    table: SqliteTable, other: SqliteTable
) -> None:
    """SQLite refuses the write, which is then made without the snapshot, on the row of the other."""
    written = write_until_kept(table)
    other.write(Update(KEY, add={"x": 1_000}, set={"y": "text"}))
    outcome = table.write(Increment())

    assert Applied(item(x=written + 1_001, ttl=2_000_000_000, y="text")) == outcome
    assert not keeps(table)
    assert written + 1_001 == x_of(other)


def test_a_write_to_another_row_overtakes_a_snapshot_too(table: SqliteTable, other: SqliteTable) -> None:
    """The row is still the cached one."""
    written = write_until_kept(table)
    other.write(Put(item("part", "other", x=5)))

    assert Applied(item(x=written + 1, ttl=2_000_000_000)) == table.write(Increment())
    assert 5 == x_of(table, OTHER)


def test_a_read_does_not_use_a_kept_snapshot(table: SqliteTable, other: SqliteTable) -> None:
    """It sees what another process has written since."""
    written = write_until_kept(table)
    other.write(Increment(amount=10))

    assert written + 10 == x_of(table)
    assert not keeps(table)


def test_a_snapshot_is_renewed_after_some_writes(table: SqliteTable, path: Path) -> None:
    """So a copy of the log by another process can proceed while this process writes all the time."""
    write_until_kept(table)
    first = table._pool._idle[-1].snapshot
    blocked = can_shorten(path)
    for _ in range(WRITES_PER_SNAPSHOT):
        table.write(Increment())

    assert not blocked
    assert table._pool._idle[-1].snapshot not in (None, first)


def test_snapshots_are_released_once_there_are_few_writes(table: SqliteTable, path: Path) -> None:
    """An idle process does not keep the log from being shortened."""
    thread = threading.Thread(target=table.keep_snapshots)
    thread.start()
    while not keeps(table) and thread.is_alive():
        table.write(Increment())
    kept, blocked = keeps(table), not can_shorten(path)
    thread.join()

    assert kept
    assert blocked
    assert not keeps(table)
    assert can_shorten(path)
    assert table.wants_snapshots()


def test_a_checkpoint_of_this_process_is_not_held_back_by_its_snapshot(table: SqliteTable) -> None:
    """The snapshot is released before the log is copied, and kept again later."""
    write_until_kept(table)
    table.checkpoint(FixedClock().monotonic_s)

    assert table.held_back_bytes() is None
    assert not keeps(table)
    write_until_kept(table)


def test_no_snapshot_is_open_during_a_fork(table: SqliteTable, path: Path) -> None:
    """Every connection is closed, with the snapshot that it keeps."""
    written = write_until_kept(table)
    table._pool.rest()

    assert can_shorten(path)
    assert Applied(item(x=written + 1, ttl=2_000_000_000)) == table.write(Increment())


def test_a_locked_file_is_busy_for_a_writer_with_a_snapshot(table: SqliteTable, path: Path) -> None:
    """The write was not made, and may be repeated."""
    written = write_until_kept(table)
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        table.write(Increment())
    locker.close()

    assert Applied(item(x=written + 1, ttl=2_000_000_000)) == table.write(Increment())


def test_a_snapshot_that_cannot_be_opened_does_not_repeat_a_write(
    table: SqliteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is committed already."""

    def fail(cursor: KeepingCursor) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(KeepingCursor, "keep", fail)
    table._pool.snapshots.is_watched = True
    for _ in range(2 * WRITES_PER_SNAPSHOT):
        assert isinstance(table.write(Increment()), Applied)

    assert 2 * WRITES_PER_SNAPSHOT == x_of(table)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(10**40)])
def test_a_usual_write_stores_numbers_of_any_size(table: SqliteTable, path: Path, number: int) -> None:
    """An expiry beyond SQLite's integers never comes."""
    write_until_kept(table)
    amount = number - x_of(table)
    for change in (amount, 1):
        assert isinstance(table.write(Increment(amount=change, expires_s=2**70)), Applied)
    connection = sqlite3.connect(path)
    body, ttl = connection.execute("SELECT body, ttl FROM items WHERE sk = 'sort'").fetchone()
    connection.close()

    assert item(x=number + 1, ttl=2**70) == json.loads(body)
    assert 2**63 - 1 == ttl


def test_threads_and_connections_that_keep_snapshots_lose_no_additions(
    table: SqliteTable, other: SqliteTable, path: Path
) -> None:
    """Two connections with two threads each add to one row, and each to a row of its own."""
    own = [Key("part", str(number)) for number in range(4)]
    for key in own:
        table.write(Put(item(key.pk, key.sk, x=0)))

    def add(to: SqliteTable, key: Key) -> None:
        to._pool.snapshots.is_watched = True
        for one in [KEY, key, key, key] * 300:
            while True:
                try:
                    assert isinstance(to.write(Increment(one)), Applied)
                    break
                except Busy:
                    continue

    threads = [threading.Thread(target=add, args=(to, key)) for to, key in zip([table, other] * 2, own, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1_200, *[900] * 4] == [x_of(other, key) for key in (KEY, *own)]
    assert whole(path)


def test_quick_writes_keep_snapshots_and_the_last_one_ends_them(path: Path) -> None:
    """A thread watches from the second round of upkeep on."""
    blocking = SqliteTable(path)
    table = EmbeddedTable(blocking, FixedClock(), 60.0, lambda: 0.5)
    table.write(Put(item(x=0)))
    written = 0
    while not keeps(blocking):
        assert isinstance(table.write(Increment()), Applied)
        written += 1
    while not blocking.wants_snapshots() or keeps(blocking):
        threading.Event().wait(0.01)

    assert can_shorten(path)
    assert written == x_of(blocking)
    table.close()
