"""Random operations: a dictionary, the memory table and two connections to one SQLite file stay equal."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import (
    AbsentOrAtMost,
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Check,
    Delete,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Operation,
    Put,
    Query,
    Update,
)
from zae_limiter.tables.blocking import BlockingTable
from zae_limiter.tables.memory import MemoryTable
from zae_limiter.tables.sqlite.table import SqliteTable

PARTS, SORTS, NAMES, PLACES = ["p", "q"], ["a", "ab", "b"], ["n", "m", "w", "ttl"], ["g", "h"]
INDEX_NAMES = ["GSI1PK", "GSI1SK", "GSI2PK", "GSI2SK"]

keys = st.builds(Key, st.sampled_from(PARTS), st.sampled_from(SORTS))
numbers = st.one_of(st.integers(-3, 3), st.integers(10**21 - 1, 10**21 + 1))
plain = st.one_of(numbers, st.sampled_from(["", "x"]), st.booleans(), st.none())
values = st.one_of(plain, st.lists(plain, max_size=2), st.dictionaries(st.sampled_from(["k", ""]), plain, max_size=1))
attributes = st.one_of(
    st.tuples(st.sampled_from(NAMES), values), st.tuples(st.sampled_from(INDEX_NAMES), st.sampled_from(PLACES))
)
conditions = st.one_of(
    st.builds(ItemExists),
    st.builds(ItemAbsent),
    *(st.builds(kind, st.sampled_from(NAMES)) for kind in (AttributeExists, AttributeAbsent)),
    *(st.builds(kind, st.sampled_from(NAMES), plain) for kind in (Equals, Differs)),
    *(st.builds(kind, st.sampled_from(NAMES), numbers) for kind in (AtLeast, AtMost, AbsentOrAtMost)),
    st.builds(Between, st.sampled_from(NAMES), numbers, numbers),
)
whens = st.lists(conditions, max_size=2).map(tuple)
puts = st.builds(
    lambda key, rest, when: Put({"PK": key.pk, "SK": key.sk, **dict(rest)}, when),
    keys,
    st.lists(attributes, max_size=4),
    whens,
)
updates = st.builds(
    lambda key, add, change, remove, when: Update(
        key, add, {name: value for name, value in change if name not in add}, remove, when
    ),
    keys,
    st.dictionaries(st.sampled_from(["n", "m"]), numbers, max_size=2),
    st.lists(attributes, max_size=3),
    st.lists(st.sampled_from(["w", "GSI1PK", "GSI2SK"]), max_size=1).map(tuple),
    whens,
)
deletes = st.builds(Delete, keys, whens)
checks = st.builds(Check, keys, whens)
writes = st.one_of(puts, updates, updates, deletes)
transactions = st.lists(st.one_of(writes, checks), min_size=1, max_size=4, unique_by=lambda operation: operation.key)
steps = st.one_of(writes, writes, transactions, st.integers(-2, 3))


class Model:
    """The simplest table: a dictionary, searched from end to end."""

    def __init__(self) -> None:
        self.items: dict[Key, dict[str, Any]] = {}

    def step(self, step: object) -> object:
        """Return the outcome of an operation, a transaction or a sweep."""
        if isinstance(step, int):
            expired = [key for key, item in self.items.items() if type(item.get("ttl")) is int and item["ttl"] < step]
            for key in expired:
                del self.items[key]
            return len(expired)
        operations: Sequence[Operation] = step if isinstance(step, list) else [step]  # type: ignore[list-item] # a write
        olds = [self.items.get(operation.key, {}) for operation in operations]
        held = [
            all(condition.holds(old) for condition in operation.when)
            for operation, old in zip(operations, olds, strict=True)
        ]
        news = [
            self.changed(operation, old) if holds else None
            for operation, old, holds in zip(operations, olds, held, strict=True)
        ]
        if "error" in news:
            return "error"
        if not all(held):
            return "refused", [None if holds else old for old, holds in zip(olds, held, strict=True)]
        for operation, new in zip(operations, news, strict=True):
            self.items.pop(operation.key, None)
            if new:
                self.items[operation.key] = dict(new)
        return "applied", [] if isinstance(step, list) else news

    def changed(self, operation: Operation, old: dict[str, Any]) -> Any:
        """Return the item after an operation."""
        if isinstance(operation, Check | Delete):
            return old if isinstance(operation, Check) else {}
        if isinstance(operation, Put):
            return operation.item
        if any(type(old.get(name, 0)) is not int for name in operation.add):
            return "error"
        sums = {name: old.get(name, 0) + amount for name, amount in operation.add.items()}
        new = {"PK": operation.key.pk, "SK": operation.key.sk, **old, **sums, **operation.set}
        return {name: value for name, value in new.items() if name not in operation.remove}

    def query(self, query: Query) -> list[Any]:
        """Return the items of a query without paging."""
        pk_name, sk_name = f"{query.index or ''}PK", f"{query.index or ''}SK"
        found = [item for item in self.items.values() if item.get(pk_name) == query.pk and sk_name in item]
        found = [
            item
            for item in found
            if item[sk_name].startswith(query.prefix or "")
            and (query.low is None or item[sk_name] >= query.low)
            and (query.high is None or item[sk_name] <= query.high)
        ]
        found.sort(key=lambda item: (item[sk_name], item["PK"], item["SK"]), reverse=query.descending)
        if query.index is None:
            return found
        return [{name: item[name] for name in ("PK", "SK", pk_name, sk_name)} for item in found]


def outcome_of(table: BlockingTable, step: object) -> object:
    """Return the answer of a table in the form of the model."""
    if isinstance(step, int):
        return table.sweep(step, 100).removed
    try:
        if isinstance(step, list):
            outcome: Any = table.transact(step)
            reasons = [reason and getattr(reason, "old", {}) for reason in getattr(outcome, "reasons", ())]
        else:
            outcome = table.write(step)  # type: ignore[arg-type] # a write
            reasons = [getattr(outcome, "old", {})]
    except ValidationError:
        return "error"
    if type(outcome).__name__ in ("Applied", "Committed"):
        return "applied", [outcome.new] if hasattr(outcome, "new") else []
    return "refused", reasons


def exactly(outcome: object) -> str:
    """Return an outcome in which True and 1 differ; attributes have no order."""
    return json.dumps(outcome, sort_keys=True)


queries = [
    Query(pk, index, descending=descending, **bounds)  # type: ignore[arg-type] # bounds are strings
    for index, partitions in ((None, PARTS), ("GSI1", PLACES), ("GSI2", PLACES))
    for pk in partitions
    for descending in (False, True)
    for bounds in ({}, {"prefix": "a"}, {"low": "ab", "high": "g"})
]


def pages(table: BlockingTable, query: Query, limit: int | None) -> list[Any]:
    """Return everything that a query finds, page by page."""
    found: list[Any] = []
    start = None
    while True:
        bounds = (query.prefix, query.low, query.high, query.descending, limit, start)
        page = table.query(Query(query.pk, query.index, *bounds))
        found.extend(page.items)
        start = page.next
        if start is None:
            return found


@given(st.lists(steps, max_size=25))
def test_random_operations_have_equal_outcomes_in_memory_and_in_a_dictionary(run: list[object]) -> None:
    """Every outcome and every query is compared."""
    model, table = Model(), MemoryTable()
    for step in run:
        assert exactly(model.step(step)) == exactly(outcome_of(table, step))

    for query in queries:
        assert model.query(query) == pages(table, query, None)
        assert model.query(query) == pages(table, query, 2)


@example(
    [
        (Put({"PK": "p", "SK": "a"}), True),
        (Update(Key("p", "a"), {"n": 0}, {"m": ""}), True),
        (Update(Key("p", "a"), {}), False),
    ]
)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=25))
def test_random_operations_of_two_connections_match_the_memory_table(run: list[tuple[object, bool]]) -> None:
    """Rows cached by one connection do not hide writes of the other."""
    with tempfile.TemporaryDirectory() as directory:
        memory = MemoryTable()
        tables = [SqliteTable(Path(directory) / "limiter.db") for _ in range(2)]
        for step, which in run:
            expected = outcome_of(memory, step)
            assert exactly(expected) == exactly(outcome_of(tables[which], step))

        for query in queries:
            assert pages(memory, query, None) == pages(tables[0], query, None) == pages(tables[1], query, 2)
        for table in tables:
            table.close()
