"""The stored text of an item after updates, and the row that an update finds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.engines import KEY, item
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Delete, Key, Put, Update
from zae_limiter.tables.evaluate import apply
from zae_limiter.tables.sqlite.table import SqliteTable
from zae_limiter.tables.sqlite.text import row_after, row_of_item, row_of_text

NAMES = ["n", "m", "%d", "100%", 'a "word"', "ü\\"]
numbers = st.one_of(st.integers(-3, 3), st.integers(2**63 - 1, 2**64 + 1), st.integers(-(10**40), 10**40))
values = st.one_of(numbers, numbers, st.booleans(), st.none(), st.sampled_from(["", "%s", 'x"y']), st.lists(numbers))


@st.composite
def updates(draw: st.DrawFn) -> Update:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    kinds = [draw(st.sampled_from(("add", "set", "set", "remove"))) for _ in names]
    chosen = list(zip(names, kinds, strict=True))
    return Update(
        KEY,
        add={name: draw(numbers) for name, kind in chosen if kind == "add"},
        set={name: draw(values) for name, kind in chosen if kind == "set"},
        remove=tuple(name for name, kind in chosen if kind == "remove"),
    )


def fitting(update: Update, old: dict[str, Any]) -> Update:
    """Return the update without additions to attributes that are not numbers."""
    add = {name: amount for name, amount in update.add.items() if type(old.get(name, 0)) is int}
    return Update(KEY, add, update.set, update.remove)


@given(st.dictionaries(st.sampled_from(NAMES), values), st.lists(updates(), max_size=8), st.booleans())
def test_the_stored_text_equals_the_item_after_any_updates(
    attributes: dict[str, Any], changes: list[Update], from_file: bool
) -> None:
    """Every type and every digit is preserved."""
    first = item(**attributes)
    row = row_of_text(KEY, json.dumps(first)) if from_file else row_of_item(KEY, first)
    for change in changes:
        update = fitting(change, row.item)
        new = apply(update, row.item)
        assert isinstance(new, dict)
        row = row_after(row, update, new)

        assert new == row.item
        assert repr(sorted(new.items())) == repr(sorted(json.loads(row.text).items()))


def test_a_text_with_changed_counters_differs_only_at_its_end() -> None:
    """Unchanged attributes come first, so that an update of a long text changes its last page only."""
    row = row_of_item(KEY, item(n=1, word="x" * 100, m=2))
    for _ in range(3):
        update = Update(KEY, add={"n": 1}, set={"m": row.item["m"] + 1})
        before, row = row, row_after(row, update, {**row.item, "n": row.item["n"] + 1, "m": row.item["m"] + 1})

    assert row.pattern is before.pattern
    assert row.text.startswith(before.text[: before.text.index('"n"')])
    assert row.text.endswith('"n":4,"m":5}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


def test_an_item_that_reuses_the_row_of_a_cached_one_is_not_mistaken_for_it(path: Path) -> None:
    """SQLite reuses the row number of a deleted row."""
    table, other = SqliteTable(path), SqliteTable(path)
    table.write(Put(item(x=1)))
    table.write(Update(KEY, add={"x": 1}))
    other.write(Delete(KEY))
    other.write(Put(item("part", "next", x=2)))

    assert Applied(item(x=1)) == table.write(Update(KEY, add={"x": 1}))
    assert item("part", "next", x=2) == other.get(Key("part", "next"))
    table.close()
    other.close()


def test_an_item_written_again_to_another_row_is_found(path: Path) -> None:
    """The row number may differ from the cached one."""
    table, other = SqliteTable(path), SqliteTable(path)
    table.write(Put(item(x=1)))
    other.write(Delete(KEY))
    other.write(Put(item("part", "next")))
    other.write(Put(item(x=1)))

    assert [Applied(item(x=number)) for number in (2, 3)] == [table.write(Update(KEY, add={"x": 1})) for _ in range(2)]
    assert item("part", "next") == other.get(Key("part", "next"))
    assert item(x=3) == other.get(KEY)
    table.close()
    other.close()
