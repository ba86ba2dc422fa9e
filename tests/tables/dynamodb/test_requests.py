"""Each read and each operation as one DynamoDB request."""

import json
from typing import Any

import pytest

from zae_limiter.core.errors import ValidationError
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
    Write,
)
from zae_limiter.tables.dynamodb.requests import Calls, DynamoDbCall

KEY = Key("part", "sort")
WRITTEN_KEY = {"PK": {"S": "part"}, "SK": {"S": "sort"}}
CALLS = Calls("limiter")
METERED = Calls("limiter", metered=True)
MEBIBYTE = 1024 * 1024


def body(call: DynamoDbCall, verb: str) -> dict[str, Any]:
    """Return the body of a request, and assert that it calls this API action."""
    assert f"DynamoDB_20120810.{verb}" == call.target

    found: dict[str, Any] = json.loads(call.body)
    return found


def item(**attributes: object) -> dict[str, object]:
    return {"PK": "part", "SK": "sort", **attributes}


def test_a_get_requests_an_item_by_its_key() -> None:
    """Consistent reads are requested explicitly."""
    expected = {"TableName": "limiter", "Key": WRITTEN_KEY}

    assert expected == body(CALLS.get(KEY), "GetItem")
    assert {**expected, "ConsistentRead": True} == body(CALLS.get(KEY, consistent=True), "GetItem")


@pytest.mark.parametrize("consistent", [False, True])
def test_a_batch_get_requests_each_key_once(consistent: bool) -> None:
    """DynamoDB refuses a batch that contains a key twice."""
    call = CALLS.batch_get([KEY, Key("part", "other"), KEY], consistent)

    keys = [WRITTEN_KEY, {"PK": {"S": "part"}, "SK": {"S": "other"}}]
    assert {"RequestItems": {"limiter": {"Keys": keys, "ConsistentRead": consistent}}} == body(call, "BatchGetItem")


def test_a_batch_delete_requests_each_key_once() -> None:
    """Batch deletes have no conditions."""
    call = CALLS.batch_delete([KEY, KEY])

    assert {"RequestItems": {"limiter": [{"DeleteRequest": {"Key": WRITTEN_KEY}}]}} == body(call, "BatchWriteItem")


def test_a_batch_of_more_keys_than_dynamodb_allows_is_refused() -> None:
    """The caller splits larger batches."""
    keys = [Key("part", str(number)) for number in range(101)]
    reads, deletes = CALLS.batch_get(keys[:100]), CALLS.batch_delete(keys[:25])

    assert 100 == len(body(reads, "BatchGetItem")["RequestItems"]["limiter"]["Keys"])
    assert 25 == len(body(deletes, "BatchWriteItem")["RequestItems"]["limiter"])
    for refused in ([], keys):
        with pytest.raises(ValidationError, match="1 to 100 keys"):
            CALLS.batch_get(refused)
    for refused in ([], keys[:26]):
        with pytest.raises(ValidationError, match="1 to 25 keys"):
            CALLS.batch_delete(refused)


@pytest.mark.parametrize("bad", ["", 1, "\ud800"])
def test_a_request_with_an_invalid_key_is_not_sent(bad: Any) -> None:
    """DynamoDB would refuse the whole request."""
    with pytest.raises(ValidationError):
        CALLS.get(Key("part", bad))
    with pytest.raises(ValidationError):
        CALLS.write(Delete(Key("part", bad)))
    for many in (CALLS.batch_get, CALLS.batch_delete):
        with pytest.raises(ValidationError):
            many([KEY, Key(bad, "sort")])
    with pytest.raises(ValidationError):
        CALLS.query(Query(bad))


@pytest.mark.parametrize(
    ("query", "condition", "values"),
    [
        (Query("part"), "#0 = :0", ["part"]),
        (Query("part", prefix=""), "#0 = :0", ["part"]),
        (Query("part", prefix="a"), "#0 = :0 AND begins_with(#1, :1)", ["part", "a"]),
        (Query("part", low="a"), "#0 = :0 AND #1 >= :1", ["part", "a"]),
        (Query("part", low="", high="b"), "#0 = :0 AND #1 <= :1", ["part", "b"]),
        (Query("part", low="a", high="b"), "#0 = :0 AND #1 BETWEEN :1 AND :2", ["part", "a", "b"]),
        (Query("part", low="b", high="a"), "#0 = :0 AND #1 < :1", ["part", "\0"]),
    ],
)
@pytest.mark.parametrize("index", [None, "GSI3"])
def test_a_query_is_rendered_with_its_partition_and_bounds(
    query: Query, condition: str, values: list[str], index: str | None
) -> None:
    """A missing bound adds no condition. Reversed bounds find nothing; DynamoDB would raise an error."""
    asked = body(CALLS.query(Query(query.pk, index, query.prefix, query.low, query.high)), "Query")

    names = {"#0": f"{index or ''}PK", "#1": f"{index or ''}SK"}
    expected = {
        "TableName": "limiter",
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names if "#1" in condition else {"#0": names["#0"]},
        "ExpressionAttributeValues": {f":{place}": {"S": value} for place, value in enumerate(values)},
        "ScanIndexForward": True,
        **({} if index is None else {"IndexName": index}),
    }
    assert expected == asked


