"""Short soaks keep the promise and notice a broken rule; `make soak` runs long ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.dynamodb.engines import EngineAbsentError
from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import SoakCheck
from tests.soak import journal, watching
from tests.soak.__main__ import engine_of, printed
from tests.soak.journal import Journal, Step
from tests.soak.promise import Entry, delays, most_in_any_window
from tests.soak.run import Options, Report, soak

LONG_S = 30.0
MS = 1_000_000

TO_NOTICE = [pytest.param(check, id=mutation.name) for mutation in MUTATIONS if (check := mutation.soak) is not None]


def soaked(options: Options, is_enough: Callable[[Report], bool]) -> Report:
    """Run a short soak, and a longer one if the machine was too slow."""
    try:
        report = soak(options, lambda line: None)
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    if is_enough(report) or options.seconds > LONG_S:
        return report
    return soaked(replace(options, seconds=options.seconds * 2), is_enough)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials that processes read from the environment; the engines accept any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")


@pytest.mark.parametrize("table", ["sqlite", "dynamodb"])
def test_soak_with_kills_stops_and_outages_has_no_violation(table: str) -> None:
    """The table itself and the journals of all processes show that the promise holds."""

    def is_enough(report: Report) -> bool:
        done = (report.kills, report.stops, report.steps["take ok"], report.steps["settle ok"])
        return bool(report.violations) or (all(done) and (table == "sqlite" or bool(report.outages)))

    report = soaked(Options(table, engine_of(None), seconds=4, processes=2, seed=1), is_enough)

    assert [] == report.violations, printed(report)
    assert is_enough(report), printed(report)


@pytest.mark.parametrize("check", TO_NOTICE)
def test_soak_with_a_broken_rule_reports_a_violation(check: SoakCheck) -> None:
    """The journals and the table of a soak show each mutation that it must notice."""
    options = Options("sqlite", "", seconds=2, processes=1, seed=1, mutation=check.way, calm=True)

    def is_noticed(report: Report) -> bool:
        return any(check.violation in violation for violation in report.violations)

    report = soaked(options, is_noticed)

    assert is_noticed(report), printed(report)


def test_mutations_of_the_watched_table_are_those_of_the_catalogue() -> None:
    """Each way to break a rule belongs to a mutation that the soak must notice."""
    ways = [check.way for mutation in MUTATIONS if (check := mutation.soak) is not None]

    assert sorted(watching.MUTATIONS) == sorted(ways)


def test_journal_of_a_killed_process_has_its_last_step_in_doubt(tmp_path: Path) -> None:
    """A step that did not end may have acted until the process ended; an incomplete line was not written."""
    path = tmp_path / "journal"
    book = Journal(path)
    first = book.begin("take", "solo", {"rps": 1})
    book.end(first, "ok")
    book.begin("settle", "solo", {"rps": -1})
    with path.open("ab") as file:
        file.write(b'["end", 17')
    ended_ns = 2**62
    steps = journal.read(path, ended_ns).steps

    assert ["ok", None] == [step.outcome for step in steps]
    assert ended_ns == steps[1].after_ns
    assert Step("settle", "solo", {"rps": -1}, steps[1].before_ns, ended_ns) == steps[1]


@pytest.mark.parametrize(
    ("entries", "most"),
    [
        # Both in one window of a second, which earns one.
        ([("take", 5, 0, 0), ("take", 5, 1000, 1000)], 9),
        # A take that may have acted before the other window began does not count in it.
        ([("take", 5, 0, 900), ("take", 5, 500, 1000)], 9),
        # A credit may be taken again.
        ([("take", 5, 0, 0), ("credit", 5, 100, 200), ("take", 5, 1000, 1000)], 5),
        # But not before it acted.
        ([("take", 5, 0, 0), ("take", 5, 1000, 1000), ("credit", 5, 1001, 1002)], 9),
        # A debit may leave a debt, and counts against what is taken after it.
        ([("take", 5, 0, 0), ("debit", 50, 10, 20)], 5),
        ([("take", 5, 0, 0), ("debit", 50, 10, 20), ("take", 5, 1000, 1000)], 59),
        # Taken before a window and credited in it.
        ([("passing", 3, 0, 500), ("take", 5, 400, 400)], 2),
        ([("passing", 3, 0, 500), ("take", 5, 600, 600)], 5),
    ],
)
def test_window_counts_certain_charges_and_possible_credits(
    entries: list[tuple[str, float, int, int]], most: float
) -> None:
    """A charge counts if all of it is in the window, a credit if it may have acted. A second earns one token."""
    found = [Entry(kind, tokens, before * MS, after * MS) for kind, tokens, before, after in entries]

    assert pytest.approx(most) == most_in_any_window(found, 1)


def test_late_writes_that_overlap_allow_for_the_earnings_of_the_slowest() -> None:
    """A late write by itself allows for its own delay, and a quick write for nothing."""
    times = [(0, 1000), (500, 2500), (3000, 3100), (5000, 6000)]
    found = delays([Entry("take", 1, before * MS, after * MS) for before, after in times], 10, 0.25)

    assert [Entry("credit", 20, 0, 2500 * MS), Entry("credit", 10, 5000 * MS, 6000 * MS)] == found
