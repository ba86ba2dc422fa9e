"""Parses DynamoDB's successful responses; `errors` parses the others. Pure."""

from collections.abc import Mapping
from typing import Any, NoReturn

from zae_limiter.core.errors import StorageError
from zae_limiter.core.outcome import Applied, Item
from zae_limiter.schema.operations import Key, Page, Put, Update, Write
from zae_limiter.tables.dynamodb.codec import StoredItem, decode_item
from zae_limiter.tables.dynamodb.json import JSONDecodeError, loads

_REMOVED = Applied({})
_NOTHING: dict[str, Any] = {}


def item_of(body: bytes) -> Item | None:
    """Return the item that was read, None if it does not exist.

    Raises:
        StorageError: The response is not from DynamoDB.
        CorruptItemError: The item contains a value that this package never writes.
    """
    found = _parsed(body).get("Item")
    return decode_item(found) if found else None


def batch_of(body: bytes) -> tuple[list[Item], list[Key]]:
    """Return the items that were read, in no order, and the keys that have to be requested again.

    Raises:
        StorageError: The response is not from DynamoDB.
        CorruptItemError: An item contains a value that this package never writes.
    """
    answer = _parsed(body)
    items: list[Item] = [_keyed(item) for found in _tables(answer, "Responses") for item in _listed(found)]
    unread = [_key(key) for wanted in _tables(answer, "UnprocessedKeys") for key in _listed(_member(wanted, "Keys"))]
    return items, unread


def undeleted_of(body: bytes) -> list[Key]:
    """Return the keys whose removal has to be requested again.

    Raises:
        StorageError: The response is not from DynamoDB.
    """
    requests = [request for left in _tables(_parsed(body), "UnprocessedItems") for request in _listed(left)]
    return [_key(_member(_member(request, "DeleteRequest"), "Key")) for request in requests]


def page_of(body: bytes) -> Page:
    """Return the page that was read.

    Raises:
        StorageError: The response is not from DynamoDB.
        CorruptItemError: An item contains a value that this package never writes.
    """
    answer = _parsed(body)
    last = answer.get("LastEvaluatedKey")
    return Page([_keyed(item) for item in _listed(answer.get("Items"))], _keyed(last) if last else None)


def applied_of(operation: Write, body: bytes) -> Applied:
    """Return the outcome of an operation that was carried out, with the new item.

    Raises:
        StorageError: The response is not from DynamoDB.
    """
    if type(operation) is Update:
        # Without attributes there is no item: an update that only removes attributes does not create one.
        attributes = _parsed(body).get("Attributes", _NOTHING)
        return Applied(StoredItem(attributes)) if type(attributes) is dict else _not_dynamodbs()
    return Applied(operation.item) if type(operation) is Put else _REMOVED


def active(body: bytes) -> bool:
    """Return whether a described table and all its indexes can be used.

    Raises:
        StorageError: The response is not from DynamoDB.
    """
    table = _object(_parsed(body).get("Table", _NOTHING))
    indexes = [_object(index) for index in _listed(table.get("GlobalSecondaryIndexes"))]
    # Some local engines omit the status of an index.
    statuses = [table.get("TableStatus"), *(index.get("IndexStatus", "ACTIVE") for index in indexes)]
    return all(status == "ACTIVE" for status in statuses)


def consumed_of(body: bytes) -> list[dict[str, Any]]:
    """Return the consumed capacity of a call per table, empty if the call was not metered.

    Raises:
        StorageError: The response is not from DynamoDB.
    """
    consumed = _parsed(body).get("ConsumedCapacity") or []
    return [_object(one) for one in (consumed if isinstance(consumed, list) else [consumed])]


def _parsed(body: bytes) -> dict[str, Any]:
    """Return the response as a dictionary."""
    try:
        answer = loads(body)
    except JSONDecodeError:
        answer = None
    return answer if type(answer) is dict else _not_dynamodbs()


def _not_dynamodbs() -> NoReturn:
    raise StorageError("the table", "the response to a call is not from DynamoDB. Check the endpoint.")


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else _not_dynamodbs()


def _member(value: Any, name: str) -> Any:
    """Return a required member of an object."""
    found = _object(value)
    return found[name] if name in found else _not_dynamodbs()


def _listed(value: Any) -> list[Any]:
    """Return the list, empty if the value is None."""
    if value is None:
        return []
    return value if type(value) is list else _not_dynamodbs()


def _tables(answer: Mapping[str, Any], member: str) -> list[Any]:
    """Return the entry of each table in a batch response; there is one table."""
    return list(_object(answer.get(member) or _NOTHING).values())


def _key(encoded: Any) -> Key:
    """Return a key, which DynamoDB repeats as it was sent."""
    parts = [_member(_member(encoded, name), "S") for name in ("PK", "SK")]
    return Key(*parts) if all(type(part) is str for part in parts) else _not_dynamodbs()


def _keyed(encoded: Any) -> dict[str, Any]:
    """Return an item that must have a key, because the caller distinguishes several items by their keys."""
    item = decode_item(encoded)
    return item if type(item.get("PK")) is str and type(item.get("SK")) is str else _not_dynamodbs()
