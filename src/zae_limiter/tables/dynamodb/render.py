"""Conditions and changes of an operation as DynamoDB's expressions, ready to stand in a request. Pure.

Every name and value in an expression is a placeholder, so that no name is a reserved word or a path. Operations come
in few shapes: the same attributes, the same kinds of condition, values of the same types. The text of a shape is made
once; what is left to do per operation is to fill in its values.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import (
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Check,
    Condition,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Matches,
    Operation,
    Ranges,
    Update,
)
from zae_limiter.tables.dynamodb.codec import SHORT_NUMBER, check_number, encode_value
from zae_limiter.tables.dynamodb.json import dumps
from zae_limiter.tables.evaluate import check_key, keeps_place, moves, places

_SHAPES = 2048
_KEYS = 4096

Clause = tuple[Any, ...]
"""What a condition is without its values: what writes it, and the names it speaks of."""


class _Template(NamedTuple):
    """The text of a shape with gaps for its values, and whether it writes keys of an index."""

    text: bytes
    moves: bool


def dump(value: object) -> bytes:
    """Write JSON.

    Raises:
        ValidationError: A string in it cannot be written as UTF-8.
    """
    try:
        return dumps(value)
    except TypeError as error:
        raise ValidationError("text", value, f"it cannot be written: {error}") from None


@lru_cache(_KEYS)
def key_json(key: Key) -> bytes:
    """The key of an item, as JSON.

    Raises:
        ValidationError: One of its parts is not a string, or empty.
    """
    pk, sk = key
    check_key(Key(pk, sk))
    return dump({"PK": {"S": pk}, "SK": {"S": sk}})


def expressions(operation: Operation) -> bytes:
    """The members of a request that say what an operation changes and when, each with a comma before it.

    Of a Put that is only when: its item is not an expression.

    Raises:
        ValidationError: DynamoDB would not carry out such an operation, whatever the conditions.
    """
    values: list[Any] = []
    changes: Clause | None = None
    if type(operation) is Update:
        values += operation.add.values()
        values += operation.set.values()
        changes = (tuple(operation.add), tuple(operation.set), operation.remove)
    clauses = tuple([_READERS[condition.__class__](condition, values) for condition in operation.when])
    if not clauses and type(operation) is Check:
        clauses = ((_always,),)
    template = _template(changes, clauses, tuple([value.__class__ for value in values]))
    if template.moves:
        _check_places(operation)
    if not values:
        return template.text
    # Nearly all are numbers of ordinary size, and a call for each would cost more than writing it.
    short = SHORT_NUMBER
    return template.text % tuple(
        [value if value.__class__ is int and -short < value < short else _filling(value) for value in values]
    )


def _filling(value: Any) -> Any:
    """What fills the gap of a value."""
    if value.__class__ is int:
        if not -SHORT_NUMBER < value < SHORT_NUMBER:
            check_number(value, "number")
        return value
    return dump(value if value.__class__ is str else encode_value(value))


def _check_places(operation: Operation) -> None:
    """Refuse keys of an index that cannot be stored."""
    if moves(operation) and type(operation) is Update:
        places({"PK": operation.key.pk, "SK": operation.key.sk, **operation.set})


@lru_cache(_SHAPES)
def _template(changes: Clause | None, clauses: tuple[Clause, ...], kinds: tuple[type, ...]) -> _Template:
    """The text of all operations of a shape."""
    writing = _Writing(kinds)
    members = b""
    if changes is not None:
        members += _member("UpdateExpression", writing.changes(*changes))
    members += _member("ConditionExpression", " AND ".join(write(writing, *names) for write, *names in clauses))
    if clauses:
        members += _member("ReturnValuesOnConditionCheckFailure", "ALL_OLD")
    if writing.names:
        members += _member("ExpressionAttributeNames", {short: name for name, short in writing.names.items()})
    # What is filled in is the rest of the text, so a % in a name must not look like a gap.
    text = members.replace(b"%", b"%%") + writing.gaps() if kinds else members
    written = () if changes is None else (*changes[0], *changes[1], *changes[2])
    return _Template(text, not keeps_place(written))


def _member(name: str, value: object) -> bytes:
    """One member of a JSON object; nothing for an empty text."""
    return b',"%b":%b' % (name.encode(), dump(value)) if value else b""


class _Writing:
    """A shape in the course of being written: which placeholders have been given out."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self.names: dict[str, str] = {}
        self._kinds = kinds
        self._values = 0

    def name(self, name: str) -> str:
        """The placeholder of a name, the same wherever it stands."""
        if type(name) is not str or not name:
            raise ValidationError("attribute name", name, "it must be a string, not empty")
        return self.names.setdefault(name, f"#{len(self.names)}")

    def value(self) -> str:
        """The placeholder of the next value."""
        self._values += 1
        return f":{self._values - 1}"

    def changes(self, add: tuple[str, ...], put: tuple[str, ...], remove: tuple[str, ...]) -> str:
        """The changes of an update."""
        for name, kind in zip(add, self._kinds, strict=False):
            if kind is not int:
                raise ValidationError(name, kind.__name__, "only numbers can be added")
        written = (*add, *put, *remove)
        if len(set(written)) < len(written):
            raise ValidationError("update", written, "DynamoDB changes an attribute once in an update")
        clauses = []
        if add:
            clauses.append("ADD " + ", ".join(f"{self.name(name)} {self.value()}" for name in add))
        if put:
            clauses.append("SET " + ", ".join(f"{self.name(name)} = {self.value()}" for name in put))
        if remove:
            clauses.append("REMOVE " + ", ".join(self.name(name) for name in remove))
        return " ".join(clauses)

    def gaps(self) -> bytes:
        """The values, with a gap for each."""
        gaps = {int: b'{"N":"%d"}', str: b'{"S":%b}'}
        members = [b'":%d":%b' % (place, gaps.get(kind, b"%b")) for place, kind in enumerate(self._kinds)]
        return b',"ExpressionAttributeValues":{' + b",".join(members) + b"}"


