"""What DynamoDB's answers say, from their bytes. Pure; what an error says is the business of ``errors``."""

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
    """The item that was read, None if there is none.

    Raises:
        StorageError: The answer is not DynamoDB's.
        CorruptItemError: The item holds what this package never writes.
    """
    found = _parsed(body).get("Item")
    return decode_item(found) if found else None


def batch_of(body: bytes) -> tuple[list[Item], list[Key]]:
    """The items that were read, in no order, and the keys that have to be asked for again.

    Raises:
        StorageError: The answer is not DynamoDB's.
        CorruptItemError: An item holds what this package never writes.
    """
    answer = _parsed(body)
    items: list[Item] = [_keyed(item) for found in _tables(answer, "Responses") for item in _listed(found)]
    unread = [_key(key) for wanted in _tables(answer, "UnprocessedKeys") for key in _listed(_member(wanted, "Keys"))]
    return items, unread


def undeleted_of(body: bytes) -> list[Key]:
    """The keys whose removal has to be asked for again.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    requests = [request for left in _tables(_parsed(body), "UnprocessedItems") for request in _listed(left)]
    return [_key(_member(_member(request, "DeleteRequest"), "Key")) for request in requests]


def page_of(body: bytes) -> Page:
    """The page that was read.

    Raises:
        StorageError: The answer is not DynamoDB's.
        CorruptItemError: An item holds what this package never writes.
    """
    answer = _parsed(body)
    last = answer.get("LastEvaluatedKey")
    return Page([_keyed(item) for item in _listed(answer.get("Items"))], _keyed(last) if last else None)


def applied_of(operation: Write, body: bytes) -> Applied:
    """What an operation that was carried out has left behind.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    if type(operation) is Update:
        # Without attributes there is no item: DynamoDB creates none for an update that only removes.
        attributes = _parsed(body).get("Attributes", _NOTHING)
        return Applied(StoredItem(attributes)) if type(attributes) is dict else _not_dynamodbs()
    return Applied(operation.item) if type(operation) is Put else _REMOVED


def active(body: bytes) -> bool:
    """Say of a described table whether it and all its indexes can be used.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    table = _object(_parsed(body).get("Table", _NOTHING))
    indexes = [_object(index) for index in _listed(table.get("GlobalSecondaryIndexes"))]
    # Local engines leave the status of an index out.
    statuses = [table.get("TableStatus"), *(index.get("IndexStatus", "ACTIVE") for index in indexes)]
    return all(status == "ACTIVE" for status in statuses)


def consumed_of(body: bytes) -> list[dict[str, Any]]:
    """What the call has cost, by table; nothing unless it was metered.

    Raises:
        StorageError: The answer is not DynamoDB's.
    """
    consumed = _parsed(body).get("ConsumedCapacity") or []
    return [_object(one) for one in (consumed if isinstance(consumed, list) else [consumed])]


def _parsed(body: bytes) -> dict[str, Any]:
    """The answer as a dictionary."""
    try:
        answer = loads(body)
    except JSONDecodeError:
        answer = None
    return answer if type(answer) is dict else _not_dynamodbs()


def _not_dynamodbs() -> NoReturn:
    raise StorageError("the table", "the answer to a call is not DynamoDB's; is the endpoint right?")


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else _not_dynamodbs()


def _member(value: Any, name: str) -> Any:
    """A member that an object must have."""
    found = _object(value)
    return found[name] if name in found else _not_dynamodbs()


def _listed(value: Any) -> list[Any]:
    """A list; None and nothing are an empty one."""
    if value is None:
        return []
    return value if type(value) is list else _not_dynamodbs()


def _tables(answer: Mapping[str, Any], member: str) -> list[Any]:
    """What a batch's answer says of each table; there is one."""
    return list(_object(answer.get(member) or _NOTHING).values())


def _key(encoded: Any) -> Key:
    """A key, which DynamoDB repeats as it was sent."""
    parts = [_member(_member(encoded, name), "S") for name in ("PK", "SK")]
    return Key(*parts) if all(type(part) is str for part in parts) else _not_dynamodbs()


def _keyed(encoded: Any) -> dict[str, Any]:
    """An item of several, which is told from the others by its key."""
    item = decode_item(encoded)
    return item if type(item.get("PK")) is str and type(item.get("SK")) is str else _not_dynamodbs()
