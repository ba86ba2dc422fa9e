"""Tables of usage, for people and for programs."""

import csv
import io

from hypothesis import given

from tests import strategies as some
from tests.visualization.snapshots import snapshot
from zae_limiter import CsvFormatter, SnapshotFormatter, TableFormatter, format_usage_snapshots

TWO = [
    snapshot("2026-01-15T08:00Z", {"rpm": 5, "tpm": 1_234_567}),
    snapshot("2026-01-15", {"rpm": 5}, kind="daily", entity_id="a-longer-name"),
]


def test_table_has_a_row_per_window_and_a_column_per_limit():
    """Numbers are aligned right with thousands separators; a limit without usage is a dash."""
    expected = """\
WINDOW (UTC)      ENTITY         RESOURCE  rpm        tpm  writes
2026-01-15 08:00  user-1         gpt-4       5  1,234,567       2
2026-01-15        a-longer-name  gpt-4       5          -       1"""

    assert expected == TableFormatter().format(TWO)


def test_usage_without_a_formatter_is_a_table():
    """A user who only wants to see it needs no formatter."""
    assert TableFormatter().format(TWO) == format_usage_snapshots(iter(TWO))
    assert CsvFormatter().format(TWO) == format_usage_snapshots(TWO, CsvFormatter())


def test_table_without_usage_says_so():
    """An empty table would look like a fault."""
    assert "There is no usage." == format_usage_snapshots([])


def test_table_csv_reads_back_unchanged():
    """Every fact of a snapshot has its column, numbers are plain, and a limit without usage is empty."""
    rows = list(csv.DictReader(io.StringIO(CsvFormatter().format(TWO))))

    assert {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "window_type": "hourly",
        "window_start": "2026-01-15T08:00:00Z",
        "window_end": "2026-01-15T09:00:00Z",
        "used_rpm": "5",
        "used_tpm": "1234567",
        "total_events": "2",
    } == rows[0]
    assert ("a-longer-name", "") == (rows[1]["entity_id"], rows[1]["used_tpm"])


def test_table_csv_without_usage_is_a_header():
    """A program that reads it finds no row, not a sentence."""
    assert "entity_id,resource,window_type,window_start,window_end,total_events" == CsvFormatter().format([])


def test_table_csv_quotes_names_with_commas_and_quotes():
    """A name is one cell, whatever it contains."""
    odd = snapshot("2026-01-15", {"rpm": 1}, entity_id='a,"b"\nc')

    assert ['a,"b"\nc'] == [row["entity_id"] for row in csv.DictReader(io.StringIO(CsvFormatter().format([odd])))]


def test_custom_formatter_needs_one_method():
    """Anything with ``format`` is a formatter."""

    class Names:
        def format(self, snapshots):
            return " ".join(one.entity_id for one in snapshots)

    assert isinstance(Names(), SnapshotFormatter)
    assert "user-1 a-longer-name" == format_usage_snapshots(TWO, Names())


@given(some.entity_ids, some.resources)
def test_table_and_csv_contain_every_valid_name_unchanged(entity_id, resource):
    """No name contains what separates columns."""
    one = snapshot("2026-01-15T08:00Z", {"rpm": 5}, entity_id=entity_id, resource=resource)
    (row,) = csv.DictReader(io.StringIO(CsvFormatter().format([one])))

    assert (entity_id, resource) == (row["entity_id"], row["resource"])
    assert [entity_id, resource, "5", "1"] == TableFormatter().format([one]).splitlines()[1].split()[2:]
