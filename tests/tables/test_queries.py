"""Queries of the table and of its indexes: order, ranges, limits, and which items an index contains."""

import pytest

from tests.tables.engines import KEY, all_pages, item, sort_keys
from zae_limiter._async.table import Table
from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import INDEXES, Delete, Key, Put, Query, Update

SORTED = ["A", "B", "a", "a#1", "a#10", "a#2", "a/", "b", "ä", "漢", "\uffff", "🎉"]


@pytest.fixture
async def sorted_table(table: Table) -> Table:
    """A partition whose items were put in random order, between two other partitions."""
    for sk in reversed(SORTED):
        await table.write(Put(item("part", sk, x=sk)))
    await table.write(Put(item("par", "z")))
    await table.write(Put(item("part2", "a")))
    return table


async def test_a_query_returns_a_partition_in_the_order_of_its_sort_keys(sorted_table: Table) -> None:
    """The order is that of UTF-8 bytes, as in DynamoDB."""
    page = await sorted_table.query(Query("part"))

    assert [item("part", sk, x=sk) for sk in SORTED] == page.items
    assert page.next is None


async def test_a_descending_query_returns_the_reverse_order(sorted_table: Table) -> None:
    """A descending query reads the partition from its end."""
    assert SORTED[::-1] == await sort_keys(sorted_table, Query("part", descending=True))


async def test_a_query_of_an_unknown_partition_is_empty(sorted_table: Table) -> None:
    """A query without results returns an empty page."""
    page = await sorted_table.query(Query("nothing"))

    assert ([], None) == (page.items, page.next)


@pytest.mark.parametrize(
    "prefix", ["", "a", "a#", "a#1", "b", "B", "ä", "漢", "\uffff", "🎉", "\U0010ffff", "\ud7ff", "zz"]
)
@pytest.mark.parametrize("descending", [False, True])
async def test_a_query_by_prefix_returns_only_keys_with_the_prefix(
    sorted_table: Table, prefix: str, descending: bool
) -> None:
    """Keys before and after the prefix are left out."""
    expected = [sk for sk in SORTED if sk.startswith(prefix)]

    found = await sort_keys(sorted_table, Query("part", prefix=prefix, descending=descending))
    assert (expected[::-1] if descending else expected) == found


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("a", "b"),
        ("a#1", "a#1"),
        ("a#11", "a#3"),
        (None, "a"),
        ("b", None),
        (None, None),
        ("b", "a"),
        ("", "\U0010ffff"),
    ],
)
@pytest.mark.parametrize("descending", [False, True])
async def test_a_query_by_range_includes_both_ends(
    sorted_table: Table, low: str | None, high: str | None, descending: bool
) -> None:
    """Either end may be open."""
    expected = [sk for sk in SORTED if (low is None or low <= sk) and (high is None or sk <= high)]

    found = await sort_keys(sorted_table, Query("part", low=low, high=high, descending=descending))
    assert (expected[::-1] if descending else expected) == found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12, 100])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_of_a_query_contain_every_item_once_in_order(
    sorted_table: Table, limit: int, descending: bool
) -> None:
    """Only the last page may be short."""
    order = SORTED[::-1] if descending else SORTED

    pages = await all_pages(sorted_table, Query("part", limit=limit, descending=descending))
    assert [("part", sk) for sk in order] == [key for page in pages for key in page]
    assert {limit} >= {len(page) for page in pages[:-1]}


async def test_pages_of_large_items_contain_every_item_once(table: Table) -> None:
    """DynamoDB ends a page after reading one megabyte."""
    keys = [("part", f"{number}") for number in range(5)]
    for key in keys:
        await table.write(Put(item(*key, x="x" * 390_000)))

    pages = await all_pages(table, Query("part"))
    assert keys == [key for page in pages for key in page]


async def test_pages_of_a_query_by_prefix_stay_within_it(sorted_table: Table) -> None:
    """Later pages have the bounds of the first."""
    for descending in (False, True):
        pages = await all_pages(sorted_table, Query("part", prefix="a#", limit=2, descending=descending))

        expected = [("part", "a#1"), ("part", "a#10"), ("part", "a#2")]
        assert (expected[::-1] if descending else expected) == [key for page in pages for key in page]


async def test_a_page_after_a_deleted_item_starts_at_its_place(sorted_table: Table) -> None:
    """A page starts at a position in the order; the item need not exist."""
    first = await sorted_table.query(Query("part", limit=3))
    await sorted_table.write(Delete(Key("part", SORTED[2])))
    await sorted_table.write(Put(item("part", SORTED[2] + "!")))

    rest = await sort_keys(sorted_table, Query("part", start=first.next))
    assert [SORTED[2] + "!", *SORTED[3:]] == rest


