"""Builds the DynamoDB request for each read, each operation and the creation of the table. Pure.

A request here has a target and a body. Endpoint, time and credentials are added when it is signed.
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
"""The maximum number of items in a batch read."""

MOST_DELETED = 25
"""The maximum number of items in a batch delete."""

_MEBIBYTE = 1024 * 1024
_LARGEST = 16 * _MEBIBYTE
_LARGEST_TRANSACTION = 4 * _MEBIBYTE
_LONGEST_TOKEN = 36
_BEFORE_ALL_KEYS = "\0"
_TARGET = "DynamoDB_20120810."
_UPDATE_ITEM, _PUT_ITEM, _DELETE_ITEM = _TARGET + "UpdateItem", _TARGET + "PutItem", _TARGET + "DeleteItem"
_GET_ITEM = _TARGET + "GetItem"


class DynamoDbCall(NamedTuple):
    """The action of a request (its ``X-Amz-Target``), and its JSON body."""

    target: str
    body: bytes

    @property
    def action(self) -> str:
        """The action without the version of the API: ``UpdateItem``."""
        return self.target.rpartition(".")[2]


class Calls:
    """Builds the requests for one table; if ``metered``, responses contain the consumed capacity per index."""

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
            ValidationError: The key is invalid.
        """
        end = self._consistent_get if consistent else self._get
        return DynamoDbCall(_GET_ITEM, self._head + key_json(key) + end)

    def batch_get(self, keys: Iterable[Key], consistent: bool = False) -> DynamoDbCall:
        """Read up to 100 items; a repeated key is sent once, because DynamoDB rejects duplicates.

        Raises:
            ValidationError: There are no keys, too many, or a key is invalid.
        """
        wanted = {"Keys": _encoded_keys(keys, MOST_READ), "ConsistentRead": consistent}
        return self._call("BatchGetItem", {"RequestItems": {self._table_name: wanted}, **self._meter})

    def query(self, query: Query, consistent: bool = False) -> DynamoDbCall:
        """Read one page; ``consistent`` has no effect on an index.

        Raises:
            ValidationError: The query or its key is invalid.
        """
        range_of(query)
        index = query.index or ""
        condition, values = _key_condition(query)
        names = {"#0": f"{index}PK", "#1": f"{index}SK"}
        body: dict[str, Any] = {
            "TableName": self._table_name,
            "KeyConditionExpression": f"#0 = :0{condition}",
            "ExpressionAttributeNames": names if condition else {"#0": names["#0"]},
            "ExpressionAttributeValues": {f":{number}": {"S": value} for number, value in enumerate(values)},
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
            ValidationError: DynamoDB would reject such an operation, whether or not its conditions hold.
        """
        if type(operation) is Update:
            body = self._head + key_json(operation.key) + expressions(operation) + self._update_end
            call = DynamoDbCall(_UPDATE_ITEM, body)
        else:
            target = _PUT_ITEM if type(operation) is Put else _DELETE_ITEM
            call = DynamoDbCall(target, b"{" + self._members(operation) + self._write_end)
        return _sized(call, _LARGEST)

    def transact(self, operations: Sequence[Operation], token: str) -> DynamoDbCall:
        """Carry out up to 100 operations, all or none; if it is sent again with the same token, it runs only once.

        Raises:
            ValidationError: DynamoDB would reject such a transaction, whether or not its conditions hold.
        """
        operations = tuple(operations)
        check_transaction(operations)
        if not 1 <= len(token) <= _LONGEST_TOKEN:
            raise ValidationError("token", token, f"it must have 1 to {_LONGEST_TOKEN} characters")
        parts = [b'{"%b":{%b}}' % (_verb(operation), self._members(operation)) for operation in operations]
        body = b'{"TransactItems":[%b],"ClientRequestToken":%b%b' % (b",".join(parts), dump(token), self._write_end)
        return _sized(DynamoDbCall(_TARGET + "TransactWriteItems", body), _LARGEST_TRANSACTION)

    def batch_delete(self, keys: Iterable[Key]) -> DynamoDbCall:
        """Remove up to 25 items; a repeated key is sent once, because DynamoDB rejects duplicates.

        Raises:
            ValidationError: There are no keys, too many, or a key is invalid.
        """
        deletes = [{"DeleteRequest": {"Key": key}} for key in _encoded_keys(keys, MOST_DELETED)]
        return self._call("BatchWriteItem", {"RequestItems": {self._table_name: deletes}, **self._meter})

    def create_table(self) -> DynamoDbCall:
        """Create the table with its indexes, billed per request and without a stream."""
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
        """Read the description of the table."""
        return self._call("DescribeTable", {"TableName": self._table_name})

    def update_time_to_live(self) -> DynamoDbCall:
        """Enable the expiry of items by their ``ttl``."""
        specification = {"AttributeName": "ttl", "Enabled": True}
        return self._call("UpdateTimeToLive", {"TableName": self._table_name, "TimeToLiveSpecification": specification})

    def _members(self, operation: Operation) -> bytes:
        """Return the JSON members of an operation, for a single write or a part of a transaction."""
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
    """Reject a request that is too large for DynamoDB."""
    if len(call.body) > largest:
        raise ValidationError("request", f"{len(call.body)} bytes", f"DynamoDB accepts up to {largest} bytes")
    return call


def _verb(operation: Operation) -> bytes:
    """Return the name of an operation in a transaction."""
    if type(operation) is Update and not (operation.add or operation.set or operation.remove):
        raise ValidationError("update", operation.key, "in a transaction it must change something; use a Check")
    return {Put: b"Put", Update: b"Update", Delete: b"Delete", Check: b"ConditionCheck"}[type(operation)]


def _encoded_keys(keys: Iterable[Key], most: int) -> list[dict[str, Any]]:
    """Return the keys without duplicates, encoded."""
    different = list(dict.fromkeys(keys))
    if not 1 <= len(different) <= most:
        raise ValidationError("batch", len(different), f"it must have 1 to {most} keys")
    for key in different:
        check_key(key)
    return [{"PK": {"S": pk}, "SK": {"S": sk}} for pk, sk in different]


def _key_condition(query: Query) -> tuple[str, list[str]]:
    """Return the condition on the sort key, and all values of the query; an empty bound counts as no bound."""
    check_key(Key(query.pk, "any"))
    if query.prefix:
        return " AND begins_with(#1, :1)", [query.pk, query.prefix]
    if query.low and query.high:
        if query.low > query.high:
            # DynamoDB rejects such a range, but the embedded tables find no items. No sort key is below "\0".
            return " AND #1 < :1", [query.pk, _BEFORE_ALL_KEYS]
        return " AND #1 BETWEEN :1 AND :2", [query.pk, query.low, query.high]
    if query.low:
        return " AND #1 >= :1", [query.pk, query.low]
    if query.high:
        return " AND #1 <= :1", [query.pk, query.high]
    return "", [query.pk]


def _key_schema(index: str) -> list[dict[str, str]]:
    """Return the key schema of the table ("") or of an index."""
    return [
        {"AttributeName": f"{index}PK", "KeyType": "HASH"},
        {"AttributeName": f"{index}SK", "KeyType": "RANGE"},
    ]
