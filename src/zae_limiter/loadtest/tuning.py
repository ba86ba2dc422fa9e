"""Find the number of users that a worker handles well. Pure: measured steps in, the next step out.

The *efficiency* of a step is the median latency of one user alone, divided by the median latency
with the users of the step. It falls when users wait for the worker itself.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_REQUESTS = 100
"""A baseline needs this many requests; with fewer, its median is noise."""
PLANNED_USERS = (100, 500, 1_000)
"""The numbers of users for which a command line is printed."""
_LONGER = 1.2
_BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class TuningStep:
    """What one run measured: its users, calls, median latency and calls per second."""

    users: int
    requests: int
    p50_ms: float
    calls_per_s: float


@dataclass(frozen=True, slots=True)
class TuningGoal:
    """The most users to try, and the lowest efficiency to accept."""

    most_users: int
    threshold: float


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The baseline, the other steps in the order they were measured, and the best step."""

    baseline: TuningStep
    steps: tuple[TuningStep, ...]
    best: TuningStep


def next_baseline_s(requests: int, measured_s: int, longest_s: int) -> int | None:
    """Return how many more seconds the baseline needs, at most ``longest_s``; None if it has enough requests.

    A baseline without any request is measured once more for as long as before.
    """
    if requests >= FEWEST_REQUESTS:
        return None
    missing_s = (FEWEST_REQUESTS - requests) * measured_s / requests * _LONGER if requests else measured_s
    return min(longest_s, math.ceil(missing_s))


def efficiency(baseline: TuningStep, step: TuningStep) -> float:
    """Return the median latency of the baseline divided by that of the step; 0 if the step had no request."""
    return baseline.p50_ms / step.p50_ms if step.p50_ms else 0.0


def next_users(baseline: TuningStep, steps: Sequence[TuningStep], goal: TuningGoal) -> int | None:
    """Return how many users to try next; None if the best number is known.

    The most users are tried first. Then each step halves the range between an efficient and an
    inefficient number.
    """
    if goal.most_users <= baseline.users:
        return None
    if not steps:
        return goal.most_users
    good, bad = _bounds(baseline, steps, goal)
    if bad is None or bad - good <= 1:
        return None
    return (good + bad) // 2


def tuned(baseline: TuningStep, steps: Sequence[TuningStep], goal: TuningGoal) -> TuningResult:
    """Return the result of all steps; the best is the most users below every inefficient number."""
    good, _ = _bounds(baseline, steps, goal)
    best = next((step for step in reversed(steps) if step.users == good), baseline)
    return TuningResult(baseline, tuple(steps), best)


def chart_lines(result: TuningResult, threshold: float) -> list[str]:
    """Draw the efficiency by users as bars, with the threshold as a line."""
    mark = round(threshold * _BAR_WIDTH)
    ordered = sorted((result.baseline, *result.steps), key=lambda step: step.users)
    lines = []
    for step in ordered:
        share = efficiency(result.baseline, step)
        bar = list(("█" * round(min(1.0, share) * _BAR_WIDTH)).ljust(_BAR_WIDTH + 1))
        if bar[mark] == " ":
            bar[mark] = "|"
        chosen = "  best" if step is result.best else ""
        lines.append(f"{step.users:>6} users  {''.join(bar).rstrip().ljust(mark + 1)}  {share:.0%}{chosen}")
    return lines


def planned_commands(place: str, file: str, classes: Sequence[str], users_per_worker: int) -> list[str]:
    """Return the command lines that run 100, 500 and 1,000 users; ``place`` has the options that select the stack."""
    named = " ".join(shlex.quote(name) for name in (file, *classes))
    return [
        f"zae-limiter loadtest run{place} -f {named} --users {users} --workers {math.ceil(users / users_per_worker)}"
        for users in PLANNED_USERS
    ]


def _bounds(baseline: TuningStep, steps: Sequence[TuningStep], goal: TuningGoal) -> tuple[int, int | None]:
    """Return the largest efficient number below the smallest inefficient one, and that; None if all are efficient."""
    bad = min((step.users for step in steps if efficiency(baseline, step) < goal.threshold), default=None)
    below = [step.users for step in steps if bad is None or step.users < bad]
    return max(below, default=baseline.users), bad
