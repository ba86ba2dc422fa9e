"""An item as JSON text, kept in words so that a write encodes only what it changes.

A word is one attribute and its value, as they stand in the text.
"""

import json
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.schema.operations import Key, Update

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_decode = json.JSONDecoder().decode

Words = dict[str, str]

_MOST_PREFIXES = 4096


class Row(NamedTuple):
    """The text of a stored item, what it says, and its words by attribute.

    ``words`` is None for a text that came from the file, and empty for one of our own that was not taken apart: that
    pays only for an item that nobody else writes to. ``hour`` is the hour a bucket was opened in, 0 if not known.
    """

    text: str
    item: dict[str, Any]
    words: Words | None
    hour: int = 0


NO_ROW = Row("", {}, None)


def row_of_text(key: Key, text: str, hour: int = 0) -> Row:
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
    return Row(text, item, None, hour)


def row_of_item(key: Key, item: dict[str, Any], hour: int = 0) -> Row:
    """The row of a whole item.

    Raises:
        ValidationError: the item cannot be written down.
    """
    try:
        return Row(_encode(item), item, {}, hour)
    except ValueError as error:
        raise _unwritable(key, error) from error


def row_after(row: Row, update: Update, item: dict[str, Any]) -> Row:
    """The row of the item that an update has made of another's.

    Raises:
        ValidationError: the item cannot be written down.
    """
    if row.words is None:
        return row_of_item(update.key, item, row.hour)
    try:
        words = _changed(row.words, update, item) if row.words else {name: _word(name, item[name]) for name in item}
    except ValueError as error:
        raise _unwritable(update.key, error) from error
    return Row("{" + ",".join(words.values()) + "}", item, words, row.hour)


def _changed(known: Words, update: Update, item: dict[str, Any]) -> Words:
    words = {**known}
    for name in update.add:
        words[name] = f"{_PREFIXES[name]}{item[name]}"
    for name, value in update.set.items():
        words[name] = f"{_PREFIXES[name]}{value}" if type(value) is int else _word(name, value)
    for name in update.remove:
        words.pop(name, None)
    return words


def _unwritable(key: Key, error: ValueError) -> ValidationError:
    return ValidationError("item", tuple(key), f"it cannot be written down: {error}")


def _word(name: str, value: object) -> str:
    if type(value) is int:
        return f"{_PREFIXES[name]}{value}"
    return _PREFIXES[name] + (encode_basestring_ascii(value) if type(value) is str else _encode(value))


class _Prefixes(dict[str, str]):
    """How words begin, by the name of their attribute; forgotten when there are too many."""

    def __missing__(self, name: str) -> str:
        if len(self) >= _MOST_PREFIXES:
            self.clear()
        prefix = self[name] = encode_basestring_ascii(name) + ":"
        return prefix


_PREFIXES = _Prefixes()
