"""Reduce a failing run while it fails in the same way: fewer clients, fewer faults, fewer requests."""

from collections.abc import Iterator

from tests.simulation.plan import Plan
from tests.simulation.run import Report, simulate_seed


def shrink(report: Report, most_runs: int = 60) -> Report:
    """Return the smallest failing run that greedy steps lead to, or the given one."""
    runs = 0
    smaller = True
    while smaller and runs < most_runs:
        smaller = False
        for plan in _smaller(report.plan):
            runs += 1
            found = simulate_seed(plan.seed, plan)
            if _alike(found, report):
                report, smaller = found, True
                break
            if runs >= most_runs:
                break
    return report


def _alike(found: Report, report: Report) -> bool:
    return (
        found.violation is not None and report.violation is not None and found.violation.kind == report.violation.kind
    )


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are one step smaller, the largest steps first."""
    if plan.clients > 1:
        yield plan.reduced(clients=1)
    if plan.clients > 2:
        yield plan.reduced(clients=plan.clients - 1)
    if plan.requests > 1:
        yield plan.reduced(requests=plan.requests // 2)
    for fault in sorted(plan.faults):
        yield plan.reduced(without=[fault])
    if plan.requests > 8:
        yield plan.reduced(requests=plan.requests * 7 // 8)
