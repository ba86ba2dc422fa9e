"""Slots of a fleet: never more holders than the capacity, and all slots are free at the end."""

import pytest

from tests.mutations.catalogue import mutation_named
from tests.simulation.plan import RESERVE, SLOTS, Plan, with_slots
from tests.simulation.run import simulate_seed

SEEDS = range(100, 108)

FOUND = {
    "slots of a limit that a bucket got while a lease was open": with_slots(1054).reduced(
        1, 1, ("cancel", "config", "late")
    ),
    "a split of slots in use beyond the share": with_slots(4811).reduced(
        None, 14, ("config", "late", "step", "unreachable")
    ),
    "slots consumed while the store is unavailable": with_slots(8096).reduced(None, 46),
}
"""Runs that once found a bug of the limiter, by what was wrong."""

NOTICED = {
    "expired cohort returned as it was not seen": (105, "slots"),
    "expired cohort not removed": (104, "slots"),
    "lease that relies on a later end than its cohort": (100, "unbacked"),
    "slots released that the cohort lacks": (104, "slots"),
    "expiry without the hold": (116, "unbacked"),
    "capacity changed without the free slots": (104, "slots"),
}
"""Broken rules of slots, and the seed and the kind of the violation that notices each."""


def test_seeds_with_slots_violate_no_invariant() -> None:
    """Leases hold at most the capacity, whatever fails, and crashed holders do not keep their slots."""
    reports = [simulate_seed(seed, with_slots(seed)) for seed in SEEDS]

    assert [] == [str(report.violation) for report in reports if report.violation is not None]
    assert 300 < sum(report.tally["slots opened"] for report in reports)


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_run_with_slots_that_once_found_a_bug_violates_no_invariant(plan: Plan) -> None:
    """A run that found a bug is kept for good."""
    assert simulate_seed(plan.seed, plan).violation is None


@pytest.mark.parametrize(("name", "seed", "kind"), [(name, *run) for name, run in NOTICED.items()])
def test_seed_with_a_broken_rule_of_slots_violates_an_invariant(name: str, seed: int, kind: str) -> None:
    """The simulation notices a broken rule without the model."""
    with mutation_named(name).applied():
        violation = simulate_seed(seed, with_slots(seed).reduced(without=(RESERVE,))).violation

    assert violation is not None
    assert kind == violation.kind


def test_command_of_a_plan_with_slots_says_so() -> None:
    """The command of a plan replays it."""
    plan = with_slots(104)

    assert SLOTS in plan.faults
    assert "--slots" in plan.command
