"""An item as JSON text, with a pattern of it so that a write encodes only the numbers it changes."""

import json
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Any, NamedTuple

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.schema.operations import Key, Update

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_decode = json.JSONDecoder().decode
_new_tuple = tuple.__new__


def _nothing(item: dict[str, Any]) -> tuple[()]:
    """The numbers of an item of which none changes."""
    return ()


class Pattern:
    """How the text of an item is made of the few numbers that writes change: what stays the same, then those.

    ``covers`` says whether all of some names are those of such numbers.
    """

    __slots__ = ("constant", "covers", "names", "numbers", "read")

    def __init__(self, names: tuple[str, ...], item: dict[str, Any]) -> None:
        self.names = names
        self.covers = frozenset(names).issuperset
        self.read = itemgetter(*names) if names else _nothing
        constant = _encode({name: value for name, value in item.items() if name not in names})[1:-1]
        self.constant = "{" + constant + ("," if constant and names else "")
        self.numbers = ",".join(encode_basestring_ascii(name).replace("%", "%%") + ":%d" for name in names) + "}"


class Row(NamedTuple):
    """The text of a stored item, what it says, its pattern, the hour a bucket was opened in, and its row id.

    ``pattern`` is None for a text that came from the file, and ``WHOLE`` for one of our own that was not taken apart:
    that pays only for an item that nobody else writes to. The hour is 0 if not known, and so is the id.
    """

    text: str
    item: dict[str, Any]
    pattern: Pattern | None
    hour: int = 0
    id: int = 0


NO_ROW = Row("", {}, None)


def row_of_text(key: Key, text: str, hour: int = 0, row_id: int = 0) -> Row:
    """The row that has a text.

    Raises:
        CorruptItemError: the text is not an item.
    """
    try:
        item = _decode(text)
    except (ValueError, TypeError) as error:
        raise CorruptItemError(f"{key.pk} / {key.sk}", str(error)) from error
    if type(item) is not dict:
        raise CorruptItemError(f"{key.pk} / {key.sk}", "it is not a JSON object")
    return Row(text, item, None, hour, row_id)


def row_of_item(key: Key, item: dict[str, Any], hour: int = 0, row_id: int = 0) -> Row:
    """The row of a whole item.

    Raises:
        ValidationError: the item cannot be written down.
    """
    try:
        return Row(_encode(item), item, WHOLE, hour, row_id)
    except ValueError as error:
        raise _unwritable(key, error) from error


def row_after(row: Row, update: Update, item: dict[str, Any]) -> Row:
    """The row of the item that an update has made of another's.

    Raises:
        ValidationError: the item cannot be written down.
    """
    _, _, pattern, hour, row_id = row
    try:
        if pattern is None:
            return Row(_encode(item), item, WHOLE, hour, row_id)
        fits = pattern is not WHOLE and not update.remove and pattern.covers(update.add) and pattern.covers(update.set)
        for value in update.set.values():
            if value.__class__ is not int:
                fits = False
        if not fits:
            pattern = _pattern_after(pattern, update, item)
        text = pattern.constant + pattern.numbers % pattern.read(item)
        return _new_tuple(Row, (text, item, pattern, hour, row_id))
    except ValueError as error:
        raise _unwritable(update.key, error) from error


def _pattern_after(pattern: Pattern, update: Update, item: dict[str, Any]) -> Pattern:
    """A pattern for updates such as this one and those before it; the names of numbers that went are forgotten."""
    names = dict.fromkeys((*pattern.names, *update.add, *update.set))
    return Pattern(tuple(name for name in names if type(item.get(name)) is int), item)


def _unwritable(key: Key, error: ValueError) -> ValidationError:
    return ValidationError("item", tuple(key), f"it cannot be written down: {error}")


WHOLE = Pattern((), {})
"""Of a text of our own that was not taken apart."""
