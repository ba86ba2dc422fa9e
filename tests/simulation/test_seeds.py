"""The invariants hold in fixed seeds, in new seeds, and in the runs that once found a bug."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.levels import ACROSS, LEVELS, TREE_FAULTS
from tests.simulation.plan import FAULTS, RESERVE, Plan, drawn_requests, plan_of
from tests.simulation.run import Report, simulate_seed
from tests.simulation.shrink import shrink

ROOT = Path(__file__).resolve().parents[2]

FIXED = 30
FRESH = 12


def _run(seed: int, clients: int | None = None, requests: int | None = None, without: Sequence[str] = ()) -> Plan:
    """Return a run of the time before there were trees and reserves."""
    return plan_of(seed).reduced(clients, requests or drawn_requests(seed), (*without, RESERVE, *TREE_FAULTS))


FOUND = {
    "a credit to a bucket with other limits": _run(22, 1, 204, ("config", "crash", "expiry", "shards")),
    "a credit to a bucket with other limits, in a crowd": _run(926, 5, 852, ("config", "crash")),
    "a request of no tokens on several shards": _run(7068, None, 119, ("stale",)),
    "a credit to a limit that a stale read lacked": _run(959, None, 17, ("crash",)),
    "a flood on a small bucket": _run(7817),
    "a request of nothing to an ancestor of several shards": _run(3_000_015, None, 28, ("defer",)),
    "a late credit on several shards": _run(4572, None, 103),
    "a charge of a limit that the recreated bucket lacks": _run(7384),
    "a top-up that was in flight for a long time": _run(333),
    "an expiry time from a clock before the baseline": _run(
        1406, 4, 29, ("copy", "crash", "delete", "late", "lost-request", "lost-response", "shards")
    ),
    "a bucket created by the time of an earlier plan": _run(
        279, 1, 1, ("cancel", "crash", "lost-request", "own-limits")
    ),
    "a debit charged again because a credit failed": _run(845, None, 59),
    "limits across resources that a cold client does not know": plan_of(244).reduced(None, 7, (RESERVE,)),
    "a crowd in which half the requests name an unknown limit": plan_of(2001022).reduced(2, 3135, (RESERVE,)),
}
"""Runs that once found a bug of the limiter or of a check, by what was wrong."""


def check(report: Report) -> None:
    """Fail with the command that replays the run, shrunk."""
    if report.violation is not None:
        small = shrink(report)
        pytest.fail(f"{small.violation}\nreplay it with: {small.plan.command}\nfirst seen as: {report.plan.command}")


@pytest.mark.parametrize("first", range(0, FIXED, 10))
def test_fixed_seeds_violate_no_invariant(first: int) -> None:
    """The invariants hold after every step of these runs."""
    reports = [simulate_seed(seed) for seed in range(first, first + 10)]

    for report in reports:
        check(report)
    assert 5_000 < sum(report.acquires for report in reports)


@pytest.mark.parametrize("part", range(2))
def test_new_seeds_violate_no_invariant(part: int) -> None:
    """The invariants hold after every step of runs that were never run before."""
    first = int.from_bytes(os.urandom(5)) * 2 + part

    for seed in range(first, first + FRESH // 2):
        check(simulate_seed(seed))


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_run_that_once_found_a_bug_violates_no_invariant(plan: Plan) -> None:
    """A run that found a bug is kept for good."""
    check(simulate_seed(plan.seed, plan))


def test_fixed_seeds_contain_every_fault_and_runs_without_faults() -> None:
    """The fixed seeds cover everything that a plan can draw."""
    plans = [plan_of(seed) for seed in range(FIXED)]

    assert set(FAULTS) == set().union(*(plan.faults for plan in plans))
    assert 5 < sum(plan.faults <= {LEVELS, ACROSS, RESERVE} for plan in plans)


def test_run_of_the_same_seed_is_identical_in_every_process() -> None:
    """Two processes with different hash seeds print the same digest."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "5"]
    printed = [
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout
        for hashes in ("1", "2")
    ]

    assert "digest" in printed[0]
    assert printed[0] == printed[1]


def test_command_of_a_reduced_plan_names_its_changes() -> None:
    """The command of a plan replays it."""
    plan = plan_of(3)

    assert "python -m tests.simulation --seed 3" == plan.command
    assert f"python -m tests.simulation --seed 3 --clients {plan.clients + 1} --steps 7" == (
        plan.reduced(clients=plan.clients + 1, requests=7).command
    )
