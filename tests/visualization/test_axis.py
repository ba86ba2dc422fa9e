"""An axis has round steps and contains everything that is drawn."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import Window, window_at
from zae_limiter.visualization.axis import Axis, axis_of, ticks_of

AMOUNTS = st.integers(-(10**18), 10**18)


@given(one=AMOUNTS, other=AMOUNTS, most_steps=st.integers(2, 20))
def test_axis_contains_all_amounts_in_few_round_steps(one, other, most_steps):
    """Its ends are multiples of a step that is 1, 2 or 5 times a power of ten, and zero is one of them."""
    lowest, highest = min(one, other), max(one, other)

    axis = axis_of(lowest, highest, most_steps)

    assert axis.low <= min(lowest, 0)
    assert axis.high >= max(highest, 0)
    assert 1 <= len(axis.ticks) - 1 <= most_steps
    assert 0 in axis.ticks
    assert str(axis.step).rstrip("0") in {"1", "2", "5"}


def test_axis_is_as_short_as_possible():
    """The finest steps are chosen."""
    assert Axis(0, 300, 100) == axis_of(3, 260, 5)
    assert Axis(0, 300, 50) == axis_of(3, 260, 10)
    assert Axis(-20, 60, 20) == axis_of(-3, 45, 4)
    assert Axis(0, 1, 1) == axis_of(0, 0)


def windows(kind: str, first: str, count: int) -> list[Window]:
    """Return this many windows, one after the other."""
    found = [window_at(kind, ms_from_iso(first))]
    while len(found) < count:
        found.append(window_at(kind, ms_from_iso(found[-1].end)))
    return found


def labels(kind: str, first: str, count: int, most: int) -> list[str]:
    return [tick.label for tick in ticks_of(windows(kind, first, count), most)]


def test_hour_labels_are_round_times():
    """Midnight is labelled by the day, other hours by their time."""
    assert ["18:00", "Jan 13", "06:00", "12:00"] == labels("hourly", "2026-01-12T16:00Z", 22, 5)
    assert ["Jan 13", "Jan 14"] == labels("hourly", "2026-01-12T16:00Z", 40, 2)


def test_week_labels_are_mondays():
    """Days that do not all fit are labelled where weeks begin."""
    assert ["Jan 5", "Jan 12", "Jan 19", "Jan 26"] == labels("daily", "2026-01-01", 31, 5)


def test_month_labels_have_their_year():
    """Every second month, or quarters, if there are many."""
    assert ["Jan 2026", "Mar 2026", "May 2026"] == labels("monthly", "2025-12-01", 6, 3)
    assert ["Jan 2026", "Apr 2026"] == labels("monthly", "2025-12-01", 6, 2)


@given(
    kind=st.sampled_from(["hourly", "daily", "monthly"]),
    first_day=st.dates(date(2000, 1, 1), date(2100, 1, 1)),
    count=st.integers(1, 60),
    most=st.integers(1, 12),
)
def test_time_axis_of_any_length_has_labels_but_not_too_many(kind, first_day, count, most):
    """However long the time is, the axis can be read."""
    ticks = ticks_of(windows(kind, f"{first_day.isoformat()}T05:00Z", count), most)

    assert 1 <= len(ticks) <= most
    assert sorted({tick.place for tick in ticks}) == [tick.place for tick in ticks]
