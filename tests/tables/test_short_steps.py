"""Reports and maintenance work in short steps, however many items exist.

The tests count steps; they do not measure time.
"""

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tables.engines import item
from tests.tables.memory_items import stored
from zae_limiter.schema.operations import Key, Put
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite import log
from zae_limiter.tables.sqlite import table as sqlite_table
from zae_limiter.tables.sqlite.table import SqliteTable

NOW_S = 1_700_000_000
BUCKET = Key("ns/BUCKET#user-1#gpt-4#0", "#STATE")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


def put(table: SqliteTable, items: int, **attributes: object) -> None:
    """Put items that are not buckets, fifty per transaction."""
    for start in range(0, items, 50):
        some = range(start, min(start + 50, items))
        table.transact([Put(item("part", f"{number:05}", **attributes)) for number in some])


def longest_search(path: Path) -> tuple[int, list[Key]]:
    """Return the most SQLite steps, in hundreds, of one search for used buckets, and all that were found."""
    connection = sqlite3.connect(path)
    steps: list[int] = []

    def count() -> int:
        steps[-1] += 1
        return 0

    connection.set_progress_handler(count, 100)
    cursor = connection.cursor()
    used: list[Key] = []
    start: int | None = 0
    while start is not None:
        steps.append(0)
        found, start = log.find_used(cursor, (start, 32))
        used += found
    connection.close()
    return max(steps), used


def test_a_search_for_used_buckets_is_not_longer_with_more_items(path: Path) -> None:
    """Other items, such as usage snapshots, are skipped in bounded numbers."""
    table = SqliteTable(path)
    put(table, 500)
    few, _ = longest_search(path)
    put(table, 5_000)
    table.write(Put(item(*BUCKET, b_rpm_tc=1_000)))
    many, used = longest_search(path)
    table.close()

    assert [BUCKET] == used
    assert many <= 1.5 * few


def test_a_sweep_reads_only_expired_rows_in_small_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may wait for the interpreter between two rows, and the open read keeps the log from shrinking."""
    rows: list[int] = []
    select = sqlite_table.select

    def counted(cursor: sqlite3.Cursor, statement: tuple[str, tuple[object, ...]]) -> list[object]:
        found = select(cursor, statement)
        rows.append(len(found))
        return found

    table = SqliteTable(path)
    put(table, 1_000, ttl=NOW_S)
    monkeypatch.setattr(sqlite_table, "select", counted)
    valid = table.sweep(NOW_S, 2_000)
    kept_rows = sum(rows)
    expired = table.sweep(NOW_S + 1, 2_000)
    table.close()

    assert ((0, True), 0) == (valid, kept_rows)
    assert (1_000, True) == expired
    assert max(rows) <= 64


def dictionaries_of(found: object, depth: int = 3) -> Iterator[dict[object, object]]:
    """Return every dictionary that an object consists of."""
    if isinstance(found, dict):
        yield found
    elif isinstance(found, tuple):
        for one in found:
            yield from dictionaries_of(one, depth - 1)
    elif depth and (names := getattr(found, "__slots__", None) or getattr(found, "__dict__", ())):
        for name in names:
            yield from dictionaries_of(getattr(found, name), depth - 1)


def test_no_dictionary_of_a_memory_table_has_many_of_its_keys() -> None:
    """A growing dictionary moves all its keys in one step, so the keys are spread over many dictionaries."""
    table = MemoryTable()
    for number in range(10_000):
        bucket = item(f"ns/BUCKET#user-{number:05}#gpt-4#0", "#STATE", GSI3PK=f"user-{number}", GSI3SK="gpt-4")
        table.write(Put(bucket | {"b_rpm_tc": number}))
    table.hour += 1
    sizes = [len(one) for one in dictionaries_of(table)]

    assert 50_000 <= sum(sizes)
    assert max(sizes) <= 10_000 / 50
    table.close()


def test_alternating_readers_reach_every_bucket() -> None:
    """Every bucket is visited within a round, also if another round runs in between."""
    table = MemoryTable()
    keys = [Key(f"ns/BUCKET#user-{number:04}#gpt-4#0", "#STATE") for number in range(1_000)]
    for key in keys:
        table.write(Put(item(*key, b_rpm_tc=1_000)))
    other: int | None = table.log_open(0, 32)
    first: int | None = 0
    while first is not None:
        first = table.log_open(first, 32)
        other = table.log_open(other or 0, 7)

    assert set(keys) == {one.key for one in table.changes(0, 2_000)}
    table.close()


def test_a_memory_table_keeps_the_key_object_of_a_replaced_item() -> None:
    """A new key object per write would delay the garbage collector, as one is freed for each."""
    table = MemoryTable()
    table.write(Put(item("part", "sort", x=1)))
    (before,) = stored(table)
    table.transact([Put(item("part", "sort", x=2))])
    table.hour += 1
    table.transact([Put(item("part", "sort", x=3))])
    (after,) = stored(table)

    assert before is after
    table.close()


def test_a_full_row_cache_evicts_a_few_rows_at_a_time(path: Path) -> None:
    """Evicting thousands of rows in one step would block an event loop."""
    table = SqliteTable(path)
    sizes = [len(table._rows)]
    for start in range(0, 4_500, 50):
        table.transact([Put(item("part", f"{number:05}")) for number in range(start, start + 50)])
        sizes.append(len(table._rows))
    table.close()

    assert 4_000 < max(sizes) <= 4_096
    assert max(earlier - later for earlier, later in pairwise(sizes)) <= 100
