"""The usage of buckets is logged exactly, with one row per bucket and hour."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.engines import FixedClock, item
from tests.tables.test_sqlite_processes import Start, line, start
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter.core.outcome import Applied, Committed
from zae_limiter.schema.operations import Delete, ItemExists, Key, Put, Update
from zae_limiter.tables.blocking import BlockingTable
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite.table import SqliteTable

__all__ = ["start"]

HOUR = 472_222
HOUR_MS = 3_600_000
KEY = Key("ns/BUCKET#user-1#gpt-4#0", "#STATE")
OTHER = Key("ns/BUCKET#user-2#gpt-4#0", "#STATE")


@pytest.fixture(params=["memory", "sqlite"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlockingTable]:
    opened: BlockingTable = MemoryTable() if request.param == "memory" else SqliteTable(tmp_path / "limiter.db")
    opened.hour = HOUR
    yield opened
    opened.close()


def create(table: BlockingTable, key: Key = KEY, spent: int = 0) -> None:
    made = item(*key, b_rpm_tc=spent, b_rpm_tk=-spent, b_wcu_tc=1, GSI4PK="ns", GSI4SK=key.pk)
    assert isinstance(table.write(Put(made)), Applied)


def take(table: BlockingTable, amount: int, key: Key = KEY, limit: str = "rpm") -> None:
    update = Update(key, add={f"b_{limit}_tc": amount, "b_wcu_tc": 1}, when=(ItemExists(),))
    assert isinstance(table.write(update), Applied)


def log_all(table: BlockingTable) -> None:
    begin: int | None = 0
    while begin is not None:
        begin = table.log_open(begin, 2)


def logged(table: BlockingTable) -> list[tuple[str, int, dict[str, int]]]:
    """Return the bucket, the hour after the first, and the added usage of each logged row."""
    log_all(table)
    return [(one.key.pk, one.at_ms // HOUR_MS - HOUR, dict(one.added)) for one in table.changes(0, 1000)]


def test_writes_of_one_hour_are_logged_as_one_row(table: BlockingTable) -> None:
    """The write that creates the bucket counts too, and nothing counts twice."""
    create(table, spent=1_000)
    for _ in range(10):
        take(table, 3_000)

    assert [] == table.changes(0, 10)
    assert [(KEY.pk, 0, {"b_rpm_tc": 31_000, "b_wcu_tc": 11})] == logged(table)
    assert 1 == len(logged(table))


def test_usage_that_was_logged_is_not_logged_again(table: BlockingTable) -> None:
    """Logging in between splits an hour into two rows."""
    create(table, spent=1_000)
    log_all(table)
    take(table, 2_000)
    take(table, -500)

    assert [{"b_rpm_tc": 1_000, "b_wcu_tc": 1}, {"b_rpm_tc": 1_500, "b_wcu_tc": 2}] == [
        added for _, _, added in logged(table)
    ]


def test_a_write_in_another_hour_closes_the_previous_one(table: BlockingTable) -> None:
    """Usage belongs to the hour of its write, however long ago that was."""
    create(table, spent=1_000)
    table.hour = HOUR + 1
    take(table, 2_000)
    table.hour = HOUR + 30
    take(table, 4_000)
    take(table, 8_000)

    assert [
        (KEY.pk, 0, {"b_rpm_tc": 1_000, "b_wcu_tc": 1}),
        (KEY.pk, 1, {"b_rpm_tc": 2_000, "b_wcu_tc": 1}),
        (KEY.pk, 30, {"b_rpm_tc": 12_000, "b_wcu_tc": 2}),
    ] == logged(table)


def test_usage_of_an_idle_bucket_is_logged_under_its_own_hour(table: BlockingTable) -> None:
    """Logging later does not move usage to a later hour."""
    create(table, spent=1_000)
    table.hour = HOUR + 5

    assert [(KEY.pk, 0, {"b_rpm_tc": 1_000, "b_wcu_tc": 1})] == logged(table)
    take(table, 2_000)
    assert (KEY.pk, 5, {"b_rpm_tc": 2_000, "b_wcu_tc": 1}) == logged(table)[-1]


def test_a_clock_set_back_loses_no_usage(table: BlockingTable) -> None:
    """The earlier hour is opened again."""
    create(table, spent=1_000)
    table.hour = HOUR - 1
    take(table, 2_000)

    assert [(0, 1_000), (-1, 2_000)] == [(hour, added["b_rpm_tc"]) for _, hour, added in logged(table)]


@pytest.mark.parametrize("way", ["delete", "transact", "batch_delete", "sweep"])
def test_usage_of_a_bucket_is_logged_before_it_is_removed(table: BlockingTable, way: str) -> None:
    """Created again, the bucket starts at zero."""
    create(table, spent=1_000)
    match way:
        case "delete":
            table.write(Delete(KEY))
        case "transact":
            assert isinstance(table.transact([Delete(KEY)]), Committed)
        case "batch_delete":
            table.batch_delete([KEY])
        case _:
            table.write(Update(KEY, set={"ttl": 5}))
            table.sweep(10, 100)

    assert table.get(KEY) is None
    assert [(KEY.pk, 0, {"b_rpm_tc": 1_000, "b_wcu_tc": 1})] == logged(table)
    create(table, spent=500)
    take(table, 100)
    assert (KEY.pk, 0, {"b_rpm_tc": 600, "b_wcu_tc": 2}) == logged(table)[-1]


def test_usage_of_a_limit_is_logged_before_the_limit_is_removed(table: BlockingTable) -> None:
    """If added again, it starts at zero; other limits continue."""
    create(table)
    take(table, 1_000)
    take(table, 5_000, limit="tpm")
    table.write(Update(KEY, add={"b_rpm_tc": 1_000, "b_wcu_tc": 1}, remove=("b_tpm_tc", "b_tpm_tk", "b_tpm_cp")))
    take(table, 7_000, limit="tpm")

    total: Counter[str] = Counter()
    for _, _, added in logged(table):
        total.update(added)
    assert {"b_rpm_tc": 2_000, "b_tpm_tc": 12_000, "b_wcu_tc": 5} == dict(total)


def test_only_buckets_are_logged(table: BlockingTable) -> None:
    """Other items may have attributes of the same names."""
    table.write(Put(item("ns/ENTITY#user-1", "#META", b_rpm_tc=5)))
    table.write(Update(Key("ns/ENTITY#user-1", "#META"), add={"b_rpm_tc": 5}))

    assert [] == logged(table)


def test_logged_totals_may_exceed_64_bits(table: BlockingTable) -> None:
    """Amounts may exceed the integers of SQLite."""
    create(table, spent=10**21)
    table.hour = HOUR + 1
    take(table, 10**21)

    assert [10**21, 10**21] == [added["b_rpm_tc"] for _, _, added in logged(table)]


def test_the_change_log_is_read_in_parts_and_trimmed(table: BlockingTable) -> None:
    """Sequence numbers rise and are never reused, also after the log was emptied."""
    for number in range(5):
        create(table, Key(f"ns/BUCKET#user-{number}#gpt-4#0", "#STATE"), spent=number + 1)
    log_all(table)
    first = table.changes(0, 2)
    rest = table.changes(first[-1].sequence, 100)

    assert [2, 3] == [len(first), len(rest)]
    sequences = [one.sequence for one in first + rest]
    assert sorted(set(sequences)) == sequences
    table.trim(first[-1].sequence)
    assert rest == table.changes(0, 100)
    table.trim(rest[-1].sequence)
    take(table, 1, Key("ns/BUCKET#user-0#gpt-4#0", "#STATE"))
    log_all(table)
    assert table.changes(0, 100)[0].sequence > rest[-1].sequence


def test_a_sweep_drops_changes_older_than_90_days(table: BlockingTable) -> None:
    """Changes that are never read do not accumulate."""
    create(table, spent=1_000)
    log_all(table)
    table.sweep((HOUR + 90 * 24) * 3600, 100)
    kept = len(table.changes(0, 10))
    table.sweep((HOUR + 90 * 24 + 1) * 3600, 100)

    assert (1, 0) == (kept, len(table.changes(0, 10)))


def test_items_stay_readable_after_the_hour_changes(table: BlockingTable) -> None:
    """The hour of an item is internal."""
    create(table, spent=1_000)
    create(table, OTHER)
    table.hour = HOUR + 1
    take(table, 1, OTHER)

    found = [table.get(KEY), table.get(OTHER)]
    assert [1_000, 1] == [one["b_rpm_tc"] for one in found if one is not None]
    assert found == table.batch_get([KEY, OTHER])
    table.write(Delete(KEY))
    assert table.get(KEY) is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["take", "turn", "log", "delete", "trim"]),
        st.sampled_from([KEY, OTHER]),
        st.integers(-5, 20),
    ),
    max_size=40,
)


@given(steps)
def test_random_writes_are_logged_once_and_in_their_hour(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Key, int]]
) -> None:
    """The logs of both tables equal a ledger of every write."""
    tables: list[BlockingTable] = [MemoryTable(), SqliteTable(tmp_path_factory.mktemp("log") / "limiter.db")]
    for table in tables:
        assert {} == replayed(table, steps)
        table.close()


def replayed(table: BlockingTable, steps: list[tuple[str, Key, int]]) -> dict[tuple[str, int], int]:
    """Return how the log differs from what was written, by bucket and hour; empty if it does not."""
    difference: Counter[tuple[str, int]] = Counter()
    table.hour = HOUR

    def drain() -> None:
        for one in table.changes(0, 1000):
            difference[one.key.pk, one.at_ms // HOUR_MS] -= one.added.get("b_rpm_tc", 0)
            table.trim(one.sequence)

    for verb, key, amount in steps:
        if verb == "take" and table.get(key) is None:
            create(table, key, amount)
        elif verb == "take":
            take(table, amount, key)
        elif verb == "turn":
            table.hour += amount
        elif verb == "log":
            log_all(table)
        elif verb == "delete":
            table.batch_delete([key])
        else:
            drain()
        difference[key.pk, table.hour] += amount if verb == "take" else 0
    log_all(table)
    drain()
    return {where: amount for where, amount in difference.items() if amount}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


def test_usage_of_one_bucket_by_two_processes_is_logged(path: Path) -> None:
    """Each process changes the hour for itself and keeps what the other has opened."""
    first, second = SqliteTable(path), SqliteTable(path)
    first.hour = second.hour = HOUR
    create(first, spent=1)
    take(second, 10)
    first.hour = HOUR + 1
    take(first, 100)
    second.hour = HOUR + 1
    take(second, 1_000)
    take(first, 10_000)

    assert [(0, 11), (1, 11_100)] == [(hour, added["b_rpm_tc"]) for _, hour, added in logged(second)]
    first.close()
    second.close()


def test_a_killed_process_leaves_a_log_with_the_correct_sum(path: Path, start: Start) -> None:
    """After a kill at any step, logged and open usage together are what was written."""
    logged_milli = 0
    for pauses in (40, 75, 110):
        worker = start("use", path)
        for _ in range(pauses):
            line(worker)
        worker.kill()
        worker.wait()
        table = SqliteTable(path)
        log_all(table)
        found = table.changes(0, 10**6)
        logged_milli += sum(one.added.get("b_rpm_tc", 0) for one in found)
        table.trim(found[-1].sequence)
        stored = table.get(KEY)
        table.close()

        assert stored is not None
        assert stored["b_rpm_tc"] == logged_milli


async def test_usage_is_logged_in_the_hour_of_the_ports_clock(path: Path) -> None:
    """The port sets the hour of the table before each write."""
    for blocking in (MemoryTable(), SqliteTable(path)):
        clock = FixedClock(HOUR * HOUR_MS)
        port = EmbeddedTable(blocking, clock, 1.0, lambda: 0.5)
        create(blocking, spent=1_000)
        clock.time_ms += HOUR_MS - 1
        port.now()
        take(blocking, 2_000)
        clock.time_ms += 1
        port.now()
        take(blocking, 4_000)
        assert await port.log.log_changes(0) is None
        found = await port.log.changes(0, 10)
        await port.log.trim(found[0].sequence)

        assert [(HOUR * HOUR_MS, 3_000), ((HOUR + 1) * HOUR_MS, 4_000)] == [
            (one.at_ms, one.added["b_rpm_tc"]) for one in found
        ]
        assert found[1:] == await port.log.changes(0, 10)
        await port.close()


OLD_ITEMS = """
CREATE TABLE items(
    id INTEGER PRIMARY KEY, pk TEXT NOT NULL, sk TEXT NOT NULL, ttl INTEGER, body TEXT NOT NULL, UNIQUE(pk, sk)
)"""
OLD_ENTRIES = """
CREATE TABLE entries(
    place TEXT NOT NULL, part TEXT NOT NULL, sort TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    PRIMARY KEY(place, part, sort, pk, sk)
) WITHOUT ROWID"""


def test_a_file_of_the_first_version_is_upgraded(path: Path) -> None:
    """Its items stay. Usage is logged from now on; earlier usage was not recorded."""
    connection = sqlite3.connect(path)
    connection.execute(OLD_ITEMS)
    connection.execute(OLD_ENTRIES)
    body = json.dumps(item(*KEY, b_rpm_tc=5_000, b_wcu_tc=3))
    connection.execute("INSERT INTO items(pk, sk, body) VALUES(?, ?, ?)", (*KEY, body))
    connection.execute(f"PRAGMA application_id = {0x5A41454C}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    for _ in range(2):
        SqliteTable(path).close()
    table = SqliteTable(path)
    table.hour = HOUR

    assert [] == logged(table)
    take(table, 1_000)
    take(table, 1_000)
    assert [(KEY.pk, 0, {"b_rpm_tc": 2_000, "b_wcu_tc": 2})] == logged(table)
    assert item(*KEY, b_rpm_tc=7_000, b_wcu_tc=5) == table.get(KEY)
    table.close()
