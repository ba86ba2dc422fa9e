"""Encodes an item as JSON, with a cached pattern, so that a write encodes only the numbers it changes."""

import json
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Any, NamedTuple

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.schema.operations import DirectUpdate, Key, Update

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_decode = json.JSONDecoder().decode
_new_tuple = tuple.__new__


def _nothing(item: dict[str, Any]) -> tuple[()]:
    """Return no numbers, for an item without any that change."""
    return ()


class Pattern:
    """The JSON of an item in two parts: the constant part, and a format string for the numbers that writes change.

    ``covers`` returns whether all of some names are names of such numbers. ``covered`` are the names for which ``fits``
    was last True, so that the same object need not be checked again.
    """

    __slots__ = ("constant", "covered", "covers", "names", "numbers", "read")

    def __init__(self, names: tuple[str, ...], item: dict[str, Any]) -> None:
        self.names = names
        self.covers = frozenset(names).issuperset
        self.covered: tuple[str, ...] = ()
        self.read = itemgetter(*names) if names else _nothing
        constant = _encode({name: value for name, value in item.items() if name not in names})[1:-1]
        self.constant = "{" + constant + ("," if constant and names else "")
        # A format string, so a % in a name is escaped.
        self.numbers = ",".join(encode_basestring_ascii(name).replace("%", "%%") + ":%d" for name in names) + "}"

    def fits(self, names: tuple[str, ...] | None) -> bool:
        """Return whether the numbers include all that a write changes; ``names`` is None if it removes one."""
        if names is None or not self.covers(names):
            return False
        self.covered = names
        return True


class Row(NamedTuple):
    """The text of a stored item, the item, its pattern, the hour in which a bucket was opened, and its row id.

    ``pattern`` is None for a text that was read from the file, and ``WHOLE`` for a text that this process wrote as a
    whole. A pattern pays off only from the second write in a row, if no other process writes to the item. The hour and
    the id are 0 if unknown.
    """

    text: str
    item: dict[str, Any]
    pattern: Pattern | None
    hour: int = 0
    id: int = 0


NO_ROW = Row("", {}, None)


def row_of_text(key: Key, text: str, hour: int = 0, row_id: int = 0) -> Row:
    """Decode a text.

    Raises:
        CorruptItemError: The text is not an item.
    """
    try:
        item = _decode(text)
    except (ValueError, TypeError) as error:
        raise CorruptItemError(f"{key.pk} / {key.sk}", str(error)) from error
    if type(item) is not dict:
        raise CorruptItemError(f"{key.pk} / {key.sk}", "it is not a JSON object")
    return Row(text, item, None, hour, row_id)


def row_of_item(key: Key, item: dict[str, Any], hour: int = 0, row_id: int = 0) -> Row:
    """Encode a whole item.

    Raises:
        ValidationError: The item cannot be encoded.
    """
    try:
        return Row(_encode(item), item, WHOLE, hour, row_id)
    except ValueError as error:
        raise _unwritable(key, error) from error


def row_after(row: Row, update: Update, item: dict[str, Any]) -> Row:
    """Encode ``item``, the result of an update of a row; with a pattern that fits, only its numbers are encoded.

    Raises:
        ValidationError: The item cannot be encoded.
    """
    _, _, pattern, hour, row_id = row
    try:
        if pattern is None:
            return Row(_encode(item), item, WHOLE, hour, row_id)
        if pattern is WHOLE:
            fits = False
        elif isinstance(update, DirectUpdate):
            # It writes integers only.
            fits = pattern.fits(update.written_names())
        else:
            fits = not update.remove and pattern.covers(update.add) and pattern.covers(update.set)
            for value in update.set.values():
                # Exact integers only: %d would write True as 1.
                if value.__class__ is not int:
                    fits = False
        if not fits:
            pattern = _pattern_after(pattern, update, item)
        text = pattern.constant + pattern.numbers % pattern.read(item)
        # Faster than Row(...), and every acquire runs it.
        return _new_tuple(Row, (text, item, pattern, hour, row_id))
    except ValueError as error:
        raise _unwritable(update.key, error) from error


def _pattern_after(pattern: Pattern, update: Update, item: dict[str, Any]) -> Pattern:
    """Return a pattern for updates like this one and the earlier ones, without numbers that were removed."""
    names = dict.fromkeys((*pattern.names, *update.add, *update.set))
    return Pattern(tuple(name for name in names if type(item.get(name)) is int), item)


def _unwritable(key: Key, error: ValueError) -> ValidationError:
    return ValidationError("item", tuple(key), f"it cannot be encoded: {error}")


WHOLE = Pattern((), {})
"""The pattern of a text that this process wrote as a whole."""
