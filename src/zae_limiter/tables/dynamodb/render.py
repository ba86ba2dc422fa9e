"""Renders the changes and conditions of an operation as DynamoDB expressions. Pure.

Every name and value is a placeholder, so a name cannot be mistaken for a reserved word or a path. Operations have few
shapes: the same attributes, the same kinds of conditions, values of the same types. The text of a shape is rendered
once and cached. Each operation only fills in its values.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import (
    AbsentOrAtMost,
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
"""A condition without its values: the function that renders it, and the names of its attributes."""


class _Template(NamedTuple):
    """The text of a shape with format specifiers for its values, and whether it writes keys of an index.

    ``counts`` is True if all its values are integers.
    """

    text: bytes
    moves: bool
    counts: bool


def dump(value: object) -> bytes:
    """Encode a value as JSON.

    Raises:
        ValidationError: A string in it cannot be encoded as UTF-8.
    """
    try:
        return dumps(value)
    except TypeError as error:
        raise ValidationError("text", value, f"it cannot be encoded: {error}") from None


@lru_cache(_KEYS)
def key_json(key: Key) -> bytes:
    """Return the key of an item as JSON.

    Raises:
        ValidationError: One of its parts is empty or no string.
    """
    pk, sk = key
    check_key(Key(pk, sk))
    return dump({"PK": {"S": pk}, "SK": {"S": sk}})


def expressions(operation: Operation) -> bytes:
    """Return the JSON members for the changes and conditions of an operation, each with a comma before it.

    A Put has only conditions here, because its item is no expression.

    Raises:
        ValidationError: DynamoDB would reject such an operation, whether or not its conditions hold.
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
    # Without a loop in Python, because nearly all values are short numbers and every acquire has many.
    template = _template(changes, clauses, tuple(map(type, values)))
    if template.moves:
        _check_places(operation)
    if not values:
        return template.text
    short = SHORT_NUMBER
    if template.counts and -short < min(values) and max(values) < short:
        return template.text % tuple(values)
    return template.text % tuple([_filling(value) for value in values])


def _filling(value: Any) -> Any:
    """Return the text or number that is formatted into the template for a value."""
    if value.__class__ is int:
        if not -SHORT_NUMBER < value < SHORT_NUMBER:
            check_number(value, "number")
        return value
    return dump(value if value.__class__ is str else encode_value(value))


def _check_places(operation: Operation) -> None:
    """Reject keys of an index that cannot be stored."""
    if moves(operation) and type(operation) is Update:
        places({"PK": operation.key.pk, "SK": operation.key.sk, **operation.set})


@lru_cache(_SHAPES)
def _template(changes: Clause | None, clauses: tuple[Clause, ...], kinds: tuple[type, ...]) -> _Template:
    """Return the template of a shape."""
    # The types are part of the cache key, because numbers and texts have different formats.
    writing = _Writing(kinds)
    members = b""
    if changes is not None:
        members += _member("UpdateExpression", writing.changes(*changes))
    members += _member("ConditionExpression", " AND ".join(write(writing, *names) for write, *names in clauses))
    if clauses:
        members += _member("ReturnValuesOnConditionCheckFailure", "ALL_OLD")
    if writing.names:
        members += _member("ExpressionAttributeNames", {short: name for name, short in writing.names.items()})
    # Only the values are formatted, so a % in a name must be escaped.
    text = members.replace(b"%", b"%%") + writing.value_members() if kinds else members
    written = () if changes is None else (*changes[0], *changes[1], *changes[2])
    return _Template(text, not keeps_place(written), {*kinds} == {int})


def _member(name: str, value: object) -> bytes:
    """Return one member of a JSON object, empty if the value is empty."""
    return b',"%b":%b' % (name.encode(), dump(value)) if value else b""


class _Writing:
    """The placeholders that were assigned so far while a shape is rendered."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self.names: dict[str, str] = {}
        self._kinds = kinds
        self._values = 0

    def name(self, name: str) -> str:
        """Return the placeholder of a name, the same for each use."""
        if type(name) is not str or not name:
            raise ValidationError("attribute name", name, "it must be a string, not empty")
        return self.names.setdefault(name, f"#{len(self.names)}")

    def value(self) -> str:
        """Return the placeholder of the next value."""
        self._values += 1
        return f":{self._values - 1}"

    def changes(self, add: tuple[str, ...], put: tuple[str, ...], remove: tuple[str, ...]) -> str:
        """Return the expression of an update's changes."""
        for name, kind in zip(add, self._kinds, strict=False):
            if kind is not int:
                raise ValidationError(name, kind.__name__, "only numbers can be added")
        written = (*add, *put, *remove)
        if len(set(written)) < len(written):
            raise ValidationError("update", written, "an update may change each attribute only once")
        clauses = []
        if add:
            clauses.append("ADD " + ", ".join(f"{self.name(name)} {self.value()}" for name in add))
        if put:
            clauses.append("SET " + ", ".join(f"{self.name(name)} = {self.value()}" for name in put))
        if remove:
            clauses.append("REMOVE " + ", ".join(self.name(name) for name in remove))
        return " ".join(clauses)

    def value_members(self) -> bytes:
        """Return the member of the values, with a format specifier for each."""
        formats = {int: b'{"N":"%d"}', str: b'{"S":%b}'}
        members = [b'":%d":%b' % (number, formats.get(kind, b"%b")) for number, kind in enumerate(self._kinds)]
        return b',"ExpressionAttributeValues":{' + b",".join(members) + b"}"


def _always(writing: _Writing) -> str:
    """Return a condition that is always true: DynamoDB requires a condition in a transaction's check."""
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


def _absent_or_at_most(writing: _Writing, name: str) -> str:
    return f"NOT {writing.name(name)} > {writing.value()}"


def _between(writing: _Writing, name: str) -> str:
    # BETWEEN is an error if the lower bound is above the upper one. Two comparisons are then just false.
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
    def read(condition: AtLeast | AtMost | AbsentOrAtMost, values: list[Any]) -> Clause:
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
    AbsentOrAtMost: _read_bound(_absent_or_at_most),
    Between: _read_between,
    Matches: _read_matches,
    Ranges: _read_ranges,
}
"""For each kind of condition, a function that returns its clause and appends its values in the order of rendering."""
