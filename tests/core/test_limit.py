"""Limits are positive integers with a name, and a set of limits has unique names."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import MAX_LIMITS, MAX_PERIOD_SECONDS, Limit, LimitName, check_limits, digest

RPM = Limit.per_minute("rpm", 100)


@pytest.mark.parametrize(
    ("factory", "period"),
    [(Limit.per_second, 1), (Limit.per_minute, 60), (Limit.per_hour, 3_600), (Limit.per_day, 86_400)],
)
def test_factory_without_burst_sets_the_capacity_to_the_rate(factory: Any, period: int) -> None:
    """The bucket holds the refill of one period."""
    assert Limit("rpm", 100, 100, period) == factory("rpm", 100)


def test_factory_with_burst_sets_the_capacity_to_the_burst() -> None:
    """The bucket may hold more than the refill of one period."""
    assert Limit("rpm", 150, 100, 60) == Limit.per_minute("rpm", 100, burst=150)


def test_a_burst_below_the_rate_is_refused() -> None:
    """It would discard a part of every period's tokens."""
    with pytest.raises(ValidationError) as caught:
        Limit.per_minute("rpm", 100, burst=99)

    assert ("burst", 99) == (caught.value.field, caught.value.value)


def test_custom_limit_may_have_any_capacity_rate_and_period() -> None:
    """The capacity may be smaller than the refill of one period."""
    assert Limit("tpm", 10, 100, 7) == Limit.custom("tpm", 10, 100, 7)


@pytest.mark.parametrize("field", ["capacity", "refill_amount", "refill_period_seconds"])
@given(value=some.not_whole_numbers | st.sampled_from([0, -1, 10**18 + 1, 10**5000]))
def test_limit_with_an_invalid_number_raises_with_field_and_value(field: str, value: object) -> None:
    """Numbers are positive integers up to a maximum."""
    numbers: dict[str, Any] = {"capacity": 1, "refill_amount": 1, "refill_period_seconds": 1, field: value}

    with pytest.raises(ValidationError) as caught:
        Limit("rpm", **numbers)

    assert field == caught.value.field
    assert value is caught.value.value


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", float("nan")])
def test_factory_with_an_invalid_rate_or_burst_raises_with_its_argument_name(value: Any) -> None:
    """The error uses the name of the caller's argument."""
    with pytest.raises(ValidationError, match="rate"):
        Limit.per_minute("rpm", value)
    with pytest.raises(ValidationError, match="burst"):
        Limit.per_minute("rpm", 1, burst=value)


def test_period_above_the_maximum_raises() -> None:
    """Milliseconds passed as seconds are caught."""
    with pytest.raises(ValidationError):
        Limit("rpm", 1, 1, MAX_PERIOD_SECONDS + 1)


@pytest.mark.parametrize("name", ["", "wcu", "a#b", None])
def test_limit_with_an_invalid_name_raises(name: Any) -> None:
    """A limit never has a name that it cannot be stored under."""
    with pytest.raises(ValidationError):
        Limit(name, 1, 1, 1)


@given(some.limits)
def test_limit_round_trips_through_json(limit: Limit) -> None:
    """from_dict reads what to_dict wrote."""
    assert limit == Limit.from_dict(json.loads(json.dumps(limit.to_dict())))


@pytest.mark.parametrize(
    "data",
    [{}, {"name": "rpm"}, RPM.to_dict() | {"extra": 1}, RPM.to_dict() | {"capacity": "9"}, None, [1], {1: 2}],
)
def test_from_dict_with_missing_or_unknown_fields_raises(data: Any) -> None:
    """A misspelt field is not silently dropped."""
    with pytest.raises(ValidationError):
        Limit.from_dict(data)


@given(some.limits)
def test_limit_has_its_numbers_in_millitokens_and_milliseconds(limit: Limit) -> None:
    """All arithmetic is in integers."""
    assert limit.capacity * 1000 == limit.capacity_milli
    assert limit.refill_amount * 1000 == limit.refill_amount_milli
    assert limit.refill_period_seconds * 1000 == limit.refill_period_ms


@given(some.limits)
def test_fill_time_is_the_first_millisecond_that_refills_the_capacity(limit: Limit) -> None:
    """One millisecond earlier is not enough."""

    def earned(ms: int) -> int:
        return ms * limit.refill_amount

    wanted = limit.capacity * limit.refill_period_ms

    assert earned(limit.fill_time_ms - 1) < wanted <= earned(limit.fill_time_ms)


def test_refill_rate_is_tokens_per_second() -> None:
    """It is only for display."""
    assert 2.0 == Limit.per_minute("rpm", 120).refill_rate


@given(some.limit_sets())
def test_check_limits_returns_a_tuple_in_order(limits: tuple[Limit, ...]) -> None:
    """A list or a tuple is accepted."""
    assert limits == check_limits(list(limits))
    assert limits == check_limits(limits)


@pytest.mark.parametrize(
    "limits",
    [
        None,
        RPM,
        "rpm",
        {"rpm": RPM},
        [],
        (),
        [RPM, RPM],
        [RPM, Limit.per_day("rpm", 1)],
        [RPM, None],
        [{"name": "rpm"}],
        [Limit.per_day(f"limit-{number}", 1) for number in range(MAX_LIMITS + 1)],
    ],
)
def test_check_limits_of_an_invalid_set_raises(limits: Any) -> None:
    """A set is not empty, has unique names, and contains only limits."""
    with pytest.raises(ValidationError) as caught:
        check_limits(limits)

    assert "limits" == caught.value.field


@given(some.limit_sets(), some.limit_sets())
def test_digest_is_equal_exactly_for_equal_sets_of_limits(first: tuple[Limit, ...], second: tuple[Limit, ...]) -> None:
    """The order makes no difference."""
    assert digest(first) == digest(first[::-1])
    assert (set(first) == set(second)) == (digest(first) == digest(second))


def test_a_digest_is_the_same_in_every_process() -> None:
    """It is stored, so it must not depend on the process."""
    assert "aa8c4e289d3e08bb" == digest([RPM])


@pytest.mark.parametrize("name", [name for name in vars(LimitName) if name.isupper()])
def test_limit_name_constant_is_a_plain_text_and_a_valid_name(name: str) -> None:
    """A constant can be used wherever its text can, as a name of a limit and as a key of amounts."""
    value = getattr(LimitName, name)

    assert name.lower() == value
    assert str is type(value)
    assert Limit.per_minute(name.lower(), 5) == Limit.per_minute(value, 5)
