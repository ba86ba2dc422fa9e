"""Conditions evaluate like those of DynamoDB."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.schema.operations import (
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Condition,
    Delete,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Key,
    Matches,
    Page,
    Put,
    Query,
    Ranges,
    Update,
)

numbers = st.integers(-(10**25), 10**25)
not_numbers = st.sampled_from([None, "1", True, [1], {"a": 1}])


@pytest.mark.parametrize(
    ("condition", "there", "not_there"),
    [
        (ItemExists(), True, False),
        (ItemAbsent(), False, True),
        (AttributeExists("a"), True, False),
        (AttributeAbsent("a"), False, True),
        (Equals("a", 1), True, False),
        (Differs("a", 1), False, True),
        (AtLeast("a", 1), True, False),
        (AtMost("a", 1), True, False),
        (Between("a", 1, 1), True, False),
        (Ranges([("a", 1, 1)]), True, False),
        (Matches(("a", "b"), (1, "x")), True, False),
    ],
    ids=str,
)
def test_conditions_on_an_absent_item_hold_only_if_they_require_absence(
    condition: Condition, there: bool, not_there: bool
) -> None:
    """An absent item has no attributes."""
    assert there is condition.holds({"PK": "p", "SK": "s", "a": 1, "b": "x"})
    assert not_there is condition.holds({})


@given(found=numbers, low=numbers, high=numbers)
def test_conditions_compare_numbers_exactly(found: int, low: int, high: int) -> None:
    """However large they are; bounds are inclusive."""
    item = {"a": found}

    assert (found >= low) is AtLeast("a", low).holds(item)
    assert (found <= high) is AtMost("a", high).holds(item)
    assert (low <= found <= high) is Between("a", low, high).holds(item)
    assert (low <= found <= high) is Ranges([("a", low, high)]).holds(item)
    assert (found >= low) is Ranges([("a", low, None)]).holds(item)
    assert (found == low) is Equals("a", low).holds(item)
    assert (found != low) is Differs("a", low).holds(item)


@given(found=not_numbers)
def test_range_conditions_are_false_for_values_that_are_no_numbers(found: Any) -> None:
    """Values of different types are never equal, and a boolean is no number."""
    item = {"a": found}

    for condition in (AtLeast("a", -5), AtMost("a", 5), Between("a", -5, 5)):
        assert not condition.holds(item)
    assert not Ranges([("a", -5, None)]).holds(item)
    assert not Equals("a", 1).holds(item)
    assert Differs("a", 1).holds(item)


def test_ranges_hold_only_if_all_of_them_hold() -> None:
    """A missing attribute is in no range."""
    ranges = Ranges([("a", 0, 5), ("b", 1, None)])

    assert ranges.holds({"a": 5, "b": 1})
    assert not ranges.holds({"a": 5, "b": 0})
    assert not ranges.holds({"a": 6, "b": 1})
    assert not ranges.holds({"a": 5})


def test_matches_holds_only_if_all_values_match() -> None:
    """A missing attribute does not match."""
    matches = Matches(("a", "b"), (1, "x"))

    assert matches.holds({"a": 1, "b": "x", "c": 3})
    assert not matches.holds({"a": 1, "b": "y"})
    assert not matches.holds({"a": 1})


def test_conditions_with_equal_content_are_equal() -> None:
    """They are compared by value."""
    assert Matches(("a", "b"), (1, 2)) == Matches(("a", "b"), (1, 2)) != Matches(("a", "b"), (1, 3))
    assert AtLeast("a", 1) == AtLeast("a", 1) != AtMost("a", 1)


def test_every_operation_has_its_key() -> None:
    """The key of a put is in its item."""
    key = Key("p", "s")

    assert key == Put({"PK": "p", "SK": "s", "a": 1}).key == Update(key).key == Delete(key).key


def test_update_without_arguments_changes_and_requires_nothing() -> None:
    """All its parts are empty."""
    update = Update(Key("p", "s"))

    assert ({}, {}, (), ()) == (dict(update.add), dict(update.set), update.remove, update.when)


def test_query_after_a_page_starts_at_the_end_of_the_page() -> None:
    """After the last page there is none."""
    query = Query("p", "GSI1", prefix="a", limit=5)

    assert Query("p", "GSI1", prefix="a", limit=5, start={"PK": "x"}) == query.after(Page([], {"PK": "x"}))
    assert query.after(Page([], None)) is None
