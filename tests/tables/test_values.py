"""The values that a table stores, and those that it refuses."""

from collections.abc import Mapping

import pytest

from tests.tables.engines import KEY, item, new_token
from zae_limiter._async.table import Table
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Delete, Equals, Key, Page, Put, Query, Update

KEPT = [
    0,
    -1,
    2**63,
    -(2**64),
    10**21,
    "",
    "word",
    "ümläut 漢字 🎉",
    'quote " backslash \\ newline \n nul \0',
    True,
    False,
    None,
    [],
    {},
    [1, "two", None, [True, {"deep": [10**21]}]],
    {"": 1, "a": {"b": {"c": [False, 0, "0"]}}},
]


def kinds(value: object) -> object:
    """Return a value with the types of all its parts, so that True and 1 differ."""
    if isinstance(value, list):
        return [kinds(part) for part in value]
    if isinstance(value, Mapping):
        return {name: kinds(part) for name, part in value.items()}
    return type(value), value


@pytest.mark.parametrize("value", KEPT)
async def test_a_stored_value_is_read_with_its_type(table: Table, value: object) -> None:
    """True is not 1, None is not absence, and numbers are exact at any size."""
    await table.write(Put(item(x=value)))
    put = await table.get(KEY)
    await table.write(Update(KEY, set={"y": value}))
    updated = await table.get(KEY)

    assert kinds(item(x=value)) == kinds(put)
    assert kinds(item(x=value, y=value)) == kinds(updated)


async def test_sums_of_large_numbers_are_exact(table: Table) -> None:
    """10^18 tokens are 10^21 millitokens."""
    await table.write(Put(item(x=10**21)))

    assert Applied(item(x=10**21 + 1)) == await table.write(Update(KEY, add={"x": 1}))
    assert Applied(item(x=1)) == await table.write(Update(KEY, add={"x": -(10**21)}))


@pytest.mark.parametrize("number", [10**38 - 1, 1 - 10**38, 123 * 10**120])
async def test_numbers_of_38_digits_are_stored(table: Table, number: int) -> None:
    """DynamoDB keeps 38 digits, and zeros after them."""
    await table.write(Put(item(x=number)))

    assert item(x=number) == await table.get(KEY)
    assert Applied(item(x=number, y=1)) == await table.write(Update(KEY, set={"y": 1}, when=(Equals("x", number),)))


async def test_sums_are_exact_to_38_digits(table: Table) -> None:
    """A balance is never rounded, however large."""
    await table.write(Put(item(x=10**37)))

    assert Applied(item(x=10**37 + 1)) == await table.write(Update(KEY, add={"x": 1}))


async def test_embedded_tables_store_numbers_larger_than_dynamodb_does(embedded: Table) -> None:
    """They have no limit of 38 digits."""
    await embedded.write(Put(item(x=10**40, ttl=10**40)))
    await embedded.write(Update(KEY, add={"x": 1, "ttl": -(3 * 10**40)}))

    assert item(x=10**40 + 1, ttl=-2 * 10**40) == await embedded.get(KEY)


@pytest.mark.parametrize(
    ("pk", "sk"), [("ümläut", "漢字"), ("a/b#c", "#META"), (" ", "'; DROP TABLE items"), ("🎉", "%_")]
)
async def test_a_key_may_be_any_text(table: Table, pk: str, sk: str) -> None:
    """A table uses only the order of its keys."""
    await table.write(Put(item(pk, sk, x=1, GSI1PK=sk, GSI1SK=pk)))

    assert item(pk, sk, x=1, GSI1PK=sk, GSI1SK=pk) == await table.get(Key(pk, sk))
    assert [item(pk, sk, GSI1PK=sk, GSI1SK=pk)] == (await table.query(Query(sk, index="GSI1"))).items


@pytest.mark.parametrize(
    "value", [1.5, float("nan"), b"bytes", (1, 2), {1, 2}, object(), [1.5], {"a": {"b": b""}}, {1: 2}]
)
async def test_a_value_of_an_unsupported_type_is_refused(table: Table, value: object) -> None:
    """A value that could not be read back unchanged raises an error, and nothing is written."""
    with pytest.raises(ValidationError):
        await table.write(Put(item(x=value)))
    with pytest.raises(ValidationError):
        await table.write(Update(KEY, set={"x": value}))
    with pytest.raises(ValidationError):
        await table.transact([Put(item("part", "first")), Update(KEY, set={"x": value})], new_token())

    assert [None, None] == await table.batch_get([KEY, Key("part", "first")])


@pytest.mark.parametrize("amount", [1.5, "1", None, True])
async def test_adding_a_value_that_is_not_a_number_is_refused(table: Table, amount: object) -> None:
    """The type of the existing value makes no difference."""
    with pytest.raises(ValidationError):
        await table.write(Update(KEY, add={"x": amount}))  # type: ignore[dict-item] # refused at run time

    assert await table.get(KEY) is None


@pytest.mark.parametrize("bad", ["", 1, None, "\ud800"])
async def test_an_invalid_key_is_refused(table: Table, bad: str) -> None:
    """Keys and index keys are non-empty strings."""
    for operation in (
        Put(item(bad, "sort")),
        Put(item("part", bad)),
        Put({"PK": "part"}),
        Put(item(GSI2PK=bad, GSI2SK="sort")),
        Put(item(GSI2PK="part", GSI2SK=bad)),
        Put(item(GSI2SK=bad)),
        Update(Key("part", bad)),
        Update(KEY, set={"GSI3PK": bad}),
    ):
        with pytest.raises((ValidationError, KeyError)):
            await table.write(operation)

    assert await table.get(KEY) is None


async def test_an_invalid_index_key_leaves_the_item_unchanged(table: Table) -> None:
    """A failed write has no partial effect."""
    await table.write(Put(item(GSI1PK="index", GSI1SK="first")))

    with pytest.raises(ValidationError):
        await table.write(Update(KEY, set={"GSI1SK": ""}))
    with pytest.raises(ValidationError):
        await table.transact([Put(item("a", "a")), Update(KEY, set={"GSI1SK": ""})], new_token())
    assert item(GSI1PK="index", GSI1SK="first") == await table.get(KEY)
    assert [item(GSI1PK="index", GSI1SK="first")] == (await table.query(Query("index", index="GSI1"))).items
    assert await table.get(Key("a", "a")) is None


async def test_reading_an_invalid_key_finds_nothing(embedded: Table) -> None:
    """No item can have such a key."""
    assert await embedded.get(Key("part", "\ud800")) is None
    assert Page([], None) == await embedded.query(Query("\ud800"))
    assert Applied({}) == await embedded.write(Delete(Key("\ud800", "sort")))
