"""Random operations: a DynamoDB table and the memory table stay equal."""

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
    """Return whether DynamoDB accepts an update, and creates an item by it if there is none.

    DynamoDB refuses two changes of one attribute, and a removal alone creates no item. Embedded
    tables have neither rule.
    """
    if not isinstance(operation, Update):
        return True
    names = [*operation.add, *operation.set, *operation.remove]
    return len(names) == len(set(names)) and list(operation.remove) != names


one = writes.filter(changes_each_once)
several = transactions.filter(lambda operations: all(map(changes_each_once, operations)))


async def of_dynamodb(table: DynamoTable, step: object) -> object:
    """Return what a DynamoDB table answers, each value with its type."""
    try:
        if isinstance(step, list):
            return outcome_values(await table.transact(step, new_token()))
        return outcome_values(await table.write(step))  # type: ignore[arg-type] # a write
    except ValidationError:
        return ValidationError


def of_memory(table: MemoryTable, step: object) -> object:
    """Return what the memory table answers, each value with its type."""
    try:
        return outcome_values(table.transact(step) if isinstance(step, list) else table.write(step))  # type: ignore[arg-type] # a write
    except ValidationError:
        return ValidationError


def outcome_values(outcome: object) -> object:
    """Return an outcome as comparable values, so that True and 1 differ."""
    if isinstance(outcome, Cancelled):
        return [outcome_values(reason) for reason in outcome.reasons]
    return type(outcome), kinds(getattr(outcome, "new", getattr(outcome, "old", None)))


def in_any_order(items: list[Item]) -> list[str]:
    """Return the items of a page in any order; DynamoDB does not order ties of an index."""
    return sorted(repr(sorted(item.items())) for item in items)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES)
@given(run=st.lists(st.one_of(one, one, several), max_size=25))
async def test_random_operations_have_equal_outcomes_on_dynamodb_and_in_memory(engine: str, run: list[object]) -> None:
    """Every outcome and every query is compared."""
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
