"""Usage of limits that have warned: the highest threshold that was reached."""

from dataclasses import replace

from tests.visualization.snapshots import snapshot
from zae_limiter.visualization.page import HtmlFormatter
from zae_limiter.visualization.summary import sums_as_csv, sums_of
from zae_limiter.visualization.table import CsvFormatter, TableFormatter

QUIET = snapshot("2026-01-15T08:00Z", {"rpm": 7, "spend": 5})
HOURS = [
    replace(snapshot("2026-01-15T09:00Z", {"rpm": 1, "spend": 90}), warnings={"spend": 0.8}),
    replace(snapshot("2026-01-15T10:00Z", {"rpm": 1, "spend": 9}), warnings={"spend": 0.995}),
    QUIET,
]


def test_tables_and_csv_have_a_column_for_the_threshold() -> None:
    """Rows without a warning have a dash, or nothing in CSV."""
    lines = TableFormatter().format(HOURS).splitlines()

    assert ["rpm", "spend", "spend", "warned", "at", "writes"] == lines[0].split()[-6:]
    assert [["90", "80", "%", "2"], ["9", "99.5", "%", "2"], ["7", "5", "-", "2"]] == [
        line.split()[-4:] for line in lines[1:]
    ]
    assert ["warned_at_spend,total_events", "0.8,2", "0.995,2", ",2"] == [
        ",".join(line.split(",")[7:]) for line in CsvFormatter().format(HOURS).splitlines()
    ]


def test_usage_without_warnings_has_no_such_column() -> None:
    """Programs find the columns that they know."""
    assert "warned" not in TableFormatter().format([QUIET])
    assert "warned" not in CsvFormatter().format([QUIET])
    assert "warned" not in sums_as_csv([QUIET])


def test_sums_have_the_highest_threshold_of_all_windows() -> None:
    """A month that has reached 100 % once has reached 80 % too."""
    (sums,) = sums_of(HOURS)

    assert ("warned at", [("rpm", "9", "3.0", "-"), ("spend", "104", "34.7", "99.5 %")]) == (sums.titles[-1], sums.rows)
    assert sums_as_csv(HOURS).splitlines()[-1].endswith(",0.995")


def test_page_shows_the_threshold_in_its_numbers() -> None:
    """The column says what it is."""
    page = HtmlFormatter(summed=True).format(HOURS)

    assert "spend warned at" in page
    assert "99.5 %" in page
