"""Callers of a SQLite table that are interrupted at any bytecode: other threads and processes can still write."""

import pytest

from tests.interrupts.interrupt_at import Interrupt, InterruptAt, every_interrupt
from tests.interrupts.test_memory_table import ONE, TWO, in_another_thread, item, numbers
from tests.tables.test_sqlite_snapshot import Increment, can_shorten
from zae_limiter.schema.operations import ItemAbsent, Put, Update
from zae_limiter.tables.sqlite import pool
from zae_limiter.tables.sqlite.table import SqliteTable

WRITES = {
    "an update": lambda table: table.write(Update(ONE, add={"number": 1})),
    "a new item": lambda table: table.write(Put(item(TWO, 5))),
    "a transaction": lambda table: table.transact(
        [Put(item(TWO, 5), (ItemAbsent(),)), Update(ONE, set={"number": 2, "GSI1SK": "y"})]
    ),
    "a read": lambda table: table.get(ONE),
}


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """Shorten the turn of a thread that does not end it."""
    monkeypatch.setattr(pool, "_LONGEST_TURN_S", 0.02)


@pytest.mark.parametrize("name", WRITES)
def test_call_interrupted_at_any_bytecode_leaves_no_lock(name, tmp_path):
    """Neither in this process nor on the file."""
    table = SqliteTable(tmp_path / "limiter.db")
    other = SqliteTable(tmp_path / "limiter.db")

    def prepare():
        table.write(Put(item(ONE, 1)))
        table.batch_delete([TWO])
        table._rows.clear()
        return table

    for _, where in every_interrupt(prepare, WRITES[name]):
        found = in_another_thread(lambda: table.write(Update(ONE, add={"total": 1})))
        assert found.new["total"] == 1, where
        assert other.write(Update(ONE, add={"total": 1})).new["total"] == 2, where
        assert numbers(table) in ([1, None], [2, None], [1, 5], [2, 5]), where
    table.close()
    other.close()


def test_write_in_a_kept_snapshot_interrupted_at_any_bytecode_leaves_no_lock(tmp_path):
    """It was made once or not at all, and the snapshot ends."""
    table = SqliteTable(tmp_path / "limiter.db")
    other = SqliteTable(tmp_path / "limiter.db")

    def prepare():
        table.write(Put({**item(ONE, 1), "x": 0}))
        for _ in range(3):
            table.write(Increment(ONE, 1))
        table._pool._idle[-1].keep()
        return table

    for _, where in every_interrupt(prepare, lambda table: table.write(Increment(ONE, 1))):
        assert other.get(ONE)["x"] in (3, 4), where
        found = in_another_thread(lambda: table.write(Update(ONE, add={"total": 1})))
        assert found.new["total"] == 1, where
        assert other.write(Update(ONE, add={"total": 1})).new["total"] == 2, where
        assert can_shorten(tmp_path / "limiter.db"), where
    table.close()
    other.close()


def test_second_interrupt_during_the_cleanup_leaves_no_lock_on_the_file(tmp_path):
    """The next caller closes the connection, although the exception and its traceback still exist."""
    table = SqliteTable(tmp_path / "limiter.db")
    other = SqliteTable(tmp_path / "limiter.db")
    table.write(Put(item(ONE, 1)))

    def interrupted(cursor, argument):
        cursor.execute("BEGIN IMMEDIATE")
        raise Interrupt("the first")

    kept = []
    for number in range(1, 200):
        interrupt = InterruptAt(number, "pool")
        with interrupt:
            try:
                table._access.writing(interrupted, None)
            except Interrupt as error:
                kept.append(error)
        in_another_thread(lambda: table.write(Update(ONE, add={"total": 1})))
        assert other.write(Update(ONE, add={"number": 1})).new["number"] == number + 1, interrupt.place
        if interrupt.place is None:
            break

    assert number > 10
    table.close()
    other.close()
