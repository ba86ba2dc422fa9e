"""Transactions: several operations, all or nothing."""

import pytest

from tests.tables.engines import KEY, all_of, item, new_token
from zae_limiter._async.table import Table
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Cancelled, Committed, Item, Missing, Refused
from zae_limiter.schema.operations import (
    AtLeast,
    Check,
    Delete,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Operation,
    Put,
    Query,
    Update,
)


async def contents(table: Table) -> list[Item]:
    """Return every item of the partition, page by page."""
    return await all_of(table, "part")


async def test_a_transaction_applies_every_operation(table: Table) -> None:
    """Put, update, delete and check may be combined."""
    for sk in ("changed", "checked", "deleted"):
        await table.write(Put(item("part", sk, x=1)))
    outcome = await table.transact(
        [
            Put(item("part", "a-new", x=0), when=(ItemAbsent(),)),
            Update(Key("part", "changed"), add={"x": 1}, when=(AtLeast("x", 1),)),
            Update(Key("part", "created"), add={"x": 1}),
            Delete(Key("part", "deleted"), when=(ItemExists(),)),
            Delete(Key("part", "never there")),
            Check(Key("part", "checked"), when=(Equals("x", 1),)),
            Check(Key("part", "absent"), when=(ItemAbsent(),)),
        ],
        new_token(),
    )

    assert Committed() == outcome
    expected = [("a-new", 0), ("changed", 2), ("checked", 1), ("created", 1)]
    assert [item("part", sk, x=x) for sk, x in expected] == await contents(table)


@pytest.mark.parametrize(
    "refused",
    [
        Put(item("part", "old"), when=(ItemAbsent(),)),
        Update(Key("part", "old"), add={"x": 1}, when=(Equals("x", 2),)),
        Delete(Key("part", "old"), when=(Equals("x", 2),)),
        Check(Key("part", "old"), when=(Equals("x", 2),)),
    ],
)
@pytest.mark.parametrize("first", [False, True])
async def test_a_transaction_with_one_failed_condition_writes_nothing(
    table: Table, refused: Operation, first: bool
) -> None:
    """The reason is at the position of the failed operation."""
    await table.write(Put(item("part", "old", x=1)))
    await table.write(Put(item("part", "other", x=1)))
    others: list[Operation] = [
        Put(item("part", "new")),
        Update(Key("part", "other"), add={"x": 1}, set={"GSI1PK": "index", "GSI1SK": "place"}),
        Delete(Key("part", "gone")),
    ]
    outcome = await table.transact([refused, *others] if first else [*others, refused], new_token())

    reason = Refused(item("part", "old", x=1))
    assert Cancelled((reason, None, None, None) if first else (None, None, None, reason)) == outcome
    assert [item("part", "old", x=1), item("part", "other", x=1)] == await contents(table)
    assert [] == (await table.query(Query("index", index="GSI1"))).items


async def test_a_transaction_returns_a_reason_per_failed_condition(table: Table) -> None:
    """Each reason has the current item."""
    await table.write(Put(item("part", "one", x=1)))
    await table.write(Put(item("part", "two", x=2)))
    outcome = await table.transact(
        [
            Update(Key("part", "one"), add={"x": 1}, when=(Equals("x", 9),)),
            Update(Key("part", "absent"), add={"x": 1}, when=(ItemExists(),)),
            Update(Key("part", "two"), add={"x": 1}, when=(Equals("x", 2),)),
            Check(Key("part", "nothing"), when=(ItemExists(),)),
        ],
        new_token(),
    )

    assert Cancelled((Refused(item("part", "one", x=1)), Missing(), None, Missing())) == outcome


async def test_a_transaction_with_an_invalid_operation_writes_nothing(table: Table) -> None:
    """The error is raised before anything is written."""
    await table.write(Put(item(x="word")))
    with pytest.raises(ValidationError):
        await table.transact([Put(item("part", "new")), Update(KEY, add={"x": 1})], new_token())
    with pytest.raises(ValidationError):
        await table.transact([Put(item("part", "new")), Update(KEY, set={"PK": "other"})], new_token())

    assert [item(x="word")] == await contents(table)


async def test_a_transaction_updates_the_indexes(table: Table) -> None:
    """Items enter and leave their indexes together."""
    await table.write(Put(item("part", "a", GSI4PK="index", GSI4SK="1")))
    await table.transact(
        [
            Delete(Key("part", "a")),
            Put(item("part", "b", GSI4PK="index", GSI4SK="2")),
            Update(Key("part", "c"), set={"GSI4PK": "index", "GSI4SK": "3"}),
        ],
        new_token(),
    )

    found = (await table.query(Query("index", index="GSI4"))).items
    assert [item("part", "b", GSI4PK="index", GSI4SK="2"), item("part", "c", GSI4PK="index", GSI4SK="3")] == found


async def test_a_transaction_of_more_than_a_hundred_operations_is_refused(table: Table) -> None:
    """Every table has DynamoDB's limit."""
    puts = [Put(item("part", f"{number:03}")) for number in range(101)]

    with pytest.raises(ValidationError):
        await table.transact(puts, new_token())
    assert [] == await contents(table)
    assert Committed() == await table.transact(puts[:100], new_token())
    assert 100 == len(await contents(table))


async def test_a_transaction_without_operations_raises_an_error(table: Table) -> None:
    """An empty transaction is a mistake."""
    with pytest.raises(ValidationError):
        await table.transact([], new_token())


async def test_a_transaction_with_two_operations_on_one_item_raises_an_error(table: Table) -> None:
    """The operations of a transaction have no order."""
    with pytest.raises(ValidationError):
        await table.transact([Put(item()), Check(KEY, when=(ItemAbsent(),))], new_token())

    assert [] == await contents(table)


async def test_a_transaction_repeated_with_its_token_is_applied_once(deployed: Table) -> None:
    """A transaction whose answer was lost can be sent again. Embedded tables lose no answer."""
    operations, token = [Update(KEY, add={"x": 1})], new_token()

    assert Committed() == await deployed.transact(operations, token)
    assert Committed() == await deployed.transact(operations, token)
    assert [item(x=1)] == await contents(deployed)


async def test_a_token_with_other_operations_raises_an_error(deployed: Table) -> None:
    """Nothing is written."""
    token = new_token()
    await deployed.transact([Update(KEY, add={"x": 1})], token)

    with pytest.raises(ValidationError, match="IdempotentParameterMismatch"):
        await deployed.transact([Update(KEY, add={"x": 2})], token)
    assert [item(x=1)] == await contents(deployed)
