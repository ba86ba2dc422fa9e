"""Unusual and damaged files, threads, and closing."""

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables.engines import KEY, item
from tests.tables.test_sqlite_processes import Start, line, start, whole
from zae_limiter.core.errors import (
    CorruptItemError,
    RateLimiterUnavailable,
    StorageError,
    ValidationError,
)
from zae_limiter.core.outcome import Applied, Unavailable
from zae_limiter.core.version_errors import IncompatibleSchemaError
from zae_limiter.schema.operations import Key, Put, Query, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite import pool
from zae_limiter.tables.sqlite.table import SqliteTable

__all__ = ["start"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user may enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def made(path: Path) -> None:
    """Create a file with one item."""
    table = SqliteTable(path)
    table.write(Put(item(x=1)))
    table.close()


def test_a_file_opened_again_has_its_content(path: Path) -> None:
    """A closed file leaves no other files beside it."""
    made(path)
    table = SqliteTable(str(path))

    assert item(x=1) == table.get(KEY)
    table.close()
    assert ["limiter.db"] == os.listdir(path.parent)


def test_a_file_of_any_page_size_is_used(path: Path) -> None:
    """The page size is fixed when a file is created."""
    made(path)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 4096", "VACUUM"):
        connection.execute(statement)
    connection.close()
    table = SqliteTable(path)

    assert Applied(item(x=2)) == table.write(Update(KEY, add={"x": 1}))
    table.close()
    assert b"\x10\x00" == path.read_bytes()[16:18]
    assert whole(path)


def test_an_empty_file_becomes_a_table(path: Path) -> None:
    """A file without content belongs to no other application."""
    path.touch()
    made(path)

    assert whole(path)


def test_a_relative_path_is_resolved_when_the_table_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing the directory later has no effect."""
    monkeypatch.chdir(path.parent)
    table = SqliteTable("limiter.db")
    monkeypatch.chdir("/")
    table.write(Put(item(x=1)))

    assert str(path) == table.path
    table.close()
    assert path.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"Dear diary,\n" * 100, "not a SQLite file"), (b"SQLite format 3\0" + b"\xff" * 5000, "not a SQLite file")],
)
def test_a_file_that_is_not_sqlite_is_refused(path: Path, content: bytes, reason: str) -> None:
    """The file is unchanged, and the error says what to do."""
    path.write_bytes(content)

    with pytest.raises(StorageError, match=reason) as raised:
        SqliteTable(path)
    assert str(path) == raised.value.location
    assert content == path.read_bytes()


def test_a_sqlite_file_of_another_application_is_refused(path: Path) -> None:
    """Its tables are not changed."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious(x)")
    connection.close()
    content = path.read_bytes()

    with pytest.raises(StorageError, match="another program"):
        SqliteTable(path)
    assert content == path.read_bytes()


