"""Times as they are written on the command line."""

import pytest

from zae_limiter.cli._times import Span, parse_time
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
def test_a_moment_is_its_first_and_its_last(text, expected):
    """Words count back from now; what has no offset is UTC."""
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
def test_a_day_and_a_month_are_whole(text, first, last):
    """From yesterday to yesterday is all of it."""
    assert (first, last) == first_and_last(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "tomorrow", "two days ago", "2 fortnights ago", "-2 days ago", "2 days", "1e3 days ago"),
        *("2026", "2026-13", "2026-02-30", "15.1.2026", "999999 months ago", "999999 weeks ago"),
    ],
)
def test_anything_else_is_refused_with_the_forms(text):
    """Whoever mistypes a time is shown how it is written."""
    with pytest.raises(ValidationError) as caught:
        parse_time(text, NOW_MS)

    assert text == caught.value.value
    assert "'2 days ago', 2026-01, 2026-01-15 or 2026-01-15T10:00Z, all in UTC" in str(caught.value)


def test_the_clock_is_an_argument():
    """The same words at another time are another time."""
    assert Span(0, 0) == parse_time("1 minute ago", 60_000)
