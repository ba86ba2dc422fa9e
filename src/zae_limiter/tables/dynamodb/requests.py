"""Reads, operations and what makes a table, each as the one call of DynamoDB that carries it out. Pure.

A call is what is sent, without anything about where to, when and by whom.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import INDEXES, Check, Delete, Key, Operation, Put, Query, Update, Write
from zae_limiter.tables.dynamodb.codec import encode_item
from zae_limiter.tables.dynamodb.render import dump, expressions, key_json
from zae_limiter.tables.evaluate import check_item, check_key, check_transaction, places
from zae_limiter.tables.paging import range_of

MOST_READ = 100
"""How many items a batch reads at most."""

MOST_DELETED = 25
"""How many items a batch deletes at most."""

_MEBIBYTE = 1024 * 1024
_LARGEST = 16 * _MEBIBYTE
_LARGEST_TRANSACTION = 4 * _MEBIBYTE
_LONGEST_TOKEN = 36
_BEFORE_ALL_KEYS = "\0"
_TARGET = "DynamoDB_20120810."
_UPDATE_ITEM, _PUT_ITEM, _DELETE_ITEM = _TARGET + "UpdateItem", _TARGET + "PutItem", _TARGET + "DeleteItem"
_GET_ITEM = _TARGET + "GetItem"


class DynamoDbCall(NamedTuple):
    """What is asked of DynamoDB, and the JSON that says of what."""

    target: str
    body: bytes


class Calls:
    """The calls on one table. ``metered``: answers tell what each has cost, index by index."""

    __slots__ = ("_consistent_get", "_get", "_head", "_meter", "_table", "_table_name", "_update_end", "_write_end")

    def __init__(self, table_name: str, *, metered: bool = False) -> None:
        self._table_name = table_name
        self._meter: dict[str, Any] = {"ReturnConsumedCapacity": "INDEXES"} if metered else {}
        meter = b',"ReturnConsumedCapacity":"INDEXES"' if metered else b""
        self._table = b'"TableName":' + dump(table_name)
        self._head = b"{" + self._table + b',"Key":'
        self._get = meter + b"}"
        self._consistent_get = b',"ConsistentRead":true' + self._get
        self._update_end = b',"ReturnValues":"ALL_NEW"' + meter + b"}"
        self._write_end = meter + b"}"

    def get(self, key: Key, consistent: bool = False) -> DynamoDbCall:
        """Read an item.

        Raises:
            ValidationError: No item can have such a key.
        """
        end = self._consistent_get if consistent else self._get
        return DynamoDbCall(_GET_ITEM, self._head + key_json(key) + end)

    def batch_get(self, keys: Iterable[Key], consistent: bool = False) -> DynamoDbCall:
        """Read up to 100 items; a key that is given twice is asked for once.

        Raises:
            ValidationError: There are none, or too many, or no item can have such a key.
        """
        wanted = {"Keys": _encoded_keys(keys, MOST_READ), "ConsistentRead": consistent}
        return self._call("BatchGetItem", {"RequestItems": {self._table_name: wanted}, **self._meter})

    def query(self, query: Query, consistent: bool = False) -> DynamoDbCall:
        """Read one page. An index is never read consistently.

        Raises:
            ValidationError: The query makes no sense, or no item can have such a key.
        """
        range_of(query)
        index = query.index or ""
        condition, values = _key_condition(query)
        names = {"#0": f"{index}PK", "#1": f"{index}SK"}
        body: dict[str, Any] = {
            "TableName": self._table_name,
            "KeyConditionExpression": f"#0 = :0{condition}",
            "ExpressionAttributeNames": names if condition else {"#0": names["#0"]},
            "ExpressionAttributeValues": {f":{place}": {"S": value} for place, value in enumerate(values)},
            "ScanIndexForward": not query.descending,
            **self._meter,
        }
        if query.index is not None:
            body["IndexName"] = query.index
        elif consistent:
            body["ConsistentRead"] = True
        if query.limit is not None:
            body["Limit"] = query.limit
        if query.start is not None:
            body["ExclusiveStartKey"] = encode_item(query.start)
        return self._call("Query", body)

    def write(self, operation: Write) -> DynamoDbCall:
        """Carry out one operation.

        Raises:
            ValidationError: DynamoDB would not carry out such an operation, whatever the conditions.
        """
        if type(operation) is Update:
            body = self._head + key_json(operation.key) + expressions(operation) + self._update_end
            call = DynamoDbCall(_UPDATE_ITEM, body)
        else:
            target = _PUT_ITEM if type(operation) is Put else _DELETE_ITEM
            call = DynamoDbCall(target, b"{" + self._members(operation) + self._write_end)
        return _sized(call, _LARGEST)

    def transact(self, operations: Sequence[Operation], token: str) -> DynamoDbCall:
        """Carry out all of up to 100 operations, or none; sent again with its token it is still carried out once.

        Raises:
            ValidationError: DynamoDB would not carry out such a transaction, whatever the conditions.
        """
        operations = tuple(operations)
        check_transaction(operations)
        if not 1 <= len(token) <= _LONGEST_TOKEN:
            raise ValidationError("token", token, f"it must have 1 to {_LONGEST_TOKEN} characters")
        parts = [b'{"%b":{%b}}' % (_verb(operation), self._members(operation)) for operation in operations]
        body = b'{"TransactItems":[%b],"ClientRequestToken":%b%b' % (b",".join(parts), dump(token), self._write_end)
        return _sized(DynamoDbCall(_TARGET + "TransactWriteItems", body), _LARGEST_TRANSACTION)

    def batch_delete(self, keys: Iterable[Key]) -> DynamoDbCall:
        """Remove up to 25 items; a key that is given twice is removed once.

        Raises:
            ValidationError: There are none, or too many, or no item can have such a key.
        """
        deletes = [{"DeleteRequest": {"Key": key}} for key in _encoded_keys(keys, MOST_DELETED)]
        return self._call("BatchWriteItem", {"RequestItems": {self._table_name: deletes}, **self._meter})

    def create_table(self) -> DynamoDbCall:
        """Make the table with its indexes, paid per request and without a stream."""
        names = ["PK", "SK", *(index + part for index in INDEXES for part in ("PK", "SK"))]
        indexes = [
            {"IndexName": index, "KeySchema": _key_schema(index), "Projection": {"ProjectionType": "KEYS_ONLY"}}
            for index in INDEXES
        ]
        body = {
            "TableName": self._table_name,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
            "KeySchema": _key_schema(""),
            "GlobalSecondaryIndexes": indexes,
            "BillingMode": "PAY_PER_REQUEST",
        }
        return self._call("CreateTable", body)

    def describe_table(self) -> DynamoDbCall:
        """Ask what the table is like."""
        return self._call("DescribeTable", {"TableName": self._table_name})

    def update_time_to_live(self) -> DynamoDbCall:
        """Have items removed some time after their ``ttl``."""
        specification = {"AttributeName": "ttl", "Enabled": True}
        return self._call("UpdateTimeToLive", {"TableName": self._table_name, "TimeToLiveSpecification": specification})

    def _members(self, operation: Operation) -> bytes:
        """What a request says of an operation, alone or as a part of a transaction."""
        if type(operation) is Put:
            check_item(operation.item)
            places(operation.item)
            what = b',"Item":' + dump(encode_item(operation.item))
        else:
            what = b',"Key":' + key_json(operation.key)
        return self._table + what + expressions(operation)

    def _call(self, verb: str, body: Mapping[str, Any]) -> DynamoDbCall:
        return _sized(DynamoDbCall(_TARGET + verb, dump(body)), _LARGEST)


def _sized(call: DynamoDbCall, largest: int) -> DynamoDbCall:
    """Refuse a call that DynamoDB would not read to its end."""
    if len(call.body) > largest:
        raise ValidationError("request", f"{len(call.body)} bytes", f"DynamoDB takes up to {largest} bytes at once")
    return call


def _verb(operation: Operation) -> bytes:
    """What a transaction calls an operation."""
    if type(operation) is Update and not (operation.add or operation.set or operation.remove):
        raise ValidationError("update", operation.key, "in a transaction it must change something; use a Check")
    return {Put: b"Put", Update: b"Update", Delete: b"Delete", Check: b"ConditionCheck"}[type(operation)]


def _encoded_keys(keys: Iterable[Key], most: int) -> list[dict[str, Any]]:
    """Different keys, written down."""
    different = list(dict.fromkeys(keys))
    if not 1 <= len(different) <= most:
        raise ValidationError("batch", len(different), f"it must have 1 to {most} keys")
    for key in different:
        check_key(key)
    return [{"PK": {"S": pk}, "SK": {"S": sk}} for pk, sk in different]


def _key_condition(query: Query) -> tuple[str, list[str]]:
    """What follows the partition in a query's condition, and all values of the condition; an empty bound is none."""
    check_key(Key(query.pk, "any"))
    if query.prefix:
        return " AND begins_with(#1, :1)", [query.pk, query.prefix]
    if query.low and query.high:
        if query.low > query.high:
            # DynamoDB takes this for an error; it is a range without items.
            return " AND #1 < :1", [query.pk, _BEFORE_ALL_KEYS]
        return " AND #1 BETWEEN :1 AND :2", [query.pk, query.low, query.high]
    if query.low:
        return " AND #1 >= :1", [query.pk, query.low]
    if query.high:
        return " AND #1 <= :1", [query.pk, query.high]
    return "", [query.pk]


def _key_schema(index: str) -> list[dict[str, str]]:
    """The keys of the table or of one of its indexes."""
    return [
        {"AttributeName": f"{index}PK", "KeyType": "HASH"},
        {"AttributeName": f"{index}SK", "KeyType": "RANGE"},
    ]