def test_a_file_of_a_later_version_is_refused(path: Path) -> None:
    """The error names both versions."""
    made(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(IncompatibleSchemaError, match="99"):
        SqliteTable(path)


def test_a_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """The error suggests a file in it."""
    with pytest.raises(StorageError, match=r"is a directory.*limiter\.db"):
        SqliteTable(tmp_path)


def test_a_path_below_a_file_is_refused(path: Path) -> None:
    """Its directory cannot be created."""
    path.touch()

    with pytest.raises(StorageError, match="directory cannot be created"):
        SqliteTable(path / "inside" / "limiter.db")


def test_a_truncated_file_is_refused(path: Path) -> None:
    """It is not taken for a smaller file."""
    made(path)
    content = path.read_bytes()
    path.write_bytes(content[:3000])

    with pytest.raises((StorageError, RateLimiterUnavailable), match=r"damaged|malformed"):
        SqliteTable(path).get(KEY)


def test_a_read_only_file_is_refused(public: Path, start: Start) -> None:
    """Limiting requires writing."""
    path = public / "limiter.db"
    made(path)
    path.chmod(0o444)

    assert line(start("open_unprivileged", path)).startswith("StorageError: Cannot use")
    assert "read-only" in line(start("open_unprivileged", path))


def test_a_file_in_a_read_only_directory_is_refused(public: Path, start: Start) -> None:
    """SQLite keeps its log beside the file, so the directory has to be writable too."""
    made(public / "limiter.db")
    (public / "limiter.db").chmod(0o666)
    public.chmod(0o555)

    assert "read-only" in line(start("open_unprivileged", public / "limiter.db"))
    assert "read-only" in line(start("open_unprivileged", public / "new.db"))
    assert "directory cannot be created" in line(start("open_unprivileged", public / "new" / "limiter.db"))
    public.chmod(0o755)


def test_a_damaged_page_makes_the_table_unavailable(path: Path) -> None:
    """Damage found at run time is reported as unavailability, with SQLite's error as the cause."""
    made(path)
    content = path.read_bytes()
    path.write_bytes(content[:2048] + b"\xa5" * (len(content) - 2048))
    table = SqliteTable(path)

    outcome = table.write(Update(KEY, add={"x": 1}))
    assert isinstance(outcome, Unavailable)
    assert isinstance(outcome.cause, sqlite3.DatabaseError)
    assert isinstance(table.transact([Put(item())]), Unavailable)
    for read in (lambda: table.get(KEY), lambda: table.query(Query("part")), lambda: table.batch_delete([KEY])):
        with pytest.raises(RateLimiterUnavailable):
            read()
    table.close()


@pytest.mark.parametrize("body", ["{", "[]", "17"])
def test_a_damaged_item_is_reported_with_its_key(path: Path, body: str) -> None:
    """Other items are not affected."""
    made(path)
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO items(pk, sk, body) VALUES('part', 'bad', ?)", (body,))
    connection.commit()
    connection.close()
    table = SqliteTable(path)

    with pytest.raises(CorruptItemError, match="part / bad"):
        table.get(Key("part", "bad"))
    with pytest.raises(CorruptItemError):
        table.write(Update(Key("part", "bad"), add={"x": 1}))
    assert Applied(item(x=2)) == table.write(Update(KEY, add={"x": 1}))
    table.close()


def test_a_full_disk_makes_the_table_unavailable_and_changes_nothing(path: Path) -> None:
    """The table works again once there is room."""
    table = SqliteTable(path)
    table.write(Put(item(x=1)))
    cursor = table._pool._idle[-1]
    cursor.execute(f"PRAGMA max_page_count = {cursor.execute('PRAGMA page_count').fetchone()[0]}").fetchone()
    outcome = table.write(Update(KEY, add={"x": 1}, set={"long": "word" * 10_000}))

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous
    assert item(x=1) == table.get(KEY)
    assert Applied(item(x=2, long="word" * 10_000)) == table.write(
        Update(KEY, add={"x": 1}, set={"long": "word" * 10_000})
    )
    table.close()


def test_a_deleted_file_is_created_again(path: Path) -> None:
    """Deleting the file resets the store without a restart."""
    table = SqliteTable(path)
    table.write(Put(item(x=1)))
    for found in path.parent.iterdir():
        found.unlink()
    for _ in range(40):
        table.write(Update(KEY, add={"y": 1}))
    other = SqliteTable(path)

    assert 20 <= (other.get(KEY) or {})["y"] <= 40
    assert "x" not in (other.get(KEY) or {})
    table.close()
    other.close()


def test_a_number_with_too_many_digits_is_refused(path: Path) -> None:
    """Python refuses to format such a number; the item stays unchanged."""
    made(path)
    table = SqliteTable(path)
    with pytest.raises(ValidationError):
        table.write(Update(KEY, add={"x": 10**5000}))

    assert item(x=1) == table.get(KEY)
    table.close()


def test_threads_of_one_process_lose_no_additions(path: Path) -> None:
    """No thread fails because of a lock of another."""
    table = SqliteTable(path)
    failures: list[BaseException] = []

    def adding(number: int) -> None:
        try:
            for count in range(100):
                table.write(Update(Key("part", str(number % 2)), add={"x": 1}))
                table.write(Update(Key("part", f"{number}-{count}"), set={"GSI1PK": "index", "GSI1SK": str(count)}))
                table.query(Query("index", index="GSI1", limit=5))
        except BaseException as error:  # noqa: BLE001 - reported to the test
            failures.append(error)

    threads = [threading.Thread(target=adding, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failures
    assert [400, 400] == [(table.get(Key("part", sk)) or {})["x"] for sk in "01"]
    assert 800 == len(table.query(Query("index", index="GSI1")).items)
    table.close()
    assert whole(path)


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_a_closed_table_refuses_calls(path: Path, kind: str) -> None:
    """Closing twice is allowed."""
    table = SqliteTable(path) if kind == "sqlite" else MemoryTable()
    table.write(Put(item()))
    table.close()
    table.close()

    for call in (lambda: table.get(KEY), lambda: table.write(Put(item())), lambda: table.transact([Put(item())])):
        with pytest.raises(StorageError, match="closed"):
            call()


def test_a_connection_in_use_is_closed_when_it_is_returned(path: Path) -> None:
    """Closing the table does not interrupt a thread that uses a connection."""
    table = SqliteTable(path)

    def close_and_read(cursor: sqlite3.Cursor, number: int) -> object:
        table.close()
        return cursor.execute("SELECT ?", (number,)).fetchone()

    assert (1,) == table._access.reading(close_and_read, 1)
    assert ["limiter.db"] == os.listdir(path.parent)


def test_a_connection_does_not_wait_for_another_thread_that_opens_the_file(path: Path) -> None:
    """Opening may be slow on a slow disk. The port retries while its event loop continues."""
    table = SqliteTable(path)
    release, held = threading.Event(), threading.Event()

    def opening() -> None:
        with pool._gate:
            held.set()
            release.wait()

    thread = threading.Thread(target=opening)
    thread.start()
    held.wait()
    try:
        with pytest.raises(Busy):
            table.get(KEY)
    finally:
        release.set()
        thread.join()
    assert None is table.get(KEY)
    table.close()


def test_more_rows_than_the_cache_holds_are_read_correctly(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row cache is bounded, and an evicted row is read again."""
    monkeypatch.setattr("zae_limiter.tables.sqlite.table._REMEMBERED", 4)
    table = SqliteTable(path)
    for _ in range(2):
        for number in range(10):
            table.write(Update(Key("part", str(number)), add={"x": 1}))

    assert [2] * 10 == [found["x"] for found in table.query(Query("part")).items]
    assert 4 >= len(table._rows)
    table.close()
