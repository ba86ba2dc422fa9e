"""What DynamoDB would do: an operation applied to an item, and the places an item has in the table's orders.

Pure. Stored items are never changed: a write makes a new dictionary, so an item once answered stays as it was.
"""

from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Item, Missing, Refused
from zae_limiter.schema.operations import INDEXES, Delete, Key, Operation, Put, Update

NO_ITEM: dict[str, Any] = {}
"""The absent item. Never changed."""

MAX_TRANSACTION = 100
_MISSING = Missing()
_KEYS = ("PK", "SK")
_INDEX_KEYS = tuple((index, index + "PK", index + "SK") for index in INDEXES)
KEY_ATTRIBUTES = frozenset(_KEYS).union(*((pk, sk) for _, pk, sk in _INDEX_KEYS))
"""The attributes an item is found by, in the table or in an index."""

_PLAIN = frozenset((str, int, bool, type(None)))


IndexEntry = tuple[str, str, str]
"""A place of an item: the order (an index, or ``""`` for the table itself), the partition, and the sort key.

A plain tuple: once the garbage collector has seen it, it is not tracked any more, as a NamedTuple would be.
"""


def apply(operation: Operation, old: Item) -> dict[str, Any] | Refused | Missing:
    """Answer with the item as the operation leaves it (empty: there is none), or with why it was refused.

    Raises:
        ValidationError: DynamoDB would not carry out such an operation, whatever the conditions.
    """
    for condition in operation.when:
        if not condition.holds(old):
            return Refused(old) if old else _MISSING
    if type(operation) is not Update:
        return _replaced(operation, old)
    new = {**old} if old else _created(operation.key)
    try:
        for name, amount in operation.add.items():
            before = new[name]
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
    """Add to the numbers of an item that lacks some of them: they count as zero."""
    for name, amount in operation.add.items():
        before = old.get(name, 0)
        if type(before) is not int or type(amount) is not int:
            raise ValidationError(name, before if type(amount) is int else amount, "only numbers can be added")
        new[name] = before + amount


def _replaced(operation: Operation, old: Item) -> dict[str, Any]:
    """The item after an operation that looks at nothing of the old one but its conditions, which hold."""
    if type(operation) is Put:
        check_item(operation.item)
        return dict(operation.item)
    return NO_ITEM if type(operation) is Delete else dict(old)


def _created(key: Key) -> dict[str, Any]:
    """An item that has nothing but its key."""
    check_key(key)
    return {"PK": key.pk, "SK": key.sk}


keeps_place = KEY_ATTRIBUTES.isdisjoint
"""Says of the names of attributes that are written whether the item stays where it stands."""


def moves(operation: Operation) -> bool:
    """Say whether an operation may change where its item stands, if there is one.

    Raises:
        ValidationError: an update would change the item's own key.
    """
    if type(operation) is not Update:
        return True
    if keeps_place(operation.set) and (not operation.remove or keeps_place(operation.remove)):
        return False
    for name in _KEYS:
        if name in operation.set or name in operation.remove:
            raise ValidationError(name, operation.key, "an update cannot change the key of its item")
    return True


def places(item: Item) -> tuple[IndexEntry, ...]:
    """Where an item stands: in the table, and in every index both of whose keys it has.

    Raises:
        ValidationError: an index key is not a string, or empty.
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
    """Refuse a transaction that DynamoDB would not begin.

    Raises:
        ValidationError: it is empty, larger than 100, or has two operations on one item.
    """
    if not 1 <= len(operations) <= MAX_TRANSACTION:
        raise ValidationError("transaction", len(operations), f"it must have 1 to {MAX_TRANSACTION} operations")
    keys: set[Key] = set()
    for operation in operations:
        if operation.key in keys:
            raise ValidationError("transaction", operation.key, "it must not have two operations on one item")
        keys.add(operation.key)


def check_item(item: Item) -> None:
    """Refuse an item that cannot be stored.

    Raises:
        ValidationError: its key or one of its values is not of a type the table keeps.
    """
    check_key(Key(item.get("PK", ""), item.get("SK", "")))
    for name, value in item.items():
        if type(name) is not str or not name:
            raise ValidationError("attribute name", name, "it must be a string, not empty")
        _check_value(name, value)


def check_key(key: Key) -> None:
    """Refuse a key that cannot be stored.

    Raises:
        ValidationError: one of its parts is not a string, or empty.
    """
    _check_key_string("PK", key.pk)
    _check_key_string("SK", key.sk)


def _check_key_string(name: str, value: object) -> None:
    """Refuse what cannot be part of a key."""
    if type(value) is not str or not value:
        raise ValidationError(name, value, "a key must be a string, not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(name, value, "a key must be text that UTF-8 can write") from None


def _check_value(name: str, value: object) -> None:
    """Refuse a value that the table does not keep: floats, bytes, sets, keys that are no strings."""
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
