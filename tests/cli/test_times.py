"""The syntax of times on the command line."""

import pytest

from zae_limiter.cli._times import Span, parse_end, parse_time
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.timestamp import iso_from_ms, ms_from_iso

NOW_MS = ms_from_iso("2026-03-31T10:37:12.345Z")


def first_and_last(text: str) -> tuple[str, str]:
    span = parse_time(text, NOW_MS)
    return iso_from_ms(span.first_ms), iso_from_ms(span.last_ms)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-31T10:37:12.345Z"),
        ("2 days ago", "2026-03-29T10:37:12.345Z"),
        ("  2   Days AGO ", "2026-03-29T10:37:12.345Z"),
        ("1 day ago", "2026-03-30T10:37:12.345Z"),
        ("an hour ago", "2026-03-31T09:37:12.345Z"),
        ("90 minutes ago", "2026-03-31T09:07:12.345Z"),
        ("12h ago", "2026-03-30T22:37:12.345Z"),
        ("3 weeks ago", "2026-03-10T10:37:12.345Z"),
        ("a month ago", "2026-02-28T10:37:12.345Z"),
        ("15 months ago", "2024-12-31T10:37:12.345Z"),
        ("2026-01-15T10:00Z", "2026-01-15T10:00:00.000Z"),
        ("2026-01-15t10:00z", "2026-01-15T10:00:00.000Z"),
        ("2026-01-15 10:00", "2026-01-15T10:00:00.000Z"),
        ("2026-01-15T10:00:30+02:00", "2026-01-15T08:00:30.000Z"),
    ],
)
def test_a_time_is_parsed_to_its_first_and_last_moment(text, expected):
    """Relative times count back from now; a time without an offset is UTC."""
    assert (expected, expected) == first_and_last(text)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("today", "2026-03-31T00:00:00.000Z", "2026-03-31T23:59:59.999Z"),
        ("yesterday", "2026-03-30T00:00:00.000Z", "2026-03-30T23:59:59.999Z"),
        ("2026-01-15", "2026-01-15T00:00:00.000Z", "2026-01-15T23:59:59.999Z"),
        ("2024-02", "2024-02-01T00:00:00.000Z", "2024-02-29T23:59:59.999Z"),
    ],
)
def test_a_date_or_month_covers_its_whole_range(text, first, last):
    """From yesterday to yesterday is the whole day."""
    assert (first, last) == first_and_last(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "tomorrow", "two days ago", "2 fortnights ago", "-2 days ago", "2 days", "1e3 days ago"),
        *("2026", "2026-13", "2026-02-30", "15.1.2026", "999999 months ago", "999999 weeks ago"),
    ],
)
def test_a_malformed_time_raises_an_error_that_shows_the_syntax(text):
    """The error lists the accepted forms."""
    with pytest.raises(ValidationError) as caught:
        parse_time(text, NOW_MS)

    assert text == caught.value.value
    assert "'2 days ago', 2026-01, 2026-01-15 or 2026-01-15T10:00Z, all in UTC" in str(caught.value)


def test_relative_times_are_relative_to_the_given_clock():
    """The same words at another time are another moment."""
    assert Span(0, 0) == parse_time("1 minute ago", 60_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tomorrow", "2026-04-01T00:00:00.000Z"),
        ("in 2 hours", "2026-03-31T12:37:12.345Z"),
        ("In 90 min", "2026-03-31T12:07:12.345Z"),
        ("in 12h", "2026-03-31T22:37:12.345Z"),
        ("in a week", "2026-04-07T10:37:12.345Z"),
        ("in a month", "2026-04-30T10:37:12.345Z"),
        ("2026-12-01", "2026-12-01T00:00:00.000Z"),
        ("2027-01", "2027-01-01T00:00:00.000Z"),
        ("2026-12-01 10:00+02:00", "2026-12-01T08:00:00.000Z"),
    ],
)
def test_an_end_is_parsed_to_one_moment(text, expected):
    """A date means its first moment; a time without an offset is UTC."""
    assert ms_from_iso(expected) == ms_from_iso(parse_end(text, NOW_MS).isoformat())


@pytest.mark.parametrize(
    "text", ["", "now", "yesterday", "2 hours ago", "in 2 fortnights", "in 999999 months", "2026-13"]
)
def test_a_malformed_end_raises_an_error_that_shows_the_syntax(text):
    """Words for the past are not among the forms."""
    with pytest.raises(ValidationError, match="'in 2 hours', 2026-12-01 or 2026-12-01T10:00Z, all in UTC"):
        parse_end(text, NOW_MS)
