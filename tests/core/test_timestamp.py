"""Times are milliseconds internally, and ISO 8601 text for users."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given

from tests import strategies as some
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.timestamp import iso_from_ms, ms_from_iso, ms_from_time


@given(some.times_ms)
def test_iso_text_of_a_time_round_trips(at_ms: int) -> None:
    """No millisecond is lost."""
    assert at_ms == ms_from_iso(iso_from_ms(at_ms))


def test_iso_text_is_utc_with_milliseconds() -> None:
    """The text always has milliseconds, so that it sorts like the time."""
    assert "2024-01-01T14:00:00.000Z" == iso_from_ms(1_704_117_600_000)


@pytest.mark.parametrize(
    "text", ["2024-01-01T14:00:00Z", "2024-01-01T14:00:00", "2024-01-01T16:00:00+02:00", "2024-01-01 14:00"]
)
def test_time_may_be_parsed_with_or_without_an_offset(text: str) -> None:
    """Without one it is UTC."""
    assert 1_704_117_600_000 == ms_from_iso(text)


@pytest.mark.parametrize("text", [None, 5, "", "yesterday", "2024-13-01", b"2024-01-01"])
def test_invalid_time_raises_with_the_field(text: object) -> None:
    """The error names the caller's argument."""
    with pytest.raises(ValidationError, match="start_time"):
        ms_from_iso(text, "start_time")


@pytest.mark.parametrize(
    "time",
    [
        "2024-01-01T14:00:00Z",
        datetime(2024, 1, 1, 14, tzinfo=UTC),
        datetime(2024, 1, 1, 14, tzinfo=UTC).replace(tzinfo=None),
        datetime(2024, 1, 1, 16, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_time_may_be_a_datetime_or_text(time: object) -> None:
    """A datetime without a time zone is UTC, as text is."""
    assert 1_704_117_600_000 == ms_from_time(time)


def test_time_of_another_type_raises_with_the_field() -> None:
    """A date alone does not say which moment is meant."""
    with pytest.raises(ValidationError, match="start_time"):
        ms_from_time(date(2024, 1, 1), "start_time")
