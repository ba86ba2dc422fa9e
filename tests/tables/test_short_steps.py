"""Reports and upkeep go on in short steps, however many items there are. Steps are counted, not timed."""

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
    """Put items that are no buckets, many at a time."""
    for start in range(0, items, 50):
        some = range(start, min(start + 50, items))
        table.transact([Put(item("part", f"{number:05}", **attributes)) for number in some])


def longest_look(path: Path) -> tuple[int, list[Key]]:
    """The most steps of SQLite's machine, in hundreds, of one look for used buckets, and all that were found."""
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


def test_looks_for_used_buckets_among_more_items_are_not_longer(path: Path) -> None:
    """Items that are no buckets, such as usage snapshots, are passed a bounded number at a time."""
    table = SqliteTable(path)
    put(table, 500)
    few, _ = longest_look(path)
    put(table, 5_000)
    table.write(Put(item(*BUCKET, b_rpm_tc=1_000)))
    many, used = longest_look(path)
    table.close()

    assert [BUCKET] == used
    assert many <= 1.5 * few


def test_a_sweep_takes_out_expired_rows_only_and_some_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two rows a thread may wait for the interpreter; the open read keeps the log long meanwhile."""
    rows: list[int] = []
    select = sqlite_table._select

    def counted(cursor: sqlite3.Cursor, statement: tuple[str, tuple[object, ...]]) -> list[object]:
        found = select(cursor, statement)
        rows.append(len(found))
        return found

    table = SqliteTable(path)
    put(table, 1_000, ttl=NOW_S)
    monkeypatch.setattr(sqlite_table, "_select", counted)
    valid = table.sweep(NOW_S, 2_000)
    kept_rows = sum(rows)
    expired = table.sweep(NOW_S + 1, 2_000)
    table.close()

    assert ((0, True), 0) == (valid, kept_rows)
    assert (1_000, True) == expired
    assert max(rows) <= 64


def dictionaries_of(found: object, depth: int = 3) -> Iterator[dict[object, object]]:
    """Every dictionary that an object is made of."""
    if isinstance(found, dict):
        yield found
    elif isinstance(found, tuple):
        for one in found:
            yield from dictionaries_of(one, depth - 1)
    elif depth and (names := getattr(found, "__slots__", None) or getattr(found, "__dict__", ())):
        for name in names:
            yield from dictionaries_of(getattr(found, name), depth - 1)


def test_no_dictionary_of_a_table_in_memory_has_many_of_its_keys() -> None:
    """A dictionary that grows moves all its keys in one step, so the keys of a table are in many dictionaries."""
    table = MemoryTable()
    for number in range(10_000):
        bucket = item(f"ns/BUCKET#user-{number:05}#gpt-4#0", "#STATE", GSI3PK=f"user-{number}", GSI3SK="gpt-4")
        table.write(Put(bucket | {"b_rpm_tc": number}))
    table.hour += 1
    sizes = [len(one) for one in dictionaries_of(table)]

    assert 50_000 <= sum(sizes)
    assert max(sizes) <= 10_000 / 50
    table.close()


def test_rounds_of_two_readers_reach_every_bucket() -> None:
    """Each bucket has had its turn by the end of a round, also if another round comes between."""
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


def test_a_table_in_memory_keeps_the_key_of_an_item_that_is_replaced() -> None:
    """A new object for each key would wait for the garbage collector, and as many are freed: it would start late."""
    table = MemoryTable()
    table.write(Put(item("part", "sort", x=1)))
    (before,) = stored(table)
    table.transact([Put(item("part", "sort", x=2))])
    table.hour += 1
    table.transact([Put(item("part", "sort", x=3))])
    (after,) = stored(table)

    assert before is after
    table.close()


def test_a_full_cache_of_rows_forgets_some_at_a_time(path: Path) -> None:
    """To forget thousands of rows in one step would keep an event loop busy."""
    table = SqliteTable(path)
    sizes = [len(table._rows)]
    for start in range(0, 4_500, 50):
        table.transact([Put(item("part", f"{number:05}")) for number in range(start, start + 50)])
        sizes.append(len(table._rows))
    table.close()

    assert 4_000 < max(sizes) <= 4_096
    assert max(earlier - later for earlier, later in pairwise(sizes)) <= 100
