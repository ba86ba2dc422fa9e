"""Sweeps remove expired items in bounded steps, and the log is checkpointed."""

from pathlib import Path

import pytest

import zae_limiter.runtime.aio as runtime
from tests.tables.engines import FixedClock, item
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter._async.table import Table
from zae_limiter.schema.operations import Key, Put, Query, Update
from zae_limiter.tables.blocking import BlockingTable
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite.table import SqliteTable

NOW_S = 1_700_000_000


@pytest.fixture(params=["memory", "sqlite"])
def blocking(request: pytest.FixtureRequest, tmp_path: Path) -> BlockingTable:
    return MemoryTable() if request.param == "memory" else SqliteTable(tmp_path / "limiter.db")


def test_table_size_counts_every_item_once(blocking: BlockingTable) -> None:
    """Repeated writes, also of another hour, count once. A file also has a size in bytes."""
    for number in (1, 2, 3, 3):
        blocking.write(Put(item("part", str(number))))
    blocking.hour += 1
    blocking.write(Put(item("part", "3")))
    blocking.batch_delete([Key("part", "1")])

    assert 2 == blocking.size().table_item_count
    assert isinstance(blocking, MemoryTable) == (blocking.size().table_size_bytes is None)
    blocking.close()


def test_a_sweep_removes_expired_items(blocking: BlockingTable) -> None:
    """Only a number in the past is an expiry. The item leaves its indexes too."""
    ttls: list[object] = [NOW_S - 1, NOW_S, NOW_S + 1, 0, -5, str(NOW_S - 1), None, True, 10**40, [1]]
    for number, ttl in enumerate(ttls):
        blocking.write(Put(item("part", str(number), ttl=ttl, GSI1PK="index", GSI1SK=str(number))))
    blocking.write(Put(item("part", "never")))

    assert (3, True) == blocking.sweep(NOW_S, 100)
    kept = [found["SK"] for found in blocking.query(Query("part")).items]
    assert ["1", "2", "5", "6", "7", "8", "9", "never"] == kept
    assert kept[:-1] == [found["GSI1SK"] for found in blocking.query(Query("index", index="GSI1")).items]
    assert (0, True) == blocking.sweep(NOW_S, 100)
    blocking.close()


def test_a_sweep_processes_a_bounded_number_of_items_per_call(blocking: BlockingTable) -> None:
    """A round of calls reaches every item."""
    for number in range(25):
        blocking.write(Put(item("part", f"{number:02}", ttl=NOW_S + number % 2)))
    sweeps = [blocking.sweep(NOW_S + 1, 10) for _ in range(3)]

    assert 13 == sum(swept.removed for swept in sweeps)
    assert [False, False, True] == [swept.finished for swept in sweeps]
    assert 12 == len(blocking.query(Query("part")).items)
    assert (5, False) == blocking.sweep(NOW_S + 2, 5)
    blocking.close()


def test_a_sweep_respects_a_changed_ttl(blocking: BlockingTable) -> None:
    """An expired item is valid until it is removed, and a write may extend it."""
    key = Key("part", "sort")
    blocking.write(Put(item(ttl=NOW_S - 1)))
    blocking.write(Update(key, set={"ttl": NOW_S + 10}))

    assert (0, True) == blocking.sweep(NOW_S, 10)
    blocking.write(Update(key, remove=("ttl",)))
    assert (0, True) == blocking.sweep(NOW_S + 100, 10)
    blocking.write(Update(key, set={"ttl": NOW_S}))
    assert (1, True) == blocking.sweep(NOW_S + 100, 10)
    assert (0, True) == blocking.sweep(NOW_S + 100, 10)
    blocking.close()


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run background work in the calling thread."""
    monkeypatch.setattr(runtime, "in_background", lambda call, *args: call(*args))


@pytest.mark.usefixtures("in_place")
async def test_writes_start_a_sweep_once_a_minute(embedded: Table, clock: FixedClock) -> None:
    """The minute is measured by the clock of the table."""
    now_s = clock.time_ms // 1000
    for number in range(10):
        await embedded.write(Put(item("part", str(number), ttl=now_s + 30)))
    for _ in range(300):
        await embedded.write(Update(Key("other", "sort"), add={"x": 1}))
    clock.time_ms += 59_000
    for _ in range(300):
        await embedded.write(Update(Key("other", "sort"), add={"x": 1}))
    before = len((await embedded.query(Query("part"))).items)
    clock.time_ms += 1_001
    for _ in range(300):
        await embedded.write(Update(Key("other", "sort"), add={"x": 1}))

    assert 10 == before
    assert [] == (await embedded.query(Query("part"))).items


@pytest.mark.usefixtures("in_place")
async def test_writes_keep_the_log_of_a_file_short(tmp_path: Path, clock: FixedClock) -> None:
    """The log is checkpointed after a number of writes, and then reused from its start."""
    table = EmbeddedTable(SqliteTable(tmp_path / "limiter.db"), clock, 1.0, lambda: 0.5)
    sizes = []
    for _ in range(3):
        for _ in range(5_200):
            await table.write(Update(Key("part", "sort"), add={"x": 1}))
        sizes.append((tmp_path / "limiter.db-wal").stat().st_size)
    await table.close()

    assert max(sizes) < 1.1 * min(sizes)
    assert not (tmp_path / "limiter.db-wal").exists()
