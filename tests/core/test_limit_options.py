"""The options of a limit are checked, shown, and kept by every form of it."""

import json
from typing import Any

import pytest

from zae_limiter.core.calendar import schedule_of
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

DAY = schedule_of("day")
MANY_OPTIONS = [
    Limit.quota("spend", 500, "week", "Europe/Berlin", ("mon", "06:00"), "USD", enforce=False, warn_at=(0.8, 1.0)),
    Limit.quota("calls", 10, "hour", starts=30),
    Limit.concurrent("slots", 4, hold_seconds=10, warn_at=(0.5,)),
    Limit("egress", 10, 10, 60, unit="GB"),
    Limit.per_minute("rpm", 100, enforce=False),
]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"schedule": "d 0000 UTC"}, "schedule"),
        ({"schedule": DAY, "hold_seconds": 10}, "hold_seconds"),
        ({"schedule": DAY, "refill_amount": 1}, "refill_amount"),
        ({"schedule": DAY, "capacity": 10**15 + 1}, "amount"),
        ({"hold_seconds": 10, "refill_period_seconds": 1}, "refill_amount"),
        ({"enforce": 0}, "enforce"),
        ({"enforce": None}, "enforce"),
        ({"schedule": DAY, "unit": ""}, "unit"),
        ({"schedule": DAY, "unit": 5}, "unit"),
        ({"schedule": DAY, "unit": "per cent"}, "unit"),
        ({"schedule": DAY, "unit": "\u00b5g"}, "unit"),
        ({"schedule": DAY, "unit": "thirteenchars"}, "unit"),
        ({"schedule": DAY, "warn_at": 0.8}, "warn_at"),
        ({"schedule": DAY, "warn_at": "0.8"}, "warn_at"),
        ({"schedule": DAY, "warn_at": (0.1, 0.2, 0.3, 0.4, 0.5)}, "warn_at"),
        ({"schedule": DAY, "warn_at": ("0.8",)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (True,)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (0,)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (10.1,)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (float("nan"),)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (1.0, 0.8)}, "warn_at"),
        ({"schedule": DAY, "warn_at": (0.8, 0.8001)}, "warn_at"),
    ],
    ids=str,
)
def test_limit_with_an_invalid_option_raises_with_its_field(options: dict[str, Any], field: str) -> None:
    """Thresholds are equal if they are equal in thousandths."""
    numbers = {"capacity": 10, "refill_amount": 0, "refill_period_seconds": 0}

    with pytest.raises(ValidationError) as caught:
        Limit("spend", **{**numbers, **options})

    assert field == caught.value.field


def test_thresholds_of_a_limit_are_a_tuple_of_thousandths() -> None:
    """A list and whole numbers are accepted."""
    assert (0.123, 1.0) == Limit.per_minute("rpm", 100, warn_at=[0.1234, 1]).warn_at


@pytest.mark.parametrize("limit", MANY_OPTIONS, ids=str)
def test_limit_with_options_round_trips_through_json(limit: Limit) -> None:
    """Every option is in the dictionary."""
    assert limit == Limit.from_dict(json.loads(json.dumps(limit.to_dict())))


def test_dictionary_of_a_quota_has_the_arguments_that_make_its_schedule() -> None:
    """A program need not know the stored form."""
    expected = {
        "name": "spend",
        "capacity": 500,
        "refill_amount": 0,
        "refill_period_seconds": 0,
        "every": "week",
        "tz": "Europe/Berlin",
        "starts": [1, "06:00"],
        "unit": "USD",
        "enforce": False,
        "warn_at": [0.8, 1.0],
    }

    assert expected == MANY_OPTIONS[0].to_dict()


def test_thresholds_of_an_audit_event_are_read_from_texts() -> None:
    """An event has no floating-point numbers."""
    limit = Limit.per_minute("rpm", 100, warn_at=(0.8, 1.0))

    assert limit == Limit.from_dict({**limit.to_dict(), "warn_at": ["0.8", "1.0"]})


@pytest.mark.parametrize("warn_at", [5, ["much"], [None]], ids=str)
def test_dictionary_with_invalid_thresholds_raises_with_their_field(warn_at: object) -> None:
    """The check of the limit names them as they were given."""
    with pytest.raises(ValidationError) as caught:
        Limit.from_dict({**Limit.per_minute("rpm", 100).to_dict(), "warn_at": warn_at})

    assert ("warn_at", warn_at) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        (MANY_OPTIONS[0], "schedule='w1 0600 Europe/Berlin', unit='USD', enforce=False, warn_at=(0.8, 1.0))"),
        (MANY_OPTIONS[2], "hold_seconds=10, warn_at=(0.5,))"),
        (MANY_OPTIONS[4], "refill_amount=100, refill_period_seconds=60, enforce=False)"),
    ],
)
def test_repr_of_a_limit_has_only_the_options_that_it_has(limit: Limit, options: str) -> None:
    """A rate limit has no schedule, and a quota no refill."""
    assert repr(limit).endswith(f"capacity={limit.capacity}, {options}")
