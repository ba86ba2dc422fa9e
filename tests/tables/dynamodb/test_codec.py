"""Items in DynamoDB's typed JSON."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.tables.dynamodb.codec import StoredItem, decode_item, encode_item, encode_value

WRITTEN = [
    ("", {"S": ""}),
    ("ümläut", {"S": "ümläut"}),
    (0, {"N": "0"}),
    (-(10**21), {"N": "-1000000000000000000000"}),
    (10**38 - 1, {"N": "9" * 38}),
    (True, {"BOOL": True}),
    (None, {"NULL": True}),
    ([1, [None]], {"L": [{"N": "1"}, {"L": [{"NULL": True}]}]}),
    ({"": {"a": False}}, {"M": {"": {"M": {"a": {"BOOL": False}}}}}),
]

plain = st.one_of(st.text(), st.integers(-(10**38) + 1, 10**38 - 1), st.booleans(), st.none())
values = st.recursive(plain, lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts), max_leaves=8)
items = st.dictionaries(st.text(min_size=1), values)


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(("value", "encoded"), WRITTEN)
def test_a_value_is_encoded_with_its_type(value: object, encoded: dict[str, object]) -> None:
    """A value is a dictionary with one entry, and numbers are strings."""
    assert encoded == encode_value(value)
    assert {"x": encoded} == encode_item({"x": value})


@given(items)
def test_an_encoded_item_decodes_to_the_same_item(item: dict[str, object]) -> None:
    """Types and digits are preserved, also through JSON."""
    travelled = json.loads(json.dumps(encode_item(item)))

    assert repr(item) == repr(decode_item(travelled))


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 60))
def test_a_number_of_at_most_38_significant_digits_is_encoded(digits: int, zeros: int) -> None:
    """Trailing zeros are not significant."""
    number = digits * 10**zeros

    assert {"N": str(number)} == encode_value(number)


@pytest.mark.parametrize(
    "number", [10**38 + 1, -(10**38) - 1, 10**126, -(10**126), pytest.param(10**5000, id="5000 digits")]
)
def test_a_number_that_would_be_rounded_is_refused(number: int) -> None:
    """DynamoDB keeps 38 digits; an error is better than wrong digits."""
    with pytest.raises(ValidationError, match="38 significant digits"):
        encode_value(number)
    with pytest.raises(ValidationError, match="Invalid x "):
        encode_item({"x": [number]})


@pytest.mark.parametrize("value", [1.5, b"", (1,), {1}, object(), [1.5], {"a": {"b": b""}}, {1: 2}])
def test_a_value_of_an_unsupported_type_is_refused(value: object) -> None:
    """The error names the attribute."""
    with pytest.raises(ValidationError, match=r"Invalid x .*a value must be"):
        encode_item({"x": value})


@pytest.mark.parametrize("name", ["", 1, None])
def test_an_attribute_name_that_is_empty_or_not_text_is_refused(name: str) -> None:
    """An attribute name is a non-empty string."""
    with pytest.raises(ValidationError, match="attribute name"):
        encode_item({name: 1})


def test_values_nested_deeper_than_32_levels_are_refused() -> None:
    """This is DynamoDB's limit; a list that contains itself exceeds it too."""
    endless: list[object] = []
    endless.append(endless)

    assert nested(32) == decode_item(encode_item({"x": nested(32)}))["x"]
    for value in (nested(33), endless):
        with pytest.raises(ValidationError, match="32 deep"):
            encode_item({"x": value})


@pytest.mark.parametrize(
    ("text", "number"), [("1E+21", 10**21), ("100.0", 100), ("-1.5e1", -15), ("0E-9", 0), ("1e125", 10**125)]
)
def test_a_whole_number_is_decoded_in_any_notation(text: str, number: int) -> None:
    """Other writers and engines may format a number differently."""
    assert {"a": "b", "x": number} == decode_item({"a": {"S": "b"}, "x": {"N": text}})
    assert [number] == decode_item({"x": {"L": [{"N": text}]}})["x"]


@pytest.mark.parametrize(
    "typed",
    [
        {"N": "1.5"},
        {"N": "Infinity"},
        {"N": "NaN"},
        {"N": "1e126"},
        {"N": "word"},
        {"N": None},
        {"S": 5, "N": "word"},
        {"SS": ["a"]},
        {"B": "AAAA"},
        {"L": [{"NS": ["1"]}]},
        {"M": {"a": {"B": "AAAA"}}},
        {"M": ["a"]},
        {},
        None,
    ],
)
def test_a_malformed_value_is_decoded_as_a_corrupt_item(typed: dict[str, object]) -> None:
    """The error names the item and the attribute."""
    with pytest.raises(CorruptItemError, match="The item part sort is damaged: attribute 'x' cannot be read"):
        decode_item({"PK": {"S": "part"}, "SK": {"S": "sort"}, "x": typed})


def test_a_string_value_that_is_not_text_is_detected_beside_an_uncommon_value() -> None:
    """One uncommon value makes the decoder check every value."""
    with pytest.raises(CorruptItemError, match="it is not text"):
        decode_item({"x": {"S": 5}, "y": {"N": "1E1"}})


typed_names = st.sampled_from(["S", "N", "BOOL", "NULL", "L", "M", "B", "SS", "x"])
odd_values = st.recursive(
    plain | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(typed_names, inner, max_size=2),
    max_leaves=10,
)


@given(odd_values | st.dictionaries(st.sampled_from(["PK", "SK", "x"]), odd_values))
def test_any_input_is_decoded_or_raises_corrupt_item_error(encoded: object) -> None:
    """No other error is raised, for a whole item or for one attribute."""
    with contextlib.suppress(CorruptItemError):
        decode_item(encoded)  # type: ignore[arg-type]  # an endpoint may answer anything
    if isinstance(encoded, dict):
        for name in encoded:
            with contextlib.suppress(CorruptItemError):
                StoredItem(encoded)[name]
