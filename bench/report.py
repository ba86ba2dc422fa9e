"""Format measurements as two tables: every case, and the ratios that have a goal."""

from collections.abc import Sequence
from dataclasses import dataclass

from measure import HOT, MANY, REFUSED, Case, Measured, Traffic


@dataclass(frozen=True, slots=True)
class Goal:
    """The largest allowed ratio of one case's CPU time to another's, both under the same traffic."""

    case: str
    other: str
    at_most: float
    traffic: Traffic = HOT

    @property
    def titles(self) -> tuple[str, str]:
        return f"{self.case}, {self.traffic.name}", f"{self.other}, {self.traffic.name}"


GOALS = (
    Goal("zae-limiter memory sync", "throttled-py token bucket", 1.0),
    Goal("zae-limiter memory sync", "limits sliding window", 1.0),
    Goal("zae-limiter memory sync", "limits fixed window", 1.15),
    Goal("zae-limiter memory sync", "throttled-py token bucket", 1.2, REFUSED),
    Goal("zae-limiter memory async", "zae-limiter memory sync", 1.15),
    Goal("zae-limiter SQLite sync", "pyrate-limiter SQLite", 0.1),
    Goal("zae-limiter SQLite async", "pyrate-limiter SQLite", 0.1),
)


def verdict(value: float, at_most: float) -> str:
    """Return whether a value reaches its goal, and by how much it misses it."""
    if value <= at_most:
        return "reached"
    return f"missed by {value / at_most - 1:.0%}"


def _case_lines(cases: Sequence[Case], measured: Measured) -> list[str]:
    lines = [f"{'':<40}{'minimum':>10}{'median':>10}{'calls/round':>13}"]
    for traffic in (HOT, MANY, REFUSED):
        mine = [case for case in cases if case.traffic == traffic]
        if not mine:
            continue
        lines.append(f"{traffic.name}: {traffic.rpm:,} rpm, {traffic.tpm:,} tpm")
        for case in sorted(mine, key=lambda case: measured.smallest_us(case.title)):
            times = f"{measured.smallest_us(case.title):>10.2f}{measured.median_us(case.title):>10.2f}"
            lines.append(f"  {case.name:<38}{times}{case.calls:>13,}")
    return lines


def _goal_line(goal: Goal, measured: Measured) -> str:
    what = f"{goal.case} / {goal.other}" + ("" if goal.traffic == HOT else f", {goal.traffic.name}")
    case, other = goal.titles
    missing = [title for title in (case, other) if title not in measured]
    if missing:
        return f"{what:<66}{goal.at_most:>7.2f}{'-':>9}{'-':>9}  not measured"
    smallest, median = measured.ratio_of_smallest(case, other), measured.median_of_ratios(case, other)
    return f"{what:<66}{goal.at_most:>7.2f}{smallest:>9.3f}{median:>9.3f}  {verdict(smallest, goal.at_most)}"


def tables(cases: Sequence[Case], measured: Measured) -> str:
    """Return both tables as text. The verdict uses the ratio of the minima, which noise affects least."""
    return "\n".join(
        [
            "CPU microseconds per call",
            *_case_lines(cases, measured),
            "",
            f"{'Ratios of CPU time, one entity':<66}{'goal':>7}{'minima':>9}{'median':>9}",
            *(_goal_line(goal, measured) for goal in GOALS),
        ]
    )
