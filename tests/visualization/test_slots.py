"""Usage of limits of concurrent use: takes, and the highest number of slots in use."""

from dataclasses import replace

from tests.visualization.snapshots import snapshot
from zae_limiter import Limit, UsageSnapshot
from zae_limiter.visualization.page import HtmlFormatter
from zae_limiter.visualization.plot import PlotFormatter
from zae_limiter.visualization.summary import sums_as_csv, sums_of
from zae_limiter.visualization.table import CsvFormatter, TableFormatter
from zae_limiter.visualization.wording import per_period

SLOTS = Limit.concurrent("slots", 20)


def hour(number: int, takes: int, highest: int, entity_id: str = "user-1") -> UsageSnapshot:
    """Return an hour with requests and slots."""
    found = snapshot(f"2026-01-15T{number:02}:00Z", {"rpm": takes, "slots": takes}, entity_id=entity_id)
    return replace(found, highest_in_use={"slots": highest})


HOURS = [hour(number, 100 + number, 10 + number) for number in range(6)]


def test_a_limit_of_slots_is_worded_by_what_it_allows() -> None:
    """It has no rate."""
    assert "at most 20 at a time" == per_period(SLOTS)


def test_tables_and_csv_have_a_column_for_the_highest_number_in_use() -> None:
    """Rows without slots have a dash, or nothing in CSV."""
    found = [*HOURS[:1], snapshot("2026-01-15T09:00Z", {"rpm": 7})]

    lines = TableFormatter().format(found).splitlines()
    assert ["rpm", "slots", "slots", "highest", "in", "use", "writes"] == lines[0].split()[-7:]
    assert [["100", "100", "10", "2"], ["7", "-", "-", "1"]] == [line.split()[-4:] for line in lines[1:]]
    assert ["used_rpm,used_slots,highest_in_use_slots,total_events", "100,100,10,2", "7,,,1"] == [
        ",".join(line.split(",")[5:]) for line in CsvFormatter().format(found).splitlines()
    ]


def test_sums_have_the_highest_number_of_all_windows() -> None:
    """A sum of highest numbers would mean nothing."""
    (sums,) = sums_of(HOURS)

    assert [("rpm", "615", "102.5", "-"), ("slots", "615", "102.5", "15")] == sums.rows
    assert sums_as_csv(HOURS).splitlines()[-1].endswith(",15")


def test_page_shows_the_highest_number_in_use_and_no_limit_per_window() -> None:
    """Any number of takes may follow each other, so a line at a limit would be wrong."""
    page = HtmlFormatter(summed=True, limits={("user-1", "gpt-4"): [SLOTS]}).format(HOURS)
    card = page[page.index("limit slots") :]

    assert "<dt>Highest in use</dt><dd>15</dd>" in card
    assert "<dd>20 <small>at a time</small></dd>" in card
    assert "of the limit" not in card
    assert "slots highest in use" in page
    assert '<th class="number">highest in use</th>' in page


def test_page_of_several_entities_compares_each_with_its_own_limit() -> None:
    """The legend has the highest number of each."""
    limits = {(name, "gpt-4"): [SLOTS] for name in ("user-1", "user-2")}
    page = HtmlFormatter(limits=limits).format([*HOURS, *(hour(number, 5, 3, "user-2") for number in range(6))])

    assert "highest in use 15 of 20" in page
    assert "highest in use 3 of 20" in page


def test_plot_names_the_highest_number_in_use() -> None:
    """It is a fact of the whole chart."""
    assert "total 615, most 105 at 2026-01-15 05:00, highest in use 15" in PlotFormatter().format(HOURS)
