"""What DynamoDB's answers say."""

import json
from collections.abc import Callable

import pytest

from zae_limiter.core.errors import CorruptItemError, StorageError
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Delete, Key, Page, Put, Update
from zae_limiter.tables.dynamodb.answers import (
    active,
    applied_of,
    batch_of,
    consumed_of,
    item_of,
    page_of,
    undeleted_of,
)

KEY = Key("part", "sort")
WRITTEN_KEY = {"PK": {"S": "part"}, "SK": {"S": "sort"}}
WRITTEN = {**WRITTEN_KEY, "x": {"N": "1"}}
READ = {"PK": "part", "SK": "sort", "x": 1}


def answer(**members: object) -> bytes:
    return json.dumps(members).encode()


def test_an_item_is_there_or_not() -> None:
    """An absent item is None."""
    assert READ == item_of(answer(Item=WRITTEN))
    assert item_of(answer()) is None
    assert item_of(answer(ConsumedCapacity={})) is None


def test_a_batch_may_be_answered_in_part() -> None:
    """What was left out has to be asked for again."""
    left = {"limiter": {"Keys": [WRITTEN_KEY], "ConsistentRead": False}}

    assert ([READ], [KEY]) == batch_of(answer(Responses={"limiter": [WRITTEN]}, UnprocessedKeys=left))
    assert ([], []) == batch_of(answer(Responses={"limiter": []}, UnprocessedKeys={}))
    assert ([], []) == batch_of(answer())


def test_a_batch_may_be_deleted_in_part() -> None:
    """What was left has to be asked for again."""
    left = {"limiter": [{"DeleteRequest": {"Key": WRITTEN_KEY}}]}

    assert [KEY] == undeleted_of(answer(UnprocessedItems=left))
    assert [] == undeleted_of(answer(UnprocessedItems={}))


def test_a_page_says_where_the_next_begins() -> None:
    """The last page says nothing."""
    last = {**WRITTEN_KEY, "GSI1PK": {"S": "g"}, "GSI1SK": {"S": "s"}}
    start = {"PK": "part", "SK": "sort", "GSI1PK": "g", "GSI1SK": "s"}

    assert Page([READ], start) == page_of(answer(Items=[WRITTEN], Count=1, LastEvaluatedKey=last))
    assert Page([READ], None) == page_of(answer(Items=[WRITTEN], Count=1))
    assert Page([], None) == page_of(answer(Items=[]))


def test_an_applied_write_leaves_an_item() -> None:
    """An update's is in the answer, a put's is its own, a delete's is none."""
    put = Put(READ)

    assert Applied(READ) == applied_of(Update(KEY, add={"x": 1}), answer(Attributes=WRITTEN))
    assert applied_of(put, answer()).new is put.item
    assert Applied({}) == applied_of(Delete(KEY), answer())


def test_an_update_that_only_removes_creates_nothing() -> None:
    """DynamoDB answers without attributes then."""
    assert Applied({}) == applied_of(Update(KEY, remove=("x",)), answer())


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"TableStatus": "ACTIVE"}, True),
        ({"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": [{"IndexStatus": "ACTIVE"}, {}]}, True),
        ({"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": [{"IndexStatus": "CREATING"}]}, False),
        ({"TableStatus": "CREATING"}, False),
        ({}, False),
    ],
)
def test_a_table_is_active_with_all_its_indexes(table: dict[str, object], expected: bool) -> None:
    """A table that is being made answers no queries yet."""
    assert expected is active(answer(Table=table))


def test_a_metered_call_says_what_it_has_cost() -> None:
    """One table or several, and nothing where nothing was asked."""
    cost = {"TableName": "limiter", "CapacityUnits": 2.0, "GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": 1.0}}}

    assert [cost] == consumed_of(answer(ConsumedCapacity=cost))
    assert [cost, cost] == consumed_of(answer(ConsumedCapacity=[cost, cost]))
    assert [] == consumed_of(answer())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'"text"'])
@pytest.mark.parametrize("read", [item_of, batch_of, undeleted_of, page_of, active, consumed_of])
def test_an_answer_that_is_not_dynamodbs_is_an_error(read: Callable[[bytes], object], body: bytes) -> None:
    """Something else listens at the endpoint."""
    with pytest.raises(StorageError, match="not DynamoDB's"):
        read(body)
    with pytest.raises(StorageError, match="not DynamoDB's"):
        applied_of(Update(KEY), body)


def test_an_item_that_cannot_be_read_is_an_error() -> None:
    """Somebody else wrote it."""
    with pytest.raises(CorruptItemError):
        item_of(answer(Item={**WRITTEN_KEY, "x": {"SS": ["a"]}}))
