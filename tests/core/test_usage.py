"""Usage is counted in windows of an hour, a day or a month, in UTC."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import (
    WINDOW_TYPES,
    KeyRange,
    UsageFilter,
    UsagePosition,
    UsageSnapshot,
    UsageSummary,
    Window,
    check_next_key,
    check_window_type,
    summarize,
    window_at,
    window_key_before,
    window_of_key,
)

AFTERNOON_MS = 1_704_119_045_678
"""2024-01-01T14:24:05.678Z."""

window_types = st.sampled_from(WINDOW_TYPES)


@pytest.mark.parametrize(
    "expected",
    [
        Window("hourly", "2024-01-01T14:00:00Z", "2024-01-01T14:00:00Z", "2024-01-01T15:00:00Z"),
        Window("daily", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"),
        Window("monthly", "2024-01", "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z"),
    ],
)
def test_window_at_returns_the_window_of_each_kind(expected: Window) -> None:
    """Its key is the start of the window, in the precision of its kind."""
    assert expected == window_at(expected.type, AFTERNOON_MS)


@given(window_types, some.times_ms)
def test_windows_contain_their_times_without_gap_or_overlap(window_type: str, at_ms: int) -> None:
    """Each window ends where the next begins."""
    window = window_at(window_type, at_ms)
    end_ms = ms_from_iso(window.end)

    assert ms_from_iso(window.start) <= at_ms < end_ms
    assert window == window_at(window_type, end_ms - 1)
    assert window.end == window_at(window_type, end_ms).start


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, ["gpt-4"]), ("gpt-4", ["gpt-4"]), ("_all_", ["gpt-4", "_all_"])]
)
def test_sums_include_usage_across_resources_only_if_the_filter_names_it(
    asked: str | None, expected: list[str]
) -> None:
    """It counts the tokens of each resource again."""
    wanted = UsageFilter(resource=asked)

    assert expected == [one for one in ("gpt-4", "_all_") if wanted.adds_up(one)]


@given(window_types, some.times_ms)
def test_window_of_key_returns_the_window_of_its_key(window_type: str, at_ms: int) -> None:
    """The kind of the window follows from the key."""
    window = window_at(window_type, at_ms)

    assert window == window_of_key(window.key)


@pytest.mark.parametrize(
    "key",
    ["", "2024", "2024-13", "2024-99-99", "9999-12", "2024-01-01T14:30:00Z", "2024-01-01T14:00:00+", "20240101Z0"],
)
def test_window_of_key_is_none_for_an_invalid_key(key: str) -> None:
    """An invalid key is not an error."""
    assert window_of_key(key) is None


@pytest.mark.parametrize("value", [None, "weekly", "", 1, ["hourly"]])
def test_invalid_window_type_raises_with_the_valid_types(value: object) -> None:
    """The error lists them."""
    with pytest.raises(ValidationError, match="hourly, daily, monthly"):
        check_window_type(value)


def test_valid_window_types_pass_the_check() -> None:
    """An hour, a day, a month."""
    assert list(WINDOW_TYPES) == [check_window_type(value) for value in WINDOW_TYPES]


def snapshot(day: int, **counters: int) -> UsageSnapshot:
    window = window_at("daily", ms_from_iso(f"2024-01-{day:02d}"))
    return UsageSnapshot("user-1", "gpt-4", window.start, window.end, window.type, counters, 1)


def test_summary_contains_totals_and_averages() -> None:
    """A limit that a snapshot lacks counts as zero."""
    expected = UsageSummary(
        snapshot_count=2,
        total={"rpm": 10, "tpm": 500},
        average={"rpm": 5.0, "tpm": 250.0},
        min_window_start="2024-01-02T00:00:00Z",
        max_window_start="2024-01-03T00:00:00Z",
    )

    assert expected == summarize([snapshot(3, rpm=4, tpm=500), snapshot(2, rpm=6)])


def test_summary_includes_negative_counters() -> None:
    """More may have been credited than taken in a window."""
    assert {"rpm": -2, "tpm": 0} == summarize([snapshot(1, rpm=-2, tpm=0)]).total


def test_summary_has_the_highest_threshold_and_most_slots_of_any_snapshot() -> None:
    """They are not sums: a limit that warned in two windows has not used twice as much."""
    first, second, third = snapshot(1), snapshot(2), snapshot(3)
    warned = [
        replace(first, warnings={"rpm": 0.8, "spend": 0.5}, highest_in_use={"slots": 3}),
        replace(second, warnings={"rpm": 1.0}, highest_in_use={"slots": 2}),
        third,
    ]

    summary = summarize(warned)

    assert {"rpm": 1.0, "spend": 0.5} == summary.warnings
    assert {"slots": 3} == summary.highest_in_use


def test_summary_of_no_snapshots_is_empty() -> None:
    """There is no earliest and no latest window."""
    assert UsageSummary(0, {}, {}, None, None) == summarize([])


def test_usage_filter_admits_windows_that_start_within_its_bounds() -> None:
    """Both bounds are inclusive, and fields that are None match everything."""
    hours = [window_at("hourly", ms_from_iso(f"2024-01-01T{hour:02d}:30:00Z")) for hour in range(4)]
    wanted = UsageFilter("user-1", None, "hourly", "2024-01-01T01:00:00Z", "2024-01-01T02:00:00Z")

    assert [False, True, True, False] == [wanted.admits(hour) for hour in hours]
    assert [True] * 4 == [UsageFilter(resource="gpt-4").admits(hour) for hour in hours]
    assert not wanted.admits(window_at("daily", ms_from_iso("2024-01-01T01:00:00Z")))


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"entity_id": "a#b"}, "entity_id"),
        ({"resource": "_default_"}, "resource"),
        ({"entity_id": "a", "window_type": "weekly"}, "window_type"),
        ({"entity_id": "a", "start_time": "yesterday"}, "start_time"),
        ({"entity_id": "a", "end_time": 5}, "end_time"),
    ],
)
def test_invalid_usage_filter_raises_with_its_field(filters: dict[str, Any], field: str) -> None:
    """The error names the filter."""
    with pytest.raises(ValidationError) as raised:
        UsageFilter(**filters)
    assert field == raised.value.field


def test_usage_filter_takes_datetimes() -> None:
    """They mean the same as text in ISO 8601."""
    noon = window_at("hourly", ms_from_iso("2024-01-01T12:00:00Z"))
    wanted = UsageFilter(
        start_time=datetime(2024, 1, 1, 12, tzinfo=UTC), end_time=datetime(2024, 1, 1, 12, 30, tzinfo=UTC)
    )

    assert wanted.admits(noon)
    assert not wanted.admits(window_at("hourly", ms_from_iso("2024-01-01T13:00:00Z")))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, KeyRange("", "")),
        ({"start_time": "2024-02-29T10:30:00Z"}, KeyRange("2024-02", "")),
        ({"end_time": "2024-02-29T10:30:00Z"}, KeyRange("", "2024-02-29T10:00:00Z")),
        (
            {"start_time": datetime(2024, 2, 29, 10, tzinfo=UTC), "window_type": "hourly"},
            KeyRange("2024-02-29T10:00:00Z", ""),
        ),
        ({"start_time": "0999-01-01", "window_type": "daily"}, KeyRange("0999-01-01", "")),
        ({"end_time": "9999-12-31", "window_type": "monthly"}, KeyRange("", "9999-12")),
        ({"start_time": "0001-01-01T00:00:00+14:00", "end_time": "9999-12-31T23:59:59-14:00"}, KeyRange("", "")),
    ],
)
def test_key_range_of_a_filter_contains_its_windows(filters: dict[str, Any], expected: KeyRange) -> None:
    """Without a type it begins with a month and ends with an hour. Times that have no window do not bound it."""
    assert expected == UsageFilter(**filters).key_range


@pytest.mark.parametrize(
    ("at", "window_type", "expected"),
    [
        ("2024-03-01T05:00:00Z", "daily", "2024-03-01"),
        ("2024-03-01T05:00:00Z", "monthly", "2024-03"),
        ("2024-03-01", "monthly", "2024-03"),
        ("2024-03-01", "hourly", "2024-02-29T23:00:00Z"),
        ("2024-03", "hourly", "2024-02-29T23:00:00Z"),
        ("2024-03", "daily", "2024-02-29"),
    ],
)
def test_window_key_before_is_the_next_smaller_of_a_type(at: str, window_type: str, expected: str) -> None:
    """A longer window that contains the other sorts before it."""
    window = window_of_key(at)

    assert window is not None
    assert expected == window_key_before(window, window_type)


POSITION = UsagePosition("2024-01-02", "user-1", "gpt-4")


@pytest.mark.parametrize(
    "filters",
    [{}, {"entity_id": "user-1"}, {"resource": "gpt-4"}, {"window_type": "daily", "start_time": "2024-01-02"}],
)
def test_next_key_of_a_position_round_trips(filters: dict[str, Any]) -> None:
    """It fits every query that finds the snapshot."""
    assert POSITION == check_next_key(POSITION.next_key, UsageFilter(**filters))


@pytest.mark.parametrize(
    ("next_key", "filters"),
    [
        (5, {}),
        ({}, {}),
        ({**POSITION.next_key, "PK": "x"}, {}),
        ({**POSITION.next_key, "window": "2024-01-02T10:30:00Z"}, {}),
        ({**POSITION.next_key, "window": 5}, {}),
        ({**POSITION.next_key, "entity_id": "a#b"}, {}),
        ({**POSITION.next_key, "resource": "a#b"}, {}),
        (POSITION.next_key, {"entity_id": "user-2"}),
        (POSITION.next_key, {"resource": "search"}),
        (POSITION.next_key, {"window_type": "hourly"}),
        (POSITION.next_key, {"start_time": "2024-01-03"}),
        (POSITION.next_key, {"end_time": "2024-01-01"}),
    ],
)
def test_next_key_of_another_query_raises(next_key: object, filters: dict[str, Any]) -> None:
    """It would silently skip snapshots."""
    with pytest.raises(ValidationError, match="next_key"):
        check_next_key(next_key, UsageFilter(**filters))
