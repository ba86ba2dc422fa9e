"""A steady soak in short, and how its samples are judged."""

import pytest

from tests.soak.steady import MIB, Options, Report, Sample, Say, judge, soak, told

LONG_S = 30.0
DEEDS = ("writes", "leases", "created", "reports")
OPTIONS = Options(seconds=720, writes_per_second=1000)


def samples(**last: int) -> list[Sample]:
    """Twelve minutes at the rate, level but for what the last third is given."""
    level = {"log": 4 * MIB, "file": 20 * MIB, "rss": 200 * MIB, "open_files": 40, "threads": 14}
    return [
        Sample(60.0 * minute, 60_000 * minute, **(level if minute <= 8 else {**level, **last}))
        for minute in range(1, 13)
    ]


def soaked(seconds: float, say: Say) -> Report:
    """A short run; on a machine that is too slow for every deed and sample, a longer one."""
    report = soak(Options(seconds, writes_per_second=200, processes=2, entities=10), say)
    is_enough = len(report.samples) >= 3 and min(report.done[name] for name in DEEDS) > 0
    return report if is_enough or seconds > LONG_S else soaked(seconds * 2, say)


def test_a_short_run_of_both_trees_keeps_the_log_short() -> None:
    """All processes end well, write, and show what they use."""
    lines: list[str] = []
    report = soaked(3.0, lines.append)
    failures = [found for found in report.violations if found.startswith(("process", "log", "only"))]

    assert [] == failures, told(report)
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
def test_what_does_not_stay_level_is_a_violation(last: dict[str, int], violations: list[str]) -> None:
    """The last third is compared with the first; the log has a bound of its own."""
    report = Report(samples(**last))
    judge(report, OPTIONS)

    assert violations == report.violations
    assert None is report.too_slow


def test_a_machine_that_is_too_slow_is_no_violation() -> None:
    """The rate that was reached is shown."""
    report = Report([sample._replace(writes=sample.writes // 2) for sample in samples()])
    judge(report, OPTIONS)

    assert [] == report.violations
    assert "500 of 1,000 writes/s were reached" == report.too_slow


def test_a_run_without_samples_is_a_violation() -> None:
    """A process that fails at once leaves nothing to compare."""
    report = Report(samples()[:2])
    judge(report, OPTIONS)

    assert ["only 2 samples were taken"] == report.violations
