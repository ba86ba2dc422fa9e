"""A file that is replaced while processes use it: the log of the old file is never applied to the new one."""

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tables.engines import KEY, item
from tests.tables.test_sqlite_processes import Start, go, line, start, whole
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Key, Put, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.identity import FileIdentity, discard_foreign_log, lock_holders
from zae_limiter.tables.sqlite.table import SqliteTable

__all__ = ["start"]

OLD = Key("part", "old")
ROUNDS = 4
TRANSACTIONS = 100
"""Those that a worker makes for each line."""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which processes use a log")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


def prepared(path: Path, number: int) -> Path:
    """Create a closed file with a number in it, under another name beside a file."""
    other = path.with_name("prepared.db")
    table = SqliteTable(other)
    for part in range(50):
        table.write(Put(item("filler", str(part), text="word" * 100)))
    table.write(Put(item(x=number)))
    table.close()
    return other


@pytest.fixture
def table(path: Path) -> Iterator[SqliteTable]:
    """Return a table with old content, most of it in the log."""
    table = SqliteTable(path)
    table.write(Put(item(*OLD)))
    table.write(Put(item(x=0)))
    yield table
    table.close()


def content(path: Path) -> tuple[object, object, object, object]:
    """Return the number in a file, whether the old content exists, and both numbers of a pair."""
    table = SqliteTable(path)
    found = table.batch_get([KEY, OLD, Key("pair", "a"), Key("pair", "b")])
    table.close()
    number, old, one, other = (found_item or {} for found_item in found)
    return number.get("x"), bool(old), one.get("x"), other.get("x")


def test_processes_follow_a_replaced_file_and_never_restore_the_old_content(
    path: Path, table: SqliteTable, start: Start
) -> None:
    """Moved over the file under load, the new file has its own content and later writes, and is undamaged."""
    workers = [start("follow", path) for _ in range(2)]
    for number in range(1, ROUNDS + 1):
        new = prepared(path, number)
        for worker in workers:
            go(worker)
        os.replace(new, path)
        for _ in range(2):
            assert ["written"] * 2 == [line(worker) for worker in workers]
            for worker in workers:
                go(worker)
        assert ["written"] * 2 == [line(worker) for worker in workers]
        found, old, one, other = content(path)

        assert (number, False) == (found, old)
        assert one == other
        assert TRANSACTIONS * 2 <= int(str(one)) <= TRANSACTIONS * 6
        assert whole(path)


@on_linux
def test_a_process_that_opens_a_replaced_file_does_not_apply_the_old_log(
    path: Path, table: SqliteTable, start: Start
) -> None:
    """The process that uses the old file has not noticed the replacement yet."""
    worker = start("follow", path)
    go(worker)
    assert "written" == line(worker)
    table.close()
    os.replace(prepared(path, 1), path)

    assert (1, False, None, None) == content(path)
    assert whole(path)
    go(worker)
    assert "written" == line(worker)
    assert (1, False) == content(path)[:2]


@on_linux
def test_the_log_of_a_file_in_use_is_kept(path: Path, table: SqliteTable, start: Start) -> None:
    """Many processes open the file again and again, and none discards the log."""
    worker = start("follow", path)
    for _ in range(5):
        go(worker)
        for _ in range(10):
            discard_foreign_log(str(path))
        assert "written" == line(worker)

    assert (0, True, 500, 500) == content(path)


@on_linux
def test_the_log_of_a_crashed_process_is_kept(path: Path, start: Start) -> None:
    """The next process finds what was written."""
    worker = start("follow", path)
    go(worker)
    assert "written" == line(worker)
    worker.kill()
    discard_foreign_log(str(path))

    assert (None, False, 100, 100) == content(path)


def test_a_connection_in_use_is_closed_after_the_file_was_replaced(path: Path, table: SqliteTable) -> None:
    """A thread in the middle of a call does not return a connection of the old file to the pool."""
    begun, replaced = threading.Event(), threading.Event()

    def read_late(cursor: sqlite3.Cursor, _: None) -> object:
        begun.set()
        replaced.wait()
        return cursor.execute("SELECT count(*) FROM items").fetchone()

    thread = threading.Thread(target=lambda: table._access.reading(read_late, None))
    thread.start()
    begun.wait()
    os.replace(prepared(path, 1), path)
    for _ in range(20):
        table.write(Update(KEY, add={"x": 1}))
    replaced.set()
    thread.join()
    seen = {(table.get(KEY) or {})["x"] for _ in range(20)}

    assert 1 == len(seen)
    assert table.get(OLD) is None
    table.close()
    assert whole(path)


def test_closing_a_table_of_a_replaced_file_keeps_the_new_log(path: Path, table: SqliteTable) -> None:
    """One table of the process follows the new file; the other is closed without having noticed it."""
    late = SqliteTable(path)
    late.get(KEY)
    os.replace(prepared(path, 1), path)
    for _ in range(20):
        table.write(Update(KEY, add={"x": 1}))
    late.close()

    assert os.path.exists(f"{path}-wal")
    assert isinstance(table.write(Update(KEY, add={"x": 1})), Applied)
    assert not content(path)[1]


