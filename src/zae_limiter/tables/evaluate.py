"""Applies an operation to an item as DynamoDB would, and finds the index entries of an item. Pure.

A write makes a new dictionary and never changes the old one. An item that was returned to a caller stays valid.
"""

from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Item, Missing, Refused
from zae_limiter.schema.operations import INDEXES, Delete, DirectUpdate, Key, Operation, Put, Update

NO_ITEM: dict[str, Any] = {}
"""The item that does not exist; it is never changed."""

MAX_TRANSACTION = 100
_MISSING = Missing()
_KEYS = ("PK", "SK")
_INDEX_KEYS = tuple((index, index + "PK", index + "SK") for index in INDEXES)
KEY_ATTRIBUTES = frozenset(_KEYS).union(*((pk, sk) for _, pk, sk in _INDEX_KEYS))
"""The key attributes of the table and of its indexes."""

_PLAIN = frozenset((str, int, bool, type(None)))


IndexEntry = tuple[str, str, str]
"""The position of an item: an index ("" for the table itself), a partition of it, and a sort key.

A plain tuple: once the garbage collector has seen it, it is not tracked any more, as a NamedTuple would be.
"""


def apply(operation: Operation, old: Item) -> dict[str, Any] | Refused | Missing:
    """Return the item after an operation (empty if it was deleted), or why the operation is refused.

    Raises:
        ValidationError: DynamoDB would reject such an operation, whether or not its conditions hold.
    """
    if isinstance(operation, DirectUpdate):
        # The usual write of an acquire. Its conditions are evaluated one by one only if it may be refused.
        taken = operation.applied_to(old)
        if taken is not None:
            return taken
    for condition in operation.when:
        if not condition.holds(old):
            return Refused(old) if old else _MISSING
    return _updated(operation, old) if isinstance(operation, Update) else _replaced(operation, old)


def _updated(operation: Update, old: Item) -> dict[str, Any]:
    """Return the item after an update whose conditions hold."""
    new = {**old} if old else _created(operation.key)
    # The usual case first: every attribute exists and is an integer. Anything else takes the slow way.
    try:
        for name, amount in operation.add.items():
            before = new[name]
            # Exact types: bool is a subclass of int, but DynamoDB does not add to it.
            if before.__class__ is not int or amount.__class__ is not int:
                raise KeyError
            new[name] = before + amount
    except KeyError:
        _add_one_by_one(operation, old, new)
    for name, value in operation.set.items():
        if value.__class__ is not int and value.__class__ is not str:
            _check_value(name, value)
        new[name] = value
    for name in operation.remove:
        new.pop(name, None)
    return new


def _add_one_by_one(operation: Update, old: Item, new: dict[str, Any]) -> None:
    """Add to the numbers of an item; a missing number counts as zero."""
    for name, amount in operation.add.items():
        before = old.get(name, 0)
        if type(before) is not int or type(amount) is not int:
            raise ValidationError(name, before if type(amount) is int else amount, "only numbers can be added")
        new[name] = before + amount


def _replaced(operation: Operation, old: Item) -> dict[str, Any]:
    """Return the item after a put, a delete or a check whose conditions hold."""
    if type(operation) is Put:
        check_item(operation.item)
        return dict(operation.item)
    return NO_ITEM if type(operation) is Delete else dict(old)


def _created(key: Key) -> dict[str, Any]:
    """Return an item with nothing but its key."""
    check_key(key)
    return {"PK": key.pk, "SK": key.sk}


keeps_place = KEY_ATTRIBUTES.isdisjoint
"""Return whether none of the written attributes is a key, so that the index entries of the item stay the same."""


def moves(operation: Operation) -> bool:
    """Return whether an operation may change the index entries of its item.

    Raises:
        ValidationError: An update would change the primary key of its item.
    """
    if not isinstance(operation, Update):
        return True
    if keeps_place(operation.set) and (not operation.remove or keeps_place(operation.remove)):
        return False
    for name in _KEYS:
        if name in operation.set or name in operation.remove:
            raise ValidationError(name, operation.key, "an update cannot change the key of its item")
    return True


def places(item: Item) -> tuple[IndexEntry, ...]:
    """Return the entries of an item: one in the table, and one in every index if it has both keys of the index.

    Raises:
        ValidationError: A key of an index is empty or no string.
    """
    if not item:
        return ()
    found = [("", item["PK"], item["SK"])]
    for index, pk_name, sk_name in _INDEX_KEYS:
        if pk_name in item or sk_name in item:
            for name in (pk_name, sk_name):
                if name in item:
                    _check_key_string(name, item[name])
            if pk_name in item and sk_name in item:
                found.append((index, item[pk_name], item[sk_name]))
    return tuple(found)


def check_transaction(operations: tuple[Operation, ...]) -> None:
    """Reject a transaction that DynamoDB would not begin.

    Raises:
        ValidationError: It is empty, has more than 100 operations, or two operations on one item.
    """
    if not 1 <= len(operations) <= MAX_TRANSACTION:
        raise ValidationError("transaction", len(operations), f"it must have 1 to {MAX_TRANSACTION} operations")
    keys: set[Key] = set()
    for operation in operations:
        if operation.key in keys:
            raise ValidationError("transaction", operation.key, "it must not have two operations on one item")
        keys.add(operation.key)


def check_item(item: Item) -> None:
    """Reject an item that cannot be stored.

    Raises:
        ValidationError: Its key or one of its values has a type that the table does not store.
    """
    check_key(Key(item.get("PK", ""), item.get("SK", "")))
    for name, value in item.items():
        if type(name) is not str or not name:
            raise ValidationError("attribute name", name, "it must be a string, not empty")
        _check_value(name, value)


def check_key(key: Key) -> None:
    """Reject a key that cannot be stored.

    Raises:
        ValidationError: One of its parts is empty or no string.
    """
    _check_key_string("PK", key.pk)
    _check_key_string("SK", key.sk)


def _check_key_string(name: str, value: object) -> None:
    """Reject a value that cannot be part of a key."""
    if type(value) is not str or not value:
        raise ValidationError(name, value, "a key must be a string, not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(name, value, "a key must be text that can be encoded as UTF-8") from None


def _check_value(name: str, value: object) -> None:
    """Reject a value that the table does not store: floats, bytes, sets, dictionaries with other keys than strings."""
    # A list and not recursion: a deeply nested value would exceed Python's recursion limit.
    pending = [value]
    while pending:
        found = pending.pop()
        if type(found) in _PLAIN:
            continue
        if type(found) is list:
            pending.extend(found)
        elif type(found) is dict and all(type(key) is str for key in found):
            pending.extend(found.values())
        else:
            raise ValidationError(name, found, "a value must be str, int, bool, None, list, or dict with str keys")
