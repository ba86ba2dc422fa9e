"""Limits are whole positive numbers with a name, and sets of them have no doubles."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import MAX_LIMITS, MAX_PERIOD_SECONDS, Limit, check_limits, digest

RPM = Limit.per_minute("rpm", 100)


@pytest.mark.parametrize(
    ("factory", "period"),
    [(Limit.per_second, 1), (Limit.per_minute, 60), (Limit.per_hour, 3_600), (Limit.per_day, 86_400)],
)
def test_a_rate_fills_the_bucket_once_per_period(factory: Any, period: int) -> None:
    """Without a burst the bucket holds what one period brings."""
    assert Limit("rpm", 100, 100, period) == factory("rpm", 100)


def test_a_burst_is_the_capacity() -> None:
    """The bucket may hold more than one period brings."""
    assert Limit("rpm", 150, 100, 60) == Limit.per_minute("rpm", 100, burst=150)


def test_a_burst_below_the_rate_is_refused() -> None:
    """It would throw away part of every period's tokens."""
    with pytest.raises(ValidationError) as caught:
        Limit.per_minute("rpm", 100, burst=99)

    assert ("burst", 99) == (caught.value.field, caught.value.value)


def test_custom_takes_any_combination() -> None:
    """A bucket may be smaller than what a period brings."""
    assert Limit("tpm", 10, 100, 7) == Limit.custom("tpm", 10, 100, 7)


@pytest.mark.parametrize("field", ["capacity", "refill_amount", "refill_period_seconds"])
@given(value=some.not_whole_numbers | st.sampled_from([0, -1, 10**18 + 1, 10**5000]))
def test_numbers_that_may_not_be(field: str, value: object) -> None:
    """The error names the field and the value."""
    numbers: dict[str, Any] = {"capacity": 1, "refill_amount": 1, "refill_period_seconds": 1, field: value}

    with pytest.raises(ValidationError) as caught:
        Limit("rpm", **numbers)

    assert field == caught.value.field
    assert value is caught.value.value


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", float("nan")])
def test_rates_and_bursts_that_may_not_be(value: Any) -> None:
    """A factory checks what it was called with, by the name the caller used."""
    with pytest.raises(ValidationError, match="rate"):
        Limit.per_minute("rpm", value)
    with pytest.raises(ValidationError, match="burst"):
        Limit.per_minute("rpm", 1, burst=value)


def test_a_period_of_decades_is_a_mistake_of_units() -> None:
    """Milliseconds passed for seconds are caught."""
    with pytest.raises(ValidationError):
        Limit("rpm", 1, 1, MAX_PERIOD_SECONDS + 1)


@pytest.mark.parametrize("name", ["", "wcu", "a#b", None])
def test_names_that_may_not_be(name: Any) -> None:
    """A limit is never made with a name it cannot be stored under."""
    with pytest.raises(ValidationError):
        Limit(name, 1, 1, 1)


@given(some.limits)
def test_a_limit_survives_json(limit: Limit) -> None:
    """What to_dict describes, from_dict makes."""
    assert limit == Limit.from_dict(json.loads(json.dumps(limit.to_dict())))


@pytest.mark.parametrize(
    "data",
    [{}, {"name": "rpm"}, RPM.to_dict() | {"extra": 1}, RPM.to_dict() | {"capacity": "9"}, None, [1], {1: 2}],
)
def test_a_description_with_other_fields_is_refused(data: Any) -> None:
    """A misspelt field is not silently dropped."""
    with pytest.raises(ValidationError):
        Limit.from_dict(data)


@given(some.limits)
def test_units_within_are_millitokens_and_milliseconds(limit: Limit) -> None:
    """All sums are made in integers."""
    assert limit.capacity * 1000 == limit.capacity_milli
    assert limit.refill_amount * 1000 == limit.refill_amount_milli
    assert limit.refill_period_seconds * 1000 == limit.refill_period_ms


@given(some.limits)
def test_the_fill_time_is_the_first_millisecond_that_suffices(limit: Limit) -> None:
    """At the fill time the capacity has come back; one millisecond earlier it had not."""

    def earned(ms: int) -> int:
        return ms * limit.refill_amount

    wanted = limit.capacity * limit.refill_period_ms

    assert earned(limit.fill_time_ms - 1) < wanted <= earned(limit.fill_time_ms)


def test_the_refill_rate_is_tokens_per_second() -> None:
    """It is for people to read; nothing is reckoned with it."""
    assert 2.0 == Limit.per_minute("rpm", 120).refill_rate


@given(some.limit_sets())
def test_sets_that_may_be(limits: tuple[Limit, ...]) -> None:
    """A list or a tuple of limits comes back as a tuple, in its order."""
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
def test_sets_that_may_not_be(limits: Any) -> None:
    """No set is empty, has doubles, or holds anything but limits."""
    with pytest.raises(ValidationError) as caught:
        check_limits(limits)

    assert "limits" == caught.value.field


@given(some.limit_sets(), some.limit_sets())
def test_a_digest_tells_sets_of_limits_apart(first: tuple[Limit, ...], second: tuple[Limit, ...]) -> None:
    """The same limits in any order have one digest, others have another."""
    assert digest(first) == digest(first[::-1])
    assert (set(first) == set(second)) == (digest(first) == digest(second))


def test_a_digest_is_the_same_in_every_process() -> None:
    """It is stored, so it must not depend on where it was made."""
    assert "aa8c4e289d3e08bb" == digest([RPM])