def moved_when_opened(monkeypatch: pytest.MonkeyPatch, new: Path, path: Path) -> None:
    """Move a file over another immediately before the next connection is opened."""
    connect = sqlite3.connect

    def moving(*arguments: Any, **options: Any) -> sqlite3.Connection:
        monkeypatch.undo()
        os.replace(new, path)
        return connect(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", moving)


def test_a_file_replaced_while_a_connection_opens_is_not_read_with_the_old_log(
    path: Path, table: SqliteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is refused as busy, and the next one uses the new file."""
    new = prepared(path, 1)

    def open_another(*_: object) -> None:
        moved_when_opened(monkeypatch, new, path)
        table.get(KEY)

    with pytest.raises(Busy):
        table._access.reading(open_another, None)
    assert item(x=1) == table.get(KEY)
    assert table.get(OLD) is None
    table.close()
    assert (1, False, None, None) == content(path)
    assert whole(path)


@on_linux
def test_a_file_replaced_while_a_process_opens_it_is_not_read_with_the_old_log(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that uses the old file has not noticed the replacement yet."""
    worker = start("follow", path)
    go(worker)
    assert "written" == line(worker)
    moved_when_opened(monkeypatch, prepared(path, 1), path)

    assert (1, False, None, None) == content(path)
    assert whole(path)


@on_linux
@pytest.mark.parametrize("moved", [("",), ("", "-wal")])
def test_a_file_is_created_in_place_of_one_that_was_moved_while_in_use(
    path: Path, start: Start, moved: tuple[str, ...]
) -> None:
    """A process that still uses the old file, its log and its index does not affect the new one."""
    worker = start("follow", path)
    go(worker)
    assert "written" == line(worker)
    for ending in moved:
        os.replace(f"{path}{ending}", f"{path}.aside{ending}")
    table = SqliteTable(path)

    assert isinstance(table.write(Put(item(x=1))), Applied)
    go(worker)
    assert "written" == line(worker)
    assert item(x=1) == table.get(KEY)
    table.close()
    assert (1, False) == content(path)[:2]
    assert whole(path)


def test_closing_a_table_of_a_replaced_file_removes_the_old_log(path: Path, table: SqliteTable) -> None:
    """A service is often restarted immediately after its file was replaced."""
    os.replace(prepared(path, 1), path)
    table.close()

    assert (1, False, None, None) == content(path)
    assert whole(path)


def test_closing_a_table_of_a_moved_file_keeps_the_log(path: Path, table: SqliteTable) -> None:
    """The log can be moved to the file, and nothing is lost."""
    os.rename(path, path.with_name("aside.db"))
    table.close()
    os.rename(f"{path}-wal", path.with_name("aside.db-wal"))

    assert (0, True, None, None) == content(path.with_name("aside.db"))


def test_a_fork_after_the_file_was_replaced_does_not_apply_the_old_log(path: Path, table: SqliteTable) -> None:
    """A fork closes every connection, also those to the old file."""
    os.replace(prepared(path, 1), path)
    child = os.fork()
    if not child:
        os._exit(0 if table.get(KEY) == item(x=1) else 1)

    assert (child, 0) == os.waitpid(child, 0)
    assert item(x=1) == table.get(KEY)
    table.close()
    assert whole(path)


def test_a_call_does_not_block_on_a_directory_that_others_keep_locked(path: Path, table: SqliteTable) -> None:
    """A call that finds a replaced file is refused as busy, and works once the directory is unlocked."""
    fcntl = pytest.importorskip("fcntl")
    directory = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    os.replace(prepared(path, 1), path)

    with pytest.raises(Busy):
        [table.get(KEY) for _ in range(16)]
    os.close(directory)
    assert item(x=1) == table.get(KEY)
    assert table.get(OLD) is None


def test_a_replaced_file_behind_a_link_is_followed(path: Path, tmp_path: Path) -> None:
    """SQLite keeps the log beside the target of a link."""
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target.db"
    path.symlink_to(target)
    table = SqliteTable(path)
    table.write(Put(item(*OLD)))
    assert table.size().log_size_bytes
    os.replace(prepared(path, 1), target)
    for _ in range(20):
        table.get(KEY)

    assert item(x=1) == table.get(KEY)
    assert table.get(OLD) is None
    table.close()


def test_lock_holders_are_parsed_from_the_kernels_lock_list() -> None:
    """Waiting requests, marked by an arrow, and locks without an owner are left out."""
    locks = (
        "1: POSIX  ADVISORY  READ 11477 fe:00:2163825 128 128\n"
        "1: -> POSIX  ADVISORY  WRITE 11478 fe:00:2163825 128 128\n"
        "2: POSIX  ADVISORY  READ 11479 fe:00:2163793 1073741826 1073742335\n"
        "3: OFDLCK ADVISORY  READ -1 fe:00:2163825 0 EOF\n"
        "4: FLOCK\n"
    )

    assert [11477] == lock_holders(locks, FileIdentity(os.makedev(0xFE, 0), 2163825))
