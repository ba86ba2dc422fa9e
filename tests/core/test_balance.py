"""What a report says of a balance, and a status of the options of its limit."""

from typing import Any

import pytest

from zae_limiter.core.limit import Limit
from zae_limiter.core.status import Balance, LimitStatus

SPEND = Limit.quota("spend", 400, unit="USD", enforce=False)
SLOTS = Limit.concurrent("slots", 4, hold_seconds=10)
DECEMBER_S = 1_701_388_800


@pytest.mark.parametrize(("available", "used", "percent"), [(400, 0, 0.0), (300, 100, 25.0), (-100, 500, 125.0)])
def test_used_amount_of_a_balance_is_what_its_capacity_lacks(available: int, used: int, percent: float) -> None:
    """In debt it is more than the capacity."""
    balance = Balance("user-1", "gpt-4", SPEND, available)

    assert (used, percent) == (balance.used, balance.used_pct)


def test_balance_has_the_properties_of_its_limit() -> None:
    """A program need not know the limit."""
    balance = Balance("user-1", "gpt-4", SPEND, 300)

    assert ("spend", "quota", "USD", 400) == (balance.limit_name, balance.kind, balance.unit, balance.capacity)


def test_balance_as_dict_of_a_quota_has_its_schedule() -> None:
    """Percentages have two decimals."""
    expected = {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "spend",
        "kind": "quota",
        "capacity": 400,
        "available": 399,
        "used": 1,
        "used_pct": 0.25,
        "unit": "USD",
        "enforce": False,
        "schedule": "m1 0000 UTC",
        "resets_at": DECEMBER_S,
        "full_at": DECEMBER_S,
        "in_use": None,
    }

    assert expected == Balance("user-1", "gpt-4", SPEND, 399, resets_at=DECEMBER_S, full_at=DECEMBER_S).as_dict()


def test_balance_as_dict_of_slots_has_no_schedule() -> None:
    """All keys are there for every kind of limit."""
    data = Balance("user-1", "gpt-4", Limit.concurrent("slots", 3), 2, in_use=1, full_at=5).as_dict()

    assert ("slots", None, None, 1, 5, 33.33) == tuple(
        data[name] for name in ("kind", "schedule", "resets_at", "in_use", "full_at", "used_pct")
    )


@pytest.mark.parametrize(
    ("status", "options"),
    [
        (LimitStatus("user-1", "gpt-4", "rpm", Limit.per_minute("rpm", 9), 3, 1, False, 0.0), {}),
        (
            LimitStatus("user-1", "gpt-4", "rpm", Limit.per_minute("rpm", 9, enforce=False), 3, 1, False, 0.0),
            {"enforce": False},
        ),
        (
            LimitStatus("user-1", "gpt-4", "egress", Limit("egress", 9, 9, 60, unit="GB"), 3, 2, True, 1.0, reserved=2),
            {"reserved": 2, "unit": "GB"},
        ),
        (
            LimitStatus("user-1", "gpt-4", "slots", SLOTS, 3, 1, False, 0.0, exact=False, in_use=1),
            {"hold_seconds": 10, "in_use": 1, "exact": False},
        ),
        (
            LimitStatus("user-1", "gpt-4", "spend", SPEND, 3, 1, False, 0.0, resets_at=DECEMBER_S),
            {"enforce": False, "unit": "USD", "schedule": "m1 0000 UTC", "resets_at": DECEMBER_S},
        ),
    ],
    ids=["rate", "soft", "reserved", "slots", "quota"],
)
def test_status_as_dict_has_only_the_options_that_say_something(status: LimitStatus, options: dict[str, Any]) -> None:
    """Programs compare the dictionaries of rate limits."""
    optional = {"enforce", "reserved", "unit", "schedule", "resets_at", "hold_seconds", "in_use", "exact"}
    data = status.as_dict()

    assert options == {name: value for name, value in data.items() if name in optional}


@pytest.mark.parametrize(("reserved", "deficit"), [(0, 0), (1, 0), (2, 1)])
def test_deficit_of_a_status_includes_what_the_request_must_leave(reserved: int, deficit: int) -> None:
    """3 are available, and 2 are requested."""
    status = LimitStatus(
        "user-1", "gpt-4", "rpm", Limit.per_minute("rpm", 9), 3, 2, deficit > 0, 0.0, reserved=reserved
    )

    assert deficit == status.deficit
