"""Periods of a quota begin at a known local time, in every time zone and through every shift of the clock."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.calendar_edges import compare, distinct_zones
from zae_limiter.core import calendar
from zae_limiter.core.calendar import CalendarSchedule, parse_schedule, period_at, schedule_of
from zae_limiter.core.errors import ValidationError


def seconds(text: str) -> int:
    """Return the seconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def period(schedule: CalendarSchedule, text: str) -> tuple[str, str]:
    """Return the period at a time in UTC, as text."""
    calendar._latest.clear()
    begin, end = (datetime.fromtimestamp(at_s, UTC) for at_s in period_at(schedule, seconds(text)))
    return f"{begin:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}"


PERIODS = {
    "month in UTC": ("month", "UTC", None, "2024-02-10", "2024-02-01 00:00", "2024-03-01 00:00"),
    "month in Berlin": ("month", "Europe/Berlin", None, "2024-03-31", "2024-02-29 23:00", "2024-03-31 22:00"),
    "week": ("week", "UTC", None, "2024-02-10", "2024-02-05 00:00", "2024-02-12 00:00"),
    "week from Wednesday": (
        "week",
        "UTC",
        ("wed", "06:00"),
        "2024-02-07 05:59",
        "2024-01-31 06:00",
        "2024-02-07 06:00",
    ),
    "day": ("day", "Asia/Tokyo", None, "2024-02-10 14:59", "2024-02-09 15:00", "2024-02-10 15:00"),
    "hour": ("hour", "UTC", 30, "2024-02-10 14:29", "2024-02-10 13:30", "2024-02-10 14:30"),
    "day 31 in February": ("month", "UTC", (31, "06:00"), "2024-02-29 06:00", "2024-02-29 06:00", "2024-03-31 06:00"),
    "a skipped time": ("day", "Europe/Berlin", "02:30", "2024-03-31 12:00", "2024-03-31 01:00", "2024-04-01 00:30"),
    "a repeated time": ("day", "Europe/Berlin", "02:30", "2024-10-27 12:00", "2024-10-27 00:30", "2024-10-28 01:30"),
    "a skipped day": ("day", "Pacific/Apia", None, "2011-12-30 09:59", "2011-12-29 10:00", "2011-12-30 10:00"),
    "after a skipped day": ("day", "Pacific/Apia", None, "2011-12-30 10:00", "2011-12-30 10:00", "2011-12-31 10:00"),
    "a shift at midnight": ("day", "Africa/Cairo", None, "2024-04-25 22:30", "2024-04-25 22:00", "2024-04-26 21:00"),
}


@pytest.mark.parametrize("name", PERIODS)
def test_period_begins_when_the_local_clock_shows_the_start_or_later(name: str) -> None:
    """A skipped time gives the moment of the shift, and a repeated time the first one."""
    every, tz, starts, at, begin, end = PERIODS[name]

    assert (begin, end) == period(schedule_of(every, tz, starts), at)


def test_period_holds_from_its_first_second_to_the_last() -> None:
    """Periods follow each other without a gap, whether they are cached or not."""
    schedule = schedule_of("month", "Europe/Berlin")
    begin, end = period_at(schedule, seconds("2024-03-15"))

    assert (begin, end) == period_at(schedule, begin) == period_at(schedule, end - 1)
    assert end == period_at(schedule, end)[0]
    assert begin == period_at(schedule, begin - 1)[1]


