"""Quotas of a fleet: never more than the amount in a period, and the full amount at each edge."""

import pytest

from tests.simulation.plan import QUOTAS, RESERVE, Plan, with_quotas
from tests.simulation.quota_mutations import broken
from tests.simulation.run import simulate_seed

SEEDS = range(200, 208)

FOUND = {
    "limits that change while shards are tried": with_quotas(200550).reduced(
        None, None, ("cancel", "cancel-settling", "delete")
    ),
    "a credit given again beside a debit whose answer was lost": with_quotas(202703).reduced(
        5, None, ("config", "copy", "crash", "stale")
    ),
    "a rejected batch that must leave a reserve on shards": with_quotas(200597),
}
"""Runs that once found a bug of the limiter, by what was wrong."""

NOTICED = {
    "quota that keeps its epoch": (0, "withheld"),
    "refund of twice the amount": (0, "made"),
    "soft limit that rejects": (1, "refused"),
    "take without its lower bound": (2, "overdrawn"),
    "take that adds where it must set": (0, "overdrawn"),
    "take that sets without a floor": (5, "made"),
    "credit without its bounds": (2, "band"),
    "credit beyond what is spent": (2, "band"),
    "changed schedule that refills": (5, "made"),
    "edge without tolerance": (0, "refilled"),
}
"""Broken rules of quotas, and the seed and the kind of the violation that notices each."""


def test_seeds_with_quotas_violate_no_invariant() -> None:
    """Whatever fails, each period sees at most its amount, and what is forgotten has ended."""
    reports = [simulate_seed(seed, with_quotas(seed)) for seed in SEEDS]

    assert [] == [str(report.violation) for report in reports if report.violation is not None]
    assert 100 < sum(report.tally["takes of quotas"] for report in reports)
    assert 5 < sum(report.tally["edges"] for report in reports)


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_run_with_quotas_that_once_found_a_bug_violates_no_invariant(plan: Plan) -> None:
    """A run that found a bug is kept for good."""
    assert simulate_seed(plan.seed, plan).violation is None


@pytest.mark.parametrize(("name", "seed", "kind"), [(name, *run) for name, run in NOTICED.items()])
def test_seed_with_a_broken_rule_of_quotas_violates_an_invariant(name: str, seed: int, kind: str) -> None:
    """The simulation notices a broken rule without the model."""
    with broken(name):
        violation = simulate_seed(seed, with_quotas(seed).reduced(without=(RESERVE,))).violation

    assert violation is not None
    assert kind == violation.kind


def test_command_of_a_plan_with_quotas_says_so() -> None:
    """The command of a plan replays it."""
    plan = with_quotas(104)

    assert QUOTAS in plan.faults
    assert "--quotas" in plan.command