def test_a_query_continues_after_the_last_key_of_a_page() -> None:
    """Direction, limit and start key are sent."""
    start = {"PK": "p", "SK": "s", "GSI1PK": "part", "GSI1SK": "a"}
    asked = body(CALLS.query(Query("part", "GSI1", descending=True, limit=5, start=start)), "Query")

    assert asked["ScanIndexForward"] is False
    assert 5 == asked["Limit"]
    assert {name: {"S": value} for name, value in start.items()} == asked["ExclusiveStartKey"]


def test_a_consistent_query_of_an_index_is_refused() -> None:
    """DynamoDB supports consistent queries of the table only."""
    assert body(CALLS.query(Query("part"), consistent=True), "Query")["ConsistentRead"] is True
    assert "ConsistentRead" not in body(CALLS.query(Query("part", "GSI1"), consistent=True), "Query")


@pytest.mark.parametrize(
    "query",
    [Query("part", "GSI9"), Query("part", limit=0), Query("part", prefix="a", low="a"), Query("part", low="\ud800")],
)
def test_an_invalid_query_is_not_sent(query: Query) -> None:
    """The embedded tables refuse the same queries."""
    with pytest.raises(ValidationError):
        CALLS.query(query)


@pytest.mark.parametrize(
    ("operation", "verb", "expected"),
    [
        (Put(item(x=1)), "PutItem", {"Item": {**WRITTEN_KEY, "x": {"N": "1"}}}),
        (Delete(KEY), "DeleteItem", {"Key": WRITTEN_KEY}),
        (Update(KEY), "UpdateItem", {"Key": WRITTEN_KEY, "ReturnValues": "ALL_NEW"}),
        (
            Put(item(), (ItemAbsent(),)),
            "PutItem",
            {
                "Item": WRITTEN_KEY,
                "ConditionExpression": "attribute_not_exists(#0)",
                "ExpressionAttributeNames": {"#0": "PK"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        ),
        (
            Update(KEY, set={"x": "y"}, when=(AtLeast("n", 2),)),
            "UpdateItem",
            {
                "Key": WRITTEN_KEY,
                "UpdateExpression": "SET #0 = :0",
                "ConditionExpression": "#1 >= :1",
                "ExpressionAttributeNames": {"#0": "x", "#1": "n"},
                "ExpressionAttributeValues": {":0": {"S": "y"}, ":1": {"N": "2"}},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                "ReturnValues": "ALL_NEW",
            },
        ),
    ],
)
def test_a_write_is_one_request(operation: Write, verb: str, expected: dict[str, object]) -> None:
    """An update returns the new item; a refused write returns the old one."""
    assert {"TableName": "limiter", **expected} == body(CALLS.write(operation), verb)


@pytest.mark.parametrize(
    "operation",
    [
        Put(item(SK="")),
        Put(item(GSI1PK="", GSI1SK="a")),
        Put(item(x=1.5)),
        Put(item(x=10**38 + 1)),
        Put(item(x="\ud800")),
        Update(KEY, set={"PK": "other"}),
    ],
)
def test_an_invalid_write_is_not_sent(operation: Write) -> None:
    """The error is the same on every engine."""
    with pytest.raises(ValidationError):
        CALLS.write(operation)
    with pytest.raises(ValidationError):
        CALLS.transact([operation], "token")


def test_a_transaction_contains_its_operations_and_its_token() -> None:
    """A failed condition returns the item; a success returns nothing."""
    operations: list[Operation] = [
        Put(item()),
        Update(Key("part", "b"), add={"n": 1}),
        Delete(Key("part", "c")),
        Check(Key("part", "d"), (ItemExists(),)),
    ]
    asked = body(CALLS.transact(operations, "token"), "TransactWriteItems")

    def key(sk: str) -> dict[str, object]:
        return {"TableName": "limiter", "Key": {"PK": {"S": "part"}, "SK": {"S": sk}}}

    update = {
        "UpdateExpression": "ADD #0 :0",
        "ExpressionAttributeNames": {"#0": "n"},
        "ExpressionAttributeValues": {":0": {"N": "1"}},
    }
    check = {
        "ConditionExpression": "attribute_exists(#0)",
        "ExpressionAttributeNames": {"#0": "PK"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    parts = [
        {"Put": {"TableName": "limiter", "Item": WRITTEN_KEY}},
        {"Update": {**key("b"), **update}},
        {"Delete": key("c")},
        {"ConditionCheck": {**key("d"), **check}},
    ]
    assert {"TransactItems": parts, "ClientRequestToken": "token"} == asked


@pytest.mark.parametrize(
    ("operations", "token"),
    [
        ([], "token"),
        ([Put(item(SK=str(number))) for number in range(101)], "token"),
        ([Put(item()), Delete(KEY)], "token"),
        ([Update(KEY, when=(ItemExists(),))], "token"),
        ([Put(item())], ""),
        ([Put(item())], "t" * 37),
    ],
)
def test_an_invalid_transaction_is_not_sent(operations: list[Operation], token: str) -> None:
    """No operations, too many, two on one item, an empty update, or an invalid token."""
    with pytest.raises(ValidationError):
        CALLS.transact(operations, token)


def test_a_request_that_is_too_large_is_not_sent() -> None:
    """A transaction has a lower limit than a single request."""
    large = Put(item(x="x" * (4 * MEBIBYTE)))

    assert CALLS.write(large).body
    with pytest.raises(ValidationError, match="DynamoDB accepts up to 4194304 bytes"):
        CALLS.transact([large], "token")
    with pytest.raises(ValidationError, match="DynamoDB accepts up to 16777216 bytes"):
        CALLS.write(Update(KEY, set={"x": "x" * (16 * MEBIBYTE)}))


def test_requests_of_a_metered_table_ask_for_the_consumed_capacity() -> None:
    """Every request on items asks for the capacity per index."""
    calls = [
        METERED.get(KEY),
        METERED.get(KEY, consistent=True),
        METERED.batch_get([KEY]),
        METERED.query(Query("part")),
        METERED.write(Put(item())),
        METERED.write(Update(KEY, set={"x": 1}, when=(Equals("x", 0),))),
        METERED.write(Delete(KEY)),
        METERED.transact([Put(item())], "token"),
        METERED.batch_delete([KEY]),
    ]

    assert {"INDEXES"} == {json.loads(call.body)["ReturnConsumedCapacity"] for call in calls}


def test_create_table_requests_four_key_only_indexes() -> None:
    """All keys are strings. The table is billed per request and has no stream."""
    asked = body(CALLS.create_table(), "CreateTable")

    def schema(index: str) -> list[dict[str, str]]:
        kinds = (("PK", "HASH"), ("SK", "RANGE"))
        return [{"AttributeName": index + name, "KeyType": kind} for name, kind in kinds]

    indexes = [
        {"IndexName": name, "KeySchema": schema(name), "Projection": {"ProjectionType": "KEYS_ONLY"}}
        for name in ("GSI1", "GSI2", "GSI3", "GSI4")
    ]
    names = ["PK", "SK"] + [index + part for index in ("GSI1", "GSI2", "GSI3", "GSI4") for part in ("PK", "SK")]
    assert {
        "TableName": "limiter",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
        "KeySchema": schema(""),
        "GlobalSecondaryIndexes": indexes,
        "BillingMode": "PAY_PER_REQUEST",
    } == asked


def test_describe_table_and_time_to_live_requests_name_the_table() -> None:
    """They are sent once, when a table is created."""
    expiry = {"AttributeName": "ttl", "Enabled": True}

    assert {"TableName": "limiter"} == body(CALLS.describe_table(), "DescribeTable")
    expected = {"TableName": "limiter", "TimeToLiveSpecification": expiry}
    assert expected == body(CALLS.update_time_to_live(), "UpdateTimeToLive")


def test_a_table_name_may_contain_any_text() -> None:
    """The name is encoded as JSON text."""
    name = 'my "table" %d'

    assert name == body(Calls(name).write(Update(KEY, set={"x": 1})), "UpdateItem")["TableName"]