def test_cache_of_periods_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller with its own limits may use any number of schedules."""
    monkeypatch.setattr(calendar, "_MOST_CACHED", 3)

    for minute in range(10):
        period_at(schedule_of("hour", "UTC", minute), 0)

    assert len(calendar._latest) <= 3


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_edges_equal_the_slow_reference(zone: str) -> None:
    """`python -m tests.calendar_edges` compares every zone and start; this is a sample."""
    compared, differences = compare(zone, (2009, 2013), most_starts=2)

    assert [] == differences
    assert compared > 100


def test_distinct_zones_leave_out_other_names_of_one_zone() -> None:
    """A link has the data of its target."""
    zones = distinct_zones()

    assert 1 == len({"Europe/Berlin", "Arctic/Longyearbyen", "Europe/Stockholm", "Europe/Oslo"} & set(zones))
    assert len(zones) > 300


TEXTS = {
    "m1 0000 UTC": ("month", "UTC", None),
    "m31 0630 Europe/Berlin": ("month", "Europe/Berlin", (31, "06:30")),
    "w7 2359 America/Argentina/ComodRivadavia": ("week", "America/Argentina/ComodRivadavia", ("sun", "23:59")),
    "w1 0000 UTC": ("week", "UTC", ["Monday", "00:00"]),
    "d 0600 Asia/Tokyo": ("day", "Asia/Tokyo", "06:00"),
    "h 0030 UTC": ("hour", "UTC", 30),
}


@pytest.mark.parametrize("text", TEXTS)
def test_schedule_is_read_back_from_its_text(text: str) -> None:
    """The text is what a bucket and a configuration store."""
    schedule = schedule_of(*TEXTS[text])

    assert text == schedule.text
    assert schedule == parse_schedule(text)


@pytest.mark.parametrize(
    "text",
    ["", "m1", "x1 0000 UTC", "m1 000 UTC", "m1 0000", "m01 0000 UTC", "m1 0000  UTC", "d1 0000 UTC", "w8 0000 UTC"],
)
def test_text_of_another_form_is_refused(text: str) -> None:
    """Two texts of one schedule would look like a change of it."""
    with pytest.raises(ValidationError):
        parse_schedule(text)


INVALID: list[tuple[str, tuple[Any, ...]]] = [
    ("every", ("year",)),
    ("every", (None,)),
    ("every", (["month"],)),
    ("starts", ("month", "UTC", 1)),
    ("starts", ("month", "UTC", (0, "00:00"))),
    ("starts", ("month", "UTC", (32, "00:00"))),
    ("starts", ("month", "UTC", (True, "00:00"))),
    ("starts", ("month", "UTC", (1, "24:00"))),
    ("starts", ("month", "UTC", (1, "6:00"))),
    ("starts", ("month", "UTC", (1, "06:00:00"))),
    ("starts", ("month", "UTC", (1, "06:60"))),
    ("starts", ("month", "UTC", (1, 600))),
    ("starts", ("month", "UTC", (1, "\u0660\u0666:00"))),
    ("starts", ("week", "UTC", ("monkey", "00:00"))),
    ("starts", ("week", "UTC", (8, "00:00"))),
    ("starts", ("day", "UTC", (1, "00:00"))),
    ("starts", ("hour", "UTC", 60)),
    ("starts", ("hour", "UTC", "30")),
    ("tz", ("hour", "Europe/Berlin")),
    ("tz", ("day", None)),
    ("tz", ("day", "")),
    ("tz", ("day", "Europe")),
    ("tz", ("day", "../Berlin")),
    ("tz", ("day", "Mars/Olympus")),
    ("tz", ("day", "localtime")),
    ("tz", ("day", "right/Europe/Berlin")),
    ("tz", ("day", "x" * 65)),
]


@pytest.mark.parametrize(("field", "given"), INVALID)
def test_invalid_schedule_raises_with_the_name_of_the_argument(field: str, given: tuple[Any, ...]) -> None:
    """Every part is checked before anything is written."""
    with pytest.raises(ValidationError) as caught:
        schedule_of(*given)

    assert field == caught.value.field


def test_unknown_time_zone_names_the_missing_data() -> None:
    """A time zone that is not on the machine is never replaced by UTC."""
    with pytest.raises(ValidationError, match="pip install -U tzdata"):
        parse_schedule("m1 0000 Mars/Olympus")


def test_tolerance_is_a_quarter_of_the_period_in_half_seconds() -> None:
    """Edges that differ by less are the same edge, with other time zone data."""
    found = {every: schedule_of(every).tolerance for every in ("hour", "day", "week", "month")}

    assert {"hour": 1_800, "day": 43_200, "week": 302_400, "month": 1_296_000} == found


@pytest.mark.parametrize("every", ["hour", "day", "week", "month"])
def test_no_period_is_longer_than_its_longest(every: str) -> None:
    """An item lives for at least this long after its use."""
    schedule = schedule_of(every, "UTC" if every == "hour" else "Europe/Berlin")
    at_s, longest = seconds("2023-01-01"), 0
    while at_s < seconds("2025-01-01"):
        begin_s, at_s = period_at(schedule, at_s)
        longest = max(longest, at_s - begin_s)

    assert longest <= schedule.longest_s <= 1.1 * longest


@pytest.mark.parametrize(
    ("every", "given", "starts"),
    [
        ("hour", 30, 30),
        ("day", "06:05", "06:05"),
        ("week", ("wed", "06:00"), [3, "06:00"]),
        ("month", (31, "23:59"), [31, "23:59"]),
        ("month", None, [1, "00:00"]),
    ],
)
def test_start_of_a_period_is_shown_in_a_form_that_is_accepted(every: str, given: object, starts: object) -> None:
    """A limit survives a dictionary, so a day of the week is a number from 1 for Monday."""
    schedule = schedule_of(every, "UTC", given)

    assert starts == schedule.starts
    assert schedule == schedule_of(every, "UTC", schedule.starts)
