"""What DynamoDB's answers say, from their bytes. Pure; what an error says is the business of ``errors``."""

from collections.abc import Mapping
from typing import Any

from zae_limiter.core.errors import StorageError
from zae_limiter.core.outcome import Applied, Item
from zae_limiter.schema.operations import Key, Page, Put, Update, Write
from zae_limiter.tables.dynamodb.codec import StoredItem, decode_item
from zae_limiter.tables.dynamodb.notation import JSONDecodeError, loads

_REMOVED = Applied({})


def item_of(body: bytes) -> Item | None:
    """The item that was read, None if there is none.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    found = _parsed(body).get("Item")
    return decode_item(found) if found else None


def batch_of(body: bytes) -> tuple[list[Item], list[Key]]:
    """The items that were read, in no order, and the keys that have to be asked for again.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    answer = _parsed(body)
    items: list[Item] = [decode_item(item) for found in _tables(answer, "Responses") for item in found]
    unread = [_key(key) for wanted in _tables(answer, "UnprocessedKeys") for key in wanted["Keys"]]
    return items, unread


def undeleted_of(body: bytes) -> list[Key]:
    """The keys whose removal has to be asked for again.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    requests = [request for left in _tables(_parsed(body), "UnprocessedItems") for request in left]
    return [_key(request["DeleteRequest"]["Key"]) for request in requests]


def page_of(body: bytes) -> Page:
    """The page that was read.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    answer = _parsed(body)
    last = answer.get("LastEvaluatedKey")
    return Page([decode_item(item) for item in answer.get("Items", ())], decode_item(last) if last else None)


def applied_of(operation: Write, body: bytes) -> Applied:
    """What an operation that was carried out has left behind.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    if type(operation) is Update:
        # Without attributes there is no item: DynamoDB creates none for an update that only removes.
        return Applied(StoredItem(_parsed(body).get("Attributes", {})))
    return Applied(operation.item) if type(operation) is Put else _REMOVED


def active(body: bytes) -> bool:
    """Say of a described table whether it and all its indexes can be used.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    table = _parsed(body).get("Table", {})
    indexes = table.get("GlobalSecondaryIndexes") or ()
    # Local engines leave the status of an index out.
    statuses = [table.get("TableStatus"), *(index.get("IndexStatus", "ACTIVE") for index in indexes)]
    return all(status == "ACTIVE" for status in statuses)


def consumed_of(body: bytes) -> list[dict[str, Any]]:
    """What the call has cost, by table; nothing unless it was metered.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    consumed = _parsed(body).get("ConsumedCapacity") or []
    return consumed if isinstance(consumed, list) else [consumed]


def _parsed(body: bytes) -> dict[str, Any]:
    """The answer as a dictionary."""
    try:
        answer = loads(body)
    except JSONDecodeError:
        answer = None
    if type(answer) is not dict:
        raise StorageError("the table", "the answer to a call is not DynamoDB's; is the endpoint right?")
    return answer


def _tables(answer: Mapping[str, Any], member: str) -> list[Any]:
    """What a batch's answer says of each table; there is one."""
    return list((answer.get(member) or {}).values())


def _key(encoded: Mapping[str, Any]) -> Key:
    return Key(encoded["PK"]["S"], encoded["SK"]["S"])