@pytest.mark.parametrize("index", INDEXES)
async def test_a_query_of_an_index_returns_keys_only(table: Table, index: str) -> None:
    """An index contains the keys of the item and of the index."""
    keys = {f"{index}PK": "index", f"{index}SK": "place"}
    others = {f"{other}{part}": "elsewhere" for other in INDEXES if other != index for part in ("PK", "SK")}
    await table.write(Put(item(x=1, **keys, **others)))

    assert [item(**keys)] == (await table.query(Query("index", index=index))).items
    assert [] == (await table.query(Query("place", index=index))).items


@pytest.mark.parametrize("index", INDEXES)
async def test_an_item_is_in_an_index_only_with_both_index_keys(table: Table, index: str) -> None:
    """Updates that add, change or remove the keys move the item."""
    query = Query("index", index=index)
    found = []
    for change in (
        Update(KEY, set={f"{index}PK": "index"}),
        Update(KEY, set={f"{index}SK": "first", "x": 1}),
        Update(KEY, set={f"{index}SK": "second"}, add={"x": 1}),
        Update(KEY, set={"x": 5}),
        Update(KEY, set={f"{index}PK": "other"}),
        Update(KEY, set={f"{index}PK": "index"}),
        Update(KEY, remove=(f"{index}SK",)),
        Update(KEY, set={f"{index}SK": "third"}),
        Put(item()),
        Put(item(**{f"{index}PK": "index", f"{index}SK": "fourth"})),
        Delete(KEY),
    ):
        await table.write(change)
        found.append([entry[f"{index}SK"] for entry in (await table.query(query)).items])

    first, second, third, fourth = ["first"], ["second"], ["third"], ["fourth"]
    assert [[], first, second, second, [], second, [], third, [], fourth, []] == found


async def test_a_query_of_an_index_is_ordered_by_its_sort_keys(table: Table) -> None:
    """Range, prefix and direction apply to the keys of the index."""
    for number, place in enumerate(["c", "a2", "b", "a1"]):
        await table.write(Put(item(f"part{number}", "sort", GSI2PK="index", GSI2SK=place)))

    async def found(**bounds: object) -> list[object]:
        page = await table.query(Query("index", index="GSI2", **bounds))  # type: ignore[arg-type] # one call for all
        return [entry["GSI2SK"] for entry in page.items]

    assert ["a1", "a2", "b", "c"] == await found()
    assert ["c", "b", "a2", "a1"] == await found(descending=True)
    assert ["a1", "a2"] == await found(prefix="a")
    assert ["a2", "b"] == await found(low="a2", high="bb")
    assert ["a1", "a2"] == await found(limit=2)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_of_items_with_equal_index_keys_contain_each_once(
    table: Table, limit: int, descending: bool
) -> None:
    """Ties are ordered by the primary key, so that a page can end between them."""
    keys = [(pk, sk) for pk in ("a", "b", "c") for sk in ("x", "y")]
    for pk, sk in reversed(keys):
        await table.write(Put(item(pk, sk, GSI3PK="index", GSI3SK="same")))
    await table.write(Put(item("0", "0", GSI3PK="index", GSI3SK="zone")))

    pages = await all_pages(table, Query("index", index="GSI3", limit=limit, descending=descending))
    assert sorted([*keys, ("0", "0")]) == sorted(key for page in pages for key in page)
    assert {limit} >= {len(page) for page in pages[:-1]}


async def test_embedded_tables_order_index_ties_by_primary_key(embedded: Table) -> None:
    """Two tables with the same items return the same order."""
    for pk, sk in (("b", "y"), ("a", "y"), ("b", "x"), ("a", "x")):
        await embedded.write(Put(item(pk, sk, GSI3PK="index", GSI3SK="same")))

    expected = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert [expected] == await all_pages(embedded, Query("index", index="GSI3"))
    assert [expected[::-1]] == await all_pages(embedded, Query("index", index="GSI3", descending=True))


async def test_an_embedded_page_that_ends_with_the_last_item_has_no_next(embedded: Table) -> None:
    """Embedded tables look one item ahead."""
    for sk in "ab":
        await embedded.write(Put(item("part", sk)))

    assert (await embedded.query(Query("part", limit=1))).next is not None
    assert (await embedded.query(Query("part", limit=2))).next is None


@pytest.mark.parametrize(
    "query",
    [
        Query("part", index="GSI5"),
        Query("part", index="items"),
        Query("part", limit=0),
        Query("part", prefix="a", low="a"),
        Query("part", prefix="a", high="b"),
    ],
)
async def test_an_invalid_query_raises_an_error(table: Table, query: Query) -> None:
    """A mistake does not return an empty page."""
    with pytest.raises(ValidationError):
        await table.query(query)