def _always(writing: _Writing) -> str:
    """What is true of every item and of none: a transaction's check must have a condition."""
    key = writing.name("PK")
    return f"(attribute_exists({key}) OR attribute_not_exists({key}))"


def _exists(writing: _Writing, name: str) -> str:
    return f"attribute_exists({writing.name(name)})"


def _absent(writing: _Writing, name: str) -> str:
    return f"attribute_not_exists({writing.name(name)})"


def _differs(writing: _Writing, name: str) -> str:
    short = writing.name(name)
    return f"(attribute_not_exists({short}) OR {short} <> {writing.value()})"


def _equal(writing: _Writing, *names: str) -> str:
    return " AND ".join(f"{writing.name(name)} = {writing.value()}" for name in names)


def _at_least(writing: _Writing, name: str) -> str:
    return f"{writing.name(name)} >= {writing.value()}"


def _at_most(writing: _Writing, name: str) -> str:
    return f"{writing.name(name)} <= {writing.value()}"


def _between(writing: _Writing, name: str) -> str:
    # BETWEEN would be an error, not false, where the bounds are the wrong way round.
    return f"{_at_least(writing, name)} AND {_at_most(writing, name)}"


def _ranges(writing: _Writing, *names_and_ends: Any) -> str:
    if not names_and_ends:
        return _always(writing)
    pairs = zip(names_and_ends[::2], names_and_ends[1::2], strict=True)
    return " AND ".join(_at_least(writing, name) if endless else _between(writing, name) for name, endless in pairs)


def _read_value(write: Callable[..., str]) -> Callable[[Any, list[Any]], Clause]:
    def read(condition: Equals | Differs, values: list[Any]) -> Clause:
        values.append(condition.value)
        return (write, condition.name)

    return read


def _read_bound(write: Callable[..., str]) -> Callable[[Any, list[Any]], Clause]:
    def read(condition: AtLeast | AtMost, values: list[Any]) -> Clause:
        values.append(condition.bound)
        return (write, condition.name)

    return read


def _read_between(condition: Between, values: list[Any]) -> Clause:
    values += (condition.low, condition.high)
    return (_between, condition.name)


def _read_matches(condition: Matches, values: list[Any]) -> Clause:
    values += condition.values
    return (_equal, *condition.names)


def _read_ranges(condition: Ranges, values: list[Any]) -> Clause:
    clause: list[Any] = [_ranges]
    for name, low, high in condition.ranges:
        values.append(low)
        if high is not None:
            values.append(high)
        clause += (name, high is None)
    return tuple(clause)


_READERS: dict[type[Condition], Callable[[Any, list[Any]], Clause]] = {
    ItemExists: lambda condition, values: (_exists, "PK"),
    ItemAbsent: lambda condition, values: (_absent, "PK"),
    AttributeExists: lambda condition, values: (_exists, condition.name),
    AttributeAbsent: lambda condition, values: (_absent, condition.name),
    Equals: _read_value(_equal),
    Differs: _read_value(_differs),
    AtLeast: _read_bound(_at_least),
    AtMost: _read_bound(_at_most),
    Between: _read_between,
    Matches: _read_matches,
    Ranges: _read_ranges,
}
"""Says of each kind of condition how it is written, and adds its values to a list in the order of the writing."""
