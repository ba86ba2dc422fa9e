"""A short steady soak, and the checks of its samples."""

import pytest

from tests.soak.steady import MIB, Options, Report, Sample, Say, judge, printed, soak

LONG_S = 30.0
DEEDS = ("writes", "leases", "created", "reports")
OPTIONS = Options(seconds=720, writes_per_second=1000)


def samples(**last: int) -> list[Sample]:
    """Return the samples of twelve minutes, level except for the given values of the last third."""
    level = {"log": 4 * MIB, "file": 20 * MIB, "rss": 200 * MIB, "open_files": 40, "threads": 14}
    return [
        Sample(60.0 * minute, 60_000 * minute, **(level if minute <= 8 else {**level, **last}))
        for minute in range(1, 13)
    ]


def soaked(seconds: float, say: Say) -> Report:
    """Run a short soak, and a longer one if the machine was too slow."""
    report = soak(Options(seconds, writes_per_second=200, processes=2, entities=10), say)
    is_enough = len(report.samples) >= 3 and min(report.done[name] for name in DEEDS) > 0
    return report if is_enough or seconds > LONG_S else soaked(seconds * 2, say)


def test_steady_soak_of_both_trees_keeps_the_log_short() -> None:
    """All processes end without error, write, and report their resources."""
    lines: list[str] = []
    report = soaked(3.0, lines.append)
    failures = [found for found in report.violations if found.startswith(("process", "log", "only"))]

    assert [] == failures, printed(report)
    assert min(report.done[name] for name in DEEDS) > 0
    assert len(report.samples) < len(lines)


@pytest.mark.parametrize(
    ("last", "violations"),
    [
        ({}, []),
        ({"log": 31 * MIB}, []),
        ({"log": 32 * MIB}, ["log: it grew to 32.0 MiB"]),
        ({"file": 26 * MIB}, ["file: it grew from 20,971,520 to 27,262,976"]),
        ({"rss": 231 * MIB}, ["RSS: it grew from 209,715,200 to 242,221,056"]),
        ({"open_files": 51, "threads": 18}, ["open files: it grew from 40 to 51", "threads: it grew from 14 to 18"]),
    ],
)
def test_steady_soak_whose_resources_grow_reports_a_violation(last: dict[str, int], violations: list[str]) -> None:
    """The last third is compared with the first; the log has a bound of its own."""
    report = Report(samples(**last))
    judge(report, OPTIONS)

    assert violations == report.violations
    assert None is report.too_slow


def test_steady_soak_below_its_rate_reports_no_violation() -> None:
    """The report shows the rate that was reached."""
    report = Report([sample._replace(writes=sample.writes // 2) for sample in samples()])
    judge(report, OPTIONS)

    assert [] == report.violations
    assert "500 of 1,000 writes/s were reached" == report.too_slow


def test_steady_soak_without_samples_reports_a_violation() -> None:
    """A process that fails immediately leaves nothing to compare."""
    report = Report(samples()[:2])
    judge(report, OPTIONS)

    assert ["only 2 samples were taken"] == report.violations
