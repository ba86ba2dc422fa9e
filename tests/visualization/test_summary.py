"""Summaries of usage, for people and for programs."""

import csv
import io

from tests.visualization.snapshots import snapshot
from zae_limiter.visualization.summary import sums_as_csv, sums_of

HOURS = [
    snapshot("2026-01-15T08:00Z", {"tpm": 1_234_000, "rpm": 5}),
    snapshot("2026-01-15T09:00Z", {"rpm": 2}),
    snapshot("2026-01-15T07:00Z", {"rpm": -1}, entity_id="user-2"),
]
DAY = snapshot("2026-01-15", {"rpm": 6}, kind="daily")


def test_summary_has_totals_and_means_by_limit():
    """Limits in order, with thousands separators; the mean is over all snapshots, also those without the limit."""
    (sums,) = sums_of(HOURS)

    assert [("rpm", "6", "2.0"), ("tpm", "1,234,000", "411,333.3")] == sums.rows
    assert "Of 3 hourly snapshots, 2026-01-15 07:00 to 2026-01-15 09:00 UTC." == sums.of_what


def test_summary_of_one_window_names_it_once():
    """A span needs two ends."""
    assert ["Of 1 daily snapshot, 2026-01-15 UTC."] == [sums.of_what for sums in sums_of([DAY])]


def test_summary_does_not_add_different_kinds_of_windows():
    """The usage of an hour is already in its day."""
    found = {sums.window_type: sums.summary.total["rpm"] for sums in sums_of([DAY, *HOURS])}

    assert {"hourly": 6, "daily": 6} == found


def test_summary_csv_reads_back_unchanged():
    """A row for each limit, plain numbers, and the names that JSON has."""
    rows = list(csv.DictReader(io.StringIO(sums_as_csv([*HOURS, DAY]))))

    assert {
        "limit": "rpm",
        "total": "6",
        "average": "2.0",
        "window_type": "hourly",
        "snapshot_count": "3",
        "min_window_start": "2026-01-15T07:00:00Z",
        "max_window_start": "2026-01-15T09:00:00Z",
    } == rows[0]
    assert [("rpm", "hourly"), ("tpm", "hourly"), ("rpm", "daily")] == [(r["limit"], r["window_type"]) for r in rows]
    assert 1_234_000 / 3 == float(rows[1]["average"])


def test_summary_csv_without_usage_is_a_header():
    """A program that reads it finds no row, not a sentence."""
    header = "limit,total,average,window_type,snapshot_count,min_window_start,max_window_start"

    assert header == sums_as_csv([])


def test_summary_csv_quotes_names_with_commas_and_quotes():
    """A name is one cell, whatever it contains."""
    odd = snapshot("2026-01-15", {'a,"b"\nc': 1}, kind="daily")

    assert ['a,"b"\nc'] == [row["limit"] for row in csv.DictReader(io.StringIO(sums_as_csv([odd])))]
