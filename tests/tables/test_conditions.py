"""Every condition on every kind of item."""

import pytest

from tests.tables.engines import KEY, item
from zae_limiter._async.table import Table
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.schema.operations import (
    AbsentOrAtMost,
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Condition,
    Differs,
    Equals,
    ItemAbsent,
    ItemExists,
    Put,
    Update,
)

BIG = 10**21

HOLDING = [
    (ItemExists(), 1),
    (AttributeExists("x"), None),
    (AttributeAbsent("y"), 1),
    (Equals("x", 5), 5),
    (Equals("x", BIG), BIG),
    (Equals("x", "word"), "word"),
    (Equals("x", ""), ""),
    (Equals("x", True), True),
    (Equals("x", None), None),
    (Differs("x", 5), 6),
    (Differs("x", 5), "5"),
    (Differs("x", 1), True),
    (Differs("x", None), 0),
    (Differs("y", 5), 5),
    (AtLeast("x", 5), 5),
    (AtLeast("x", BIG), BIG + 1),
    (AtMost("x", 5), 5),
    (AtMost("x", -BIG), -BIG),
    (AbsentOrAtMost("x", 5), 5),
    (AbsentOrAtMost("x", -BIG), -BIG),
    (AbsentOrAtMost("x", 5), "6"),
    (AbsentOrAtMost("x", 5), None),
    (AbsentOrAtMost("y", 5), 6),
    (Between("x", 5, 7), 5),
    (Between("x", 5, 7), 7),
    (Between("x", -BIG, BIG), 0),
]
FAILING = [
    (ItemAbsent(), 1),
    (AttributeExists("y"), 1),
    (AttributeAbsent("x"), None),
    (Equals("x", 5), 6),
    (Equals("x", BIG), BIG + 1),
    (Equals("x", 5), "5"),
    (Equals("x", 1), True),
    (Equals("x", True), 1),
    (Equals("x", None), False),
    (Equals("y", None), 1),
    (Differs("x", 5), 5),
    (Differs("x", None), None),
    (AtLeast("x", 5), 4),
    (AtLeast("x", BIG), BIG - 1),
    (AtLeast("x", 0), "5"),
    (AtLeast("x", 0), True),
    (AtLeast("x", 0), None),
    (AtLeast("y", 0), 5),
    (AtMost("x", 5), 6),
    (AtMost("x", 5), ""),
    (AtMost("y", 5), 5),
    (AbsentOrAtMost("x", 5), 6),
    (AbsentOrAtMost("x", BIG), BIG + 1),
    (Between("x", 5, 7), 4),
    (Between("x", 5, 7), 8),
    (Between("x", 5, 7), [6]),
    (Between("x", 0, 1), True),
    (Between("y", 5, 7), 6),
]
OF_NOTHING = [ItemAbsent(), AttributeAbsent("x"), AbsentOrAtMost("x", 5), Differs("x", 5), Differs("x", None)]
OF_SOMETHING = [
    ItemExists(),
    AttributeExists("x"),
    Equals("x", 5),
    Equals("x", None),
    AtLeast("x", 0),
    AtMost("x", 0),
    Between("x", -1, 1),
]


@pytest.mark.parametrize(("condition", "value"), HOLDING)
async def test_a_condition_that_holds_applies_the_write(table: Table, condition: Condition, value: object) -> None:
    """Type and value both count, and numbers are exact at any size."""
    await table.write(Put(item(x=value)))

    assert Applied(item(x=value, seen=1)) == await table.write(Update(KEY, set={"seen": 1}, when=(condition,)))


@pytest.mark.parametrize(("condition", "value"), FAILING)
async def test_a_condition_that_fails_refuses_the_write(table: Table, condition: Condition, value: object) -> None:
    """A missing attribute or one of another type satisfies no comparison."""
    await table.write(Put(item(x=value)))

    assert Refused(item(x=value)) == await table.write(Update(KEY, set={"seen": 1}, when=(condition,)))


@pytest.mark.parametrize("condition", OF_NOTHING)
async def test_conditions_on_absence_hold_for_a_missing_item(table: Table, condition: Condition) -> None:
    """A missing item satisfies a condition on absence."""
    assert Applied(item(seen=1)) == await table.write(Update(KEY, set={"seen": 1}, when=(condition,)))


@pytest.mark.parametrize("condition", OF_SOMETHING)
async def test_conditions_on_values_fail_for_a_missing_item(table: Table, condition: Condition) -> None:
    """A missing item satisfies no condition on a value."""
    assert Missing() == await table.write(Update(KEY, set={"seen": 1}, when=(condition,)))
