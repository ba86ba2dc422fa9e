"""The meaning of DynamoDB's responses."""

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.errors import CorruptItemError, StorageError
from zae_limiter.core.outcome import Applied
from zae_limiter.schema.operations import Delete, Key, Page, Put, Update
from zae_limiter.tables.dynamodb.responses import (
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


def test_a_get_response_has_an_item_or_none() -> None:
    """A missing item is None."""
    assert READ == item_of(answer(Item=WRITTEN))
    assert item_of(answer()) is None
    assert item_of(answer(ConsumedCapacity={})) is None


def test_a_partial_batch_get_response_returns_the_unprocessed_keys() -> None:
    """These keys have to be requested again."""
    left = {"limiter": {"Keys": [WRITTEN_KEY], "ConsistentRead": False}}

    assert ([READ], [KEY]) == batch_of(answer(Responses={"limiter": [WRITTEN]}, UnprocessedKeys=left))
    assert ([], []) == batch_of(answer(Responses={"limiter": []}, UnprocessedKeys={}))
    assert ([], []) == batch_of(answer())


def test_a_partial_batch_delete_response_returns_the_unprocessed_keys() -> None:
    """These keys have to be requested again."""
    left = {"limiter": [{"DeleteRequest": {"Key": WRITTEN_KEY}}]}

    assert [KEY] == undeleted_of(answer(UnprocessedItems=left))
    assert [] == undeleted_of(answer(UnprocessedItems={}))


def test_a_query_response_returns_where_the_next_page_starts() -> None:
    """The last page has no start key."""
    last = {**WRITTEN_KEY, "GSI1PK": {"S": "g"}, "GSI1SK": {"S": "s"}}
    start = {"PK": "part", "SK": "sort", "GSI1PK": "g", "GSI1SK": "s"}

    assert Page([READ], start) == page_of(answer(Items=[WRITTEN], Count=1, LastEvaluatedKey=last))
    assert Page([READ], None) == page_of(answer(Items=[WRITTEN], Count=1))
    assert Page([], None) == page_of(answer(Items=[]))


def test_an_applied_write_returns_the_new_item() -> None:
    """An update's item is in the response, a put's is the given one, a delete's is None."""
    put = Put(READ)

    assert Applied(READ) == applied_of(Update(KEY, add={"x": 1}), answer(Attributes=WRITTEN))
    assert applied_of(put, answer()).new is put.item
    assert Applied({}) == applied_of(Delete(KEY), answer())


def test_an_update_that_only_removes_may_leave_no_item() -> None:
    """DynamoDB then answers without attributes."""
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
def test_a_table_is_ready_when_it_and_all_indexes_are_active(table: dict[str, object], expected: bool) -> None:
    """A table that is being created answers no queries."""
    assert expected is active(answer(Table=table))


def test_a_metered_response_has_the_consumed_capacity() -> None:
    """One table or several are reported; without metering, nothing is."""
    cost = {"TableName": "limiter", "CapacityUnits": 2.0, "GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": 1.0}}}

    assert [cost] == consumed_of(answer(ConsumedCapacity=cost))
    assert [cost, cost] == consumed_of(answer(ConsumedCapacity=[cost, cost]))
    assert [] == consumed_of(answer())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'"text"'])
@pytest.mark.parametrize("read", [item_of, batch_of, undeleted_of, page_of, active, consumed_of])
def test_a_response_that_is_not_from_dynamodb_raises_an_error(read: Callable[[bytes], object], body: bytes) -> None:
    """Another server may listen at the endpoint."""
    with pytest.raises(StorageError, match="not from DynamoDB"):
        read(body)
    with pytest.raises(StorageError, match="not from DynamoDB"):
        applied_of(Update(KEY), body)


def test_a_response_with_an_unreadable_item_raises_an_error() -> None:
    """Another application may have written it."""
    with pytest.raises(CorruptItemError):
        item_of(answer(Item={**WRITTEN_KEY, "x": {"SS": ["a"]}}))


READERS = [item_of, batch_of, undeleted_of, page_of, active, consumed_of, lambda body: applied_of(Update(KEY), body)]
ODD = [5, "text", True, [5], [[]], {"PK": 5}, {"PK": {"S": 5}, "SK": {"S": 5}}, {"PK": {"S": "part"}}, {"x": {"N": {}}}]
MEMBERS = "Item Items Attributes Responses UnprocessedKeys UnprocessedItems LastEvaluatedKey Table ConsumedCapacity"

TYPES = "PK SK S N M L B SS NULL BOOL Keys DeleteRequest Key"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TYPES.split()), inner),
    max_leaves=12,
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("member", MEMBERS.split())
@pytest.mark.parametrize("read", READERS)
def test_a_response_member_of_a_wrong_type_raises_a_package_error(
    read: Callable[[bytes], object], member: str, odd: object
) -> None:
    """A wrong value in place of an item, a key or a list never raises a built-in error."""
    for body in (answer(**{member: odd}), answer(**{member: {"limiter": odd}}), answer(**{member: [odd]})):
        with contextlib.suppress(StorageError):
            read(body)


@given(st.dictionaries(st.sampled_from(MEMBERS.split()), json_values))
def test_any_json_response_is_parsed_or_raises_a_package_error(members: dict[str, object]) -> None:
    """No built-in error is raised."""
    for read in READERS:
        with contextlib.suppress(StorageError):
            read(answer(**members))


@given(st.binary(max_size=40))
def test_any_response_bytes_are_parsed_or_raise_a_package_error(body: bytes) -> None:
    """The bytes may be neither JSON nor text."""
    for read in READERS:
        with contextlib.suppress(StorageError):
            read(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"Item":' * 100_000,
        b'{"Item":{"x":' + b'{"L":[' * 900 + b"]}" * 900 + b"}}",
        b'{"Item":{"x":' + b'{"M":{"a":' * 400 + b'{"S":"a"}' + b"}}" * 400 + b"}}",
        b'{"Item":{"PK":{"S":"part"},"x":{"N":"' + b"9" * 5_000 + b'"}}}',
        b'{"Item":{"PK":{"S":"part"},"x":{"N":"1E400"}}}',
        b'{"Item":{"PK":{"S":"part"},"x":{"N":1.5}}}',
        b'{"Item":{"PK":{"S":"part"},"x":{"N":true}}}',
        b'{"Item":{"PK":{"S":"part"},"x":{"BOOL":"no"}}}',
        b'{"Item":{"PK":{"S":"part"},"x":{"S":"a","N":"x"}}}',
        b'{"Item":{"PK":{"S":"\xff"}}}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_value_that_no_table_stores_raises_a_package_error(body: bytes) -> None:
    """Too deep nesting, too large or unquoted numbers, two types in one value, or invalid UTF-8."""
    with pytest.raises(StorageError):
        item_of(body)
