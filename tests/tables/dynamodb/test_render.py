"""Rendered expressions mean the same as the operations they are made from."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.dynamodb.expressions import Request
from zae_limiter.core.errors import ValidationError
from zae_limiter.schema.operations import (
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Check,
    Condition,
    Delete,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Matches,
    Operation,
    Put,
    Ranges,
    Update,
)
from zae_limiter.tables.dynamodb.render import dump, expressions, key_json
from zae_limiter.tables.evaluate import apply

KEY = Key("part", "sort")
# Reserved words, paths, placeholders and gaps: names that must not be interpreted.
NAMES = ["n", "size", "a.b", "l[0]", "#0", ":0", "x%d", "%b%%", "b_rpm_tk"]

numbers = st.one_of(st.integers(-2, 2), st.integers(10**38 - 2, 10**38 - 1))
plain = st.one_of(numbers, st.sampled_from(["", "x", "%d", 'quote " and \\', "漢"]), st.booleans(), st.none())
values = st.one_of(plain, st.lists(plain, max_size=2), st.dictionaries(st.sampled_from(["k", ""]), plain, max_size=1))
names = st.sampled_from(NAMES)
ranges = st.lists(st.tuples(names, numbers, st.none() | numbers), max_size=3)
conditions = st.one_of(
    st.builds(ItemExists),
    st.builds(ItemAbsent),
    *(st.builds(kind, names) for kind in (AttributeExists, AttributeAbsent)),
    *(st.builds(kind, names, plain) for kind in (Equals, Differs)),
    *(st.builds(kind, names, numbers) for kind in (AtLeast, AtMost)),
    st.builds(Between, names, numbers, numbers),
    st.builds(
        lambda pairs: Matches(tuple(name for name, _ in pairs), tuple(value for _, value in pairs)),
        st.lists(st.tuples(names, numbers | st.just("x")), min_size=2, max_size=3),
    ),
    st.builds(Ranges, ranges),
)
whens = st.lists(conditions, max_size=4).map(tuple)
items: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}), st.dictionaries(names, values).map(lambda attributes: {"PK": "part", "SK": "sort", **attributes})
)
updates = st.builds(
    lambda order, add, put, removed, when: Update(
        KEY,
        dict(zip(order, add, strict=False)),
        dict(zip(order[3:], put, strict=False)),
        tuple(order[6 : 6 + removed]),
        when,
    ),
    st.permutations(NAMES),
    st.lists(numbers, max_size=3),
    st.lists(values, max_size=3),
    st.integers(0, 3),
    whens,
)


def members(operation: Operation) -> dict[str, Any]:
    """Return the members of the request, as DynamoDB parses them."""
    found: dict[str, Any] = json.loads(b'{"":0' + expressions(operation) + b"}")
    return found


@given(whens, items)
def test_a_rendered_condition_holds_if_the_condition_holds(when: tuple[Condition, ...], item: dict[str, Any]) -> None:
    """Items may lack attributes or have other types, and bounds may be reversed."""
    expected = all(condition.holds(item) for condition in when)

    for operation in (
        Put({"PK": "part", "SK": "sort"}, when),
        Delete(KEY, when),
        Check(KEY, when),
        Update(KEY, when=when),
    ):
        request = Request(members(operation), item)
        defined, used = request.placeholders()
        assert expected is request.holds()
        assert defined == used


@given(updates, items)
def test_a_rendered_update_makes_the_same_changes_as_the_update(update: Update, item: dict[str, Any]) -> None:
    """Adding, setting and removing result in the same item, and every placeholder is used."""
    item = {name: value for name, value in item.items() if name not in update.add or type(value) is int}
    request = Request(members(update), item or {"PK": "part", "SK": "sort"})
    defined, used = request.placeholders()

    unconditional = Update(update.key, update.add, update.set, update.remove)
    assert repr(sorted(apply(unconditional, item).items())) == repr(sorted(request.updated().items()))  # type: ignore[union-attr] # nothing refuses it
    assert defined == used


@given(updates)
def test_a_conditional_write_requests_the_stored_item_on_failure(update: Update) -> None:
    """A write without a condition is never refused."""
    asked = members(update).get("ReturnValuesOnConditionCheckFailure")

    assert ("ALL_OLD" if update.when else None) == asked


def test_a_take_is_rendered_as_one_conditional_update() -> None:
    """A complete example."""
    take = Update(
        KEY,
        add={"b_wcu_tc": 1, "b_rpm_tc": 5, "b_rpm_tk": -5},
        set={"op": 7},
        remove=("ttl",),
        when=(Matches(("rf", "cv"), (3, "s")), Ranges([("b_rpm_tk", 5, 9), ("b_tpm_tk", 0, None)])),
    )
    names = ["b_wcu_tc", "b_rpm_tc", "b_rpm_tk", "op", "ttl", "rf", "cv", "b_tpm_tk"]
    values: list[dict[str, str]] = [{"N": "1"}, {"N": "5"}, {"N": "-5"}, {"N": "7"}, {"N": "3"}, {"S": "s"}]
    values += [{"N": "5"}, {"N": "9"}, {"N": "0"}]

    assert {
        "": 0,
        "UpdateExpression": "ADD #0 :0, #1 :1, #2 :2 SET #3 = :3 REMOVE #4",
        "ConditionExpression": "#5 = :4 AND #6 = :5 AND #2 >= :6 AND #2 <= :7 AND #7 >= :8",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ExpressionAttributeNames": {f"#{place}": name for place, name in enumerate(names)},
        "ExpressionAttributeValues": {f":{place}": value for place, value in enumerate(values)},
    } == members(take)


def test_a_differs_condition_holds_for_an_absent_attribute() -> None:
    """This is the condition of a repeated write."""
    rendered = members(Delete(KEY, (Differs("op", 7), ItemExists())))

    expected = "(attribute_not_exists(#0) OR #0 <> :0) AND attribute_exists(#1)"
    assert expected == rendered["ConditionExpression"]
    assert {"#0": "op", "#1": "PK"} == rendered["ExpressionAttributeNames"]


def test_an_operation_without_conditions_has_no_expressions() -> None:
    """DynamoDB refuses empty expressions, names and values."""
    assert b"" == expressions(Put({"PK": "part", "SK": "sort", "x": 1}))
    assert b"" == expressions(Delete(KEY))
    assert b"" == expressions(Update(KEY))


@pytest.mark.parametrize("when", [(), (Ranges([]),)])
def test_a_check_without_conditions_has_one_that_always_holds(when: tuple[Condition, ...]) -> None:
    """DynamoDB refuses a check without a condition."""
    rendered = members(Check(KEY, when))

    assert "(attribute_exists(#0) OR attribute_not_exists(#0))" == rendered["ConditionExpression"]
    assert Request(rendered, {}).holds()
    assert Request(rendered, {"PK": "part"}).holds()


def test_operations_of_one_shape_with_other_types_are_rendered_separately() -> None:
    """A number, a string and a boolean in the same position are rendered with their own types."""
    written = [members(Update(KEY, set={"x": value}))["ExpressionAttributeValues"] for value in (1, "1", True, None, 1)]

    expected: list[dict[str, object]] = [{"N": "1"}, {"S": "1"}, {"BOOL": True}, {"NULL": True}, {"N": "1"}]
    assert [{":0": value} for value in expected] == written


@pytest.mark.parametrize("amount", [1.5, "1", None, True])
def test_adding_a_value_that_is_not_a_number_is_refused(amount: Any) -> None:
    """DynamoDB would refuse it, or add to a set."""
    with pytest.raises(ValidationError, match="only numbers can be added"):
        expressions(Update(KEY, add={"y": 1, "x": amount}))


@pytest.mark.parametrize(
    "update",
    [
        Update(KEY, add={"x": 1}, set={"x": 2}),
        Update(KEY, set={"x": 2}, remove=("x",)),
        Update(KEY, add={"x": 1}, remove=("x",)),
    ],
)
def test_two_changes_of_one_attribute_are_refused(update: Update) -> None:
    """DynamoDB refuses them in an update; some engines do not."""
    with pytest.raises(ValidationError, match="only once"):
        expressions(update)


@pytest.mark.parametrize("value", [10**38 + 1, 1.5, b"", "\ud800", ["\ud800"]])
def test_a_value_that_cannot_be_encoded_is_refused(value: Any) -> None:
    """This applies to changes and to conditions."""
    for operation in (Update(KEY, set={"x": value}), Delete(KEY, (Equals("x", value),))):
        with pytest.raises(ValidationError):
            expressions(operation)


def test_a_number_longer_than_38_digits_may_end_in_zeros() -> None:
    """Expressions and items follow the same rule."""
    assert {":0": {"N": str(10**60)}} == members(Update(KEY, add={"x": 10**60}))["ExpressionAttributeValues"]


@pytest.mark.parametrize(
    "update",
    [
        Update(KEY, set={"PK": "other"}),
        Update(KEY, remove=("SK",)),
        Update(KEY, set={"GSI1PK": ""}),
        Update(KEY, set={"GSI1SK": 5}),
        Update(KEY, set={"": 5}),
    ],
)
def test_changing_a_key_or_a_non_text_index_key_is_refused(update: Update) -> None:
    """Embedded tables do the same; some engines would accept it."""
    with pytest.raises(ValidationError):
        expressions(update)


def test_index_keys_are_set_and_removed_like_other_attributes() -> None:
    """An item may move within its indexes."""
    rendered = members(Update(KEY, set={"GSI1PK": "index"}, remove=("GSI2PK",)))

    assert "SET #0 = :0 REMOVE #1" == rendered["UpdateExpression"]


def test_a_key_is_rendered_with_its_types() -> None:
    """Both of its parts are strings."""
    assert {"PK": {"S": "part"}, "SK": {"S": "sort"}} == json.loads(key_json(KEY))


@pytest.mark.parametrize("bad", ["", 1, None, "\ud800"])
def test_an_invalid_key_is_refused(bad: Any) -> None:
    """DynamoDB refuses empty keys."""
    with pytest.raises(ValidationError):
        key_json(Key("part", bad))
    with pytest.raises(ValidationError):
        key_json(Key(bad, "sort"))


def test_text_that_cannot_be_encoded_as_json_is_refused() -> None:
    """Half of a surrogate pair is not valid text."""
    with pytest.raises(ValidationError, match="it cannot be encoded"):
        dump({"S": "\ud800"})
