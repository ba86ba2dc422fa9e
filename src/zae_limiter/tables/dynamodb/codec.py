"""Encodes and decodes items in DynamoDB's JSON, where every value is a dictionary such as ``{"N": "5"}``. Pure.

Values are str, int, bool, None, list, and dict with str keys. Numbers are exact. DynamoDB stores 38 significant digits,
so a number with more digits is rejected here, before anything could round it.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.core.outcome import Item

Encoded = dict[str, Any]
"""A value with its type, as in ``{"N": "5"}``."""

SHORT_NUMBER = 10**38
"""Numbers with a smaller magnitude have at most 38 digits."""

_DIGITS = 38
_MAGNITUDE = 126
_NUMBER_BOUND = 10**_MAGNITUDE
_DEEPEST = 32
_SHOWN_LENGTH = 80
_NULL: Encoded = {"NULL": True}
_UNKNOWN_TYPE = "a value must be str, int, bool, None, list, or dict with str keys"


def encode_item(item: Item) -> dict[str, Encoded]:
    """Encode an item.

    Raises:
        ValidationError: A value has an unsupported type, too many digits, or is nested too deeply.
    """
    encoded: dict[str, Encoded] = {}
    for name, value in item.items():
        if type(name) is not str or not name:
            raise ValidationError("attribute name", name, "it must be a string, not empty")
        encoded[name] = encode_value(value, name)
    return encoded


def encode_value(value: object, name: str = "value") -> Encoded:
    """Encode a value; ``name`` is its name in an error.

    Raises:
        ValidationError: The value has an unsupported type, too many digits, or is nested too deeply.
    """
    if type(value) is str:
        return {"S": value}
    if type(value) is int:
        check_number(value, name)
        return {"N": str(value)}
    return _encode_other(value, name, 0)


def check_number(value: int, name: str) -> None:
    """Reject a number that DynamoDB would not store exactly.

    Raises:
        ValidationError: It has more than 38 significant digits, or more than 126 with trailing zeros.
    """
    if -SHORT_NUMBER < value < SHORT_NUMBER:
        return
    if not -_NUMBER_BOUND < value < _NUMBER_BOUND or len(str(abs(value)).rstrip("0")) > _DIGITS:
        raise ValidationError(name, value, f"DynamoDB keeps {_DIGITS} significant digits of a number")


def decode_item(encoded: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Decode an item.

    Raises:
        CorruptItemError: It contains a value that this package never writes: a fraction, a set, binary data.
    """
    try:
        # Decoded inline: nearly all values are numbers and strings, and a call for each would cost more. With a base,
        # int() accepts only text, so a number that is not written as text is detected.
        return {
            name: int(typed["N"], 10) if "N" in typed else typed["S"] if "S" in typed else decode_value(typed)
            for name, typed in encoded.items()
        }
    except (ValueError, TypeError, AttributeError, KeyError):
        return _decode_one_by_one(encoded)


class StoredItem(Mapping[str, Any]):
    """An encoded item whose attributes are decoded when they are read: an acquire needs only a few of them.

    Reading a damaged attribute raises CorruptItemError, as ``decode_item`` does.
    """

    __slots__ = ("_encoded",)

    def __init__(self, encoded: Mapping[str, Mapping[str, Any]]) -> None:
        self._encoded = encoded

    def __getitem__(self, name: str) -> Any:
        typed = self._encoded[name]
        try:
            return int(typed["N"], 10)
        except (KeyError, ValueError, TypeError):
            keys = {key: self._encoded[key] for key in ("PK", "SK") if key in self._encoded}
            return decode_item({**keys, name: typed})[name]

    def __contains__(self, name: object) -> bool:
        return name in self._encoded

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __repr__(self) -> str:
        return repr(decode_item(self._encoded))


def decode_value(typed: Mapping[str, Any], depth: int = 0) -> Any:
    """Decode a value that is nested in ``depth`` lists and dictionaries.

    Raises:
        ValueError, TypeError, AttributeError: It has a type that this package does not write, or is nested too deeply.
    """
    [(kind, value)] = typed.items()
    if kind in _CONTAINERS:
        if depth >= _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        return _CONTAINERS[kind](value, depth + 1)
    decode = _DECODERS.get(kind)
    if decode is None:
        raise ValueError(f"values of type {str(kind)[:_SHOWN_LENGTH]} are not supported")
    return decode(value)


def _encode_other(value: object, name: str, depth: int) -> Encoded:
    """Encode a value that is neither text nor a number."""
    if type(value) is bool:
        return {"BOOL": value}
    if value is None:
        return _NULL
    if depth >= _DEEPEST:
        raise ValidationError(name, value, f"DynamoDB keeps values nested up to {_DEEPEST} deep")
    if type(value) is list:
        return {"L": [_encode_part(part, name, depth + 1) for part in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"M": {key: _encode_part(part, name, depth + 1) for key, part in value.items()}}
    raise ValidationError(name, value, _UNKNOWN_TYPE)


def _encode_part(value: object, name: str, depth: int) -> Encoded:
    """Encode an element of a list or dictionary."""
    return encode_value(value, name) if type(value) in (str, int) else _encode_other(value, name, depth)


def _decode_one_by_one(encoded: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Decode an item with a number in an uncommon notation, or report which attribute is damaged."""
    if type(encoded) is not dict:
        raise CorruptItemError("an item", f"it is not an object of attributes, but {type(encoded).__name__}")
    item: dict[str, Any] = {}
    for name, typed in encoded.items():
        try:
            item[name] = decode_value(typed)
        except (ValueError, TypeError, AttributeError) as error:
            shown = name[:_SHOWN_LENGTH]
            raise CorruptItemError(_place(encoded), f"attribute {shown!r} cannot be read: {error}") from error
    return item


def _place(encoded: Mapping[str, Any]) -> str:
    """Return the key of a possibly damaged item, for an error message."""
    parts = [encoded.get(key) for key in ("PK", "SK")]
    texts = [part.get("S") for part in parts if type(part) is dict]
    return " ".join(text for text in texts if type(text) is str) or "an item without a key"


def _decode_number(text: object) -> int:
    """Decode a whole number, which may be written as 1E+21 or 100.0."""
    if type(text) is not str:
        raise ValueError("a number is not written as text")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} is not a number") from None
    if not number.is_finite() or number.adjusted() >= _MAGNITUDE or number != number.to_integral_value():
        raise ValueError(f"{text[:40]} is not a whole number")
    return int(number)


def _decode_text(text: object) -> str:
    """Decode a string."""
    if type(text) is not str:
        raise ValueError("it is not text")
    return text


def _decode_flag(flag: object) -> bool:
    """Decode a boolean."""
    if type(flag) is not bool:
        raise ValueError("it is neither true nor false")
    return flag


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "S": _decode_text,
    "N": _decode_number,
    "BOOL": _decode_flag,
    "NULL": lambda _: None,
}
_CONTAINERS: dict[str, Callable[[Any, int], Any]] = {
    "L": lambda parts, depth: [decode_value(part, depth) for part in parts],
    "M": lambda parts, depth: {name: decode_value(part, depth) for name, part in parts.items()},
}
