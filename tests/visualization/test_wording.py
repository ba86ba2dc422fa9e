"""Numbers and windows as people read them."""

import pytest

from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import window_at
from zae_limiter.visualization.wording import amount_of, counted, in_window, short_number, span_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (7, "7"),
        (0.5, "0.5"),
        (999, "999"),
        (999.6, "1K"),
        (1_000, "1K"),
        (1_234, "1.2K"),
        (99_949, "99.9K"),
        (150_000, "150K"),
        (999_499, "999K"),
        (999_950, "1M"),
        (1_234_567, "1.2M"),
        (5_000_000_000, "5B"),
        (10**18, "1000Q"),
        (-1_500, "-1.5K"),
        (-0.01, "0"),
    ],
)
def test_number_is_written_in_few_characters(value, expected):
    """Three digits and a unit are enough beside an axis; rounding never shows a thousand of a unit."""
    assert expected == short_number(value)


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (1, "hour", "1 hour"),
        (2, "hour", "2 hours"),
        (1_200, "entity", "1,200 entities"),
        (0, "resource", "0 resources"),
    ],
)
def test_count_agrees_with_its_noun(number, noun, expected):
    """One is singular, all others are plural."""
    assert expected == counted(number, noun)


@pytest.mark.parametrize(
    ("amount", "noun", "expected"),
    [
        (1, "requests", "1 request"),
        (1, "input tokens", "1 input token"),
        (1_500, "requests", "1,500 requests"),
        (0, "tokens", "0 tokens"),
        (1, "gps", "1 gps"),
    ],
)
def test_amount_of_one_is_singular_for_requests_and_tokens(amount, noun, expected):
    """Other nouns are names that a user chose, and are not changed."""
    assert expected == amount_of(amount, noun)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("hourly", "at 2026-01-15 10:00"), ("daily", "on 2026-01-15"), ("monthly", "in 2026-01")],
)
def test_window_is_written_as_exactly_as_it_is_long(kind, expected):
    """An hour by its minute, a day by its date, a month by its number."""
    assert expected == in_window(window_at(kind, ms_from_iso("2026-01-15T10:37:00Z")))


def test_span_of_one_window_is_that_window():
    """From a day to the same day is that day."""
    days = [window_at("daily", ms_from_iso(f"2026-01-{day}")) for day in (15, 16)]

    assert "2026-01-15" == span_of(days[:1])
    assert "2026-01-15 to 2026-01-16" == span_of(days)
