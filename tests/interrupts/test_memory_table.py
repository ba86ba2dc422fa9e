"""Callers of a table in memory that are interrupted at any bytecode: it stays consistent, and its lock is free."""

import threading

import pytest

from tests.interrupts.interrupt_at import every_interrupt
from tests.tables.memory_items import stored
from zae_limiter.schema.operations import AtLeast, Delete, ItemAbsent, Key, Put, Query, Update
from zae_limiter.tables.evaluate import places
from zae_limiter.tables.memory import MemoryTable

ONE, TWO = Key("ns/BUCKET#a#r#0", "#STATE"), Key("ns/ENTITY#a", "#META")


def item(key, number, place="x"):
    """Return an item that an index lists, with a total that is logged."""
    return {"PK": key.pk, "SK": key.sk, "number": number, "b_rpm_tc": number, "GSI1PK": "p", "GSI1SK": place}


def filled():
    """Return a table with one item of two, in its second hour."""
    table = MemoryTable()
    table.hour = 1
    table.write(Put(item(ONE, 1)))
    table.hour = 2
    return table


def numbers(table):
    """Return the numbers of both items, None for one that is absent."""
    return [None if found is None else found["number"] for found in table.batch_get((ONE, TWO))]


def in_another_thread(call):
    """Make a call in another thread, which would wait for a lock that was not released; return its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(20)
    assert found, "the lock was lost"
    return found[0]


def check(table):
    """Require that items, orders and the log are consistent."""
    items = stored(table)
    orders = [one for part in table._orders.parts for one in part.items()]
    for part in table._sort_keys.parts:
        orders += [(("", pk), [(sk, pk, sk) for sk in sort_keys]) for pk, sort_keys in part.items()]
    listed = {(order, partition, entry) for (order, partition), entries in orders for entry in entries}
    expected = {(*place[:2], (place[2], *key)) for key, found in items.items() for place in places(found)}

    assert expected == listed
    assert set(items) == set(table._rounds)
    assert sum(len(entries) for _, entries in orders) == len(listed)
    sequences = [one.sequence for one in table.changes(0, 100)]
    assert sorted(set(sequences)) == sequences
    assert not table._unfinished


OPERATIONS = {
    "an update": (Update(ONE, set={"number": 2}), [[1, None], [2, None]]),
    "a move": (Update(ONE, set={"number": 2, "GSI1SK": "y"}), [[1, None], [2, None]]),
    "a new item": (Put(item(TWO, 5)), [[1, None], [1, 5]]),
    "a delete": (Delete(ONE), [[1, None], [None, None]]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_write_interrupted_at_any_bytecode_is_complete_or_absent(name):
    """The next caller sees one or the other."""
    operation, allowed = OPERATIONS[name]
    seen = []
    for table, where in every_interrupt(filled, lambda table: table.write(operation)):
        seen.append(in_another_thread(lambda table=table: numbers(table)))
        assert seen[-1] in allowed, where
        check(table)

    assert {str(one) for one in seen} == {str(one) for one in allowed}


def test_transaction_interrupted_at_any_bytecode_is_complete_or_absent():
    """All operations are applied, or none."""
    operations = [Put(item(TWO, 5), (ItemAbsent(),)), Update(ONE, set={"number": 2, "GSI1SK": "y"})]
    seen = []
    for table, where in every_interrupt(filled, lambda table: table.transact(operations)):
        seen.append(in_another_thread(lambda table=table: numbers(table)))
        assert seen[-1] in ([1, None], [2, 5]), where
        check(table)

    assert [1, None] in seen
    assert [2, 5] in seen


@pytest.mark.parametrize("verb", ["query", "sweep", "log", "hour"])
def test_other_call_interrupted_at_any_bytecode_leaves_the_table_consistent(verb):
    """Reads, sweeps, the log, and the change of the hour."""

    def act(table):
        if verb == "query":
            table.query(Query("p", index="GSI1"))
        elif verb == "sweep":
            table.sweep(10**12, 10)
        elif verb == "log":
            table.log_open(0, 10)
        else:
            table.hour = 3

    for table, _ in every_interrupt(filled, act):
        in_another_thread(lambda table=table: numbers(table))
        check(table)


class HandlerRuns:
    """A condition during which a signal handler writes, once."""

    def __init__(self, table):
        self._table = table

    def holds(self, found):
        table, self._table = self._table, None
        if table is not None:
            table.write(Update(ONE, add={"number": 10}))
        return True


def test_signal_handler_may_write_while_its_thread_writes():
    """Neither waits for the other, and both writes count."""
    table = filled()
    table.write(Update(ONE, set={"number": 2}))
    table.write(Update(ONE, add={"number": 100}, when=(HandlerRuns(table),)))

    assert [112, None] == numbers(table)


def both():
    """Return a table with both items, each written in this hour."""
    table = filled()
    table.write(Put(item(ONE, 1)))
    table.write(Put(item(TWO, 5)))
    return table


def both_updates(*conditions, of=TWO):
    """Return an update of each item; the conditions are those of one of them."""
    return [Update(key, add={"number": 100}, when=conditions if key == of else ()) for key in (ONE, TWO)]


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("of", [ONE, TWO])
def test_signal_handler_may_write_while_its_thread_updates_several_items(of, refused):
    """The handler's write counts, whether the updates are applied or not."""
    table = both()
    conditions = (HandlerRuns(table), *([AtLeast("number", 1_000)] if refused else []))

    applied = table.update_all(both_updates(*conditions, of=of))

    assert ([11, 5] if refused else [111, 105]) == numbers(table)
    assert refused is (applied is None)


def test_interrupt_while_several_items_are_updated_leaves_each_item_as_before_or_after():
    """A caller that is interrupted has charged some of its buckets, or none: never more than it asked for."""
    seen = []
    for table, where in every_interrupt(both, lambda table: table.update_all(both_updates())):
        seen.append(in_another_thread(lambda table=table: numbers(table)))
        assert seen[-1] in ([1, 5], [101, 5], [101, 105]), where
        check(table)

    assert [1, 5] in seen
    assert [101, 105] in seen
