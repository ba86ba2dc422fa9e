"""Random operations: a table of DynamoDB and the memory table stay the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dynamodb.engines import ENGINES, EngineAbsentError
from tests.tables.engines import dynamo, new_token
from tests.tables.test_model import queries, transactions, writes
from tests.tables.test_values import kinds
from zae_limiter._async.dynamodb_table import DynamoTable
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Cancelled, Item
from zae_limiter.schema.operations import Update
from zae_limiter.tables.memory import MemoryTable

EXAMPLES = 12


def changes_each_once(operation: object) -> bool:
    """Whether DynamoDB takes an update, and makes an item by it where there is none.

    It refuses two changes of one attribute, and creates nothing by a removal alone; embedded tables mind neither.
    """
    if not isinstance(operation, Update):
        return True
    names = [*operation.add, *operation.set, *operation.remove]
    return len(names) == len(set(names)) and list(operation.remove) != names


one = writes.filter(changes_each_once)
several = transactions.filter(lambda operations: all(map(changes_each_once, operations)))


async def of_dynamodb(table: DynamoTable, step: object) -> object:
    """What a table of DynamoDB answers, every value with its type."""
    try:
        if isinstance(step, list):
            return told(await table.transact(step, new_token()))
        return told(await table.write(step))  # type: ignore[arg-type] # a write
    except ValidationError:
        return ValidationError


def of_memory(table: MemoryTable, step: object) -> object:
    """What the memory table answers, every value with its type."""
    try:
        return told(table.transact(step) if isinstance(step, list) else table.write(step))  # type: ignore[arg-type] # a write
    except ValidationError:
        return ValidationError


def told(outcome: object) -> object:
    """An outcome as values that can be compared, so that True and 1 differ."""
    if isinstance(outcome, Cancelled):
        return [told(reason) for reason in outcome.reasons]
    return type(outcome), kinds(getattr(outcome, "new", getattr(outcome, "old", None)))


def in_any_order(items: list[Item]) -> list[str]:
    """Items of a page; ties of an index are in no order that DynamoDB promises."""
    return sorted(repr(sorted(item.items())) for item in items)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES)
@given(run=st.lists(st.one_of(one, one, several), max_size=25))
async def test_dynamodb_does_what_the_memory_table_does(engine: str, run: list[object]) -> None:
    """Every outcome and every query, after any operations."""
    try:
        table = await dynamo(engine)
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    memory = MemoryTable()
    try:
        for step in run:
            assert of_memory(memory, step) == await of_dynamodb(table, step)
        for query in queries:
            assert in_any_order(memory.query(query).items) == in_any_order((await table.query(query)).items)
    finally:
        await table.close()
