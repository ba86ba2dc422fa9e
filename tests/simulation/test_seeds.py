"""Whatever fails, no limit gives more than it has: seeds of a simulated fleet, the same every time and new ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.plan import FAULTS, Plan, plan_of
from tests.simulation.run import Report, simulate_seed
from tests.simulation.shrink import shrink

ROOT = Path(__file__).resolve().parents[2]

FIXED = 36
FRESH = 16

FOUND = {
    "a give-back that met a bucket on other limits": plan_of(22).less(1, 204, ("config", "crash", "expiry", "shards")),
    "a give-back that met a bucket on other limits, in a crowd": plan_of(926).less(5, 852, ("config", "crash")),
    "nothing of any limit, asked of several shards": plan_of(7068).less(None, 119, ("stale",)),
    "a give-back to a limit that an old read lacked": plan_of(959).less(None, 17, ("crash",)),
    "a flood on a small bucket": plan_of(7817),
    "a give-back across shards that came late": plan_of(4572).less(None, 103),
    "a charge of a limit that a bucket was created again without": plan_of(7384),
    "a top-up that was in flight for long": plan_of(333),
    "an expiry dated by a clock before the baseline": plan_of(1406).less(
        4, 29, ("copy", "crash", "delete", "late", "lost-request", "lost-response", "shards")
    ),
}
"""Runs that have found something wrong with the limiter, or with a check of it, by what it was."""


def check(report: Report) -> None:
    """Fail with the one command that repeats a run, made as small as it fails."""
    if report.violation is not None:
        small = shrink(report)
        pytest.fail(f"{small.violation}\nrepeat it with: {small.plan.command}\nfirst seen as: {report.plan.command}")


@pytest.mark.parametrize("first", range(0, FIXED, 12))
def test_the_same_seeds_every_time(first: int) -> None:
    """All that is promised holds after every step of these runs."""
    reports = [simulate_seed(seed) for seed in range(first, first + 12)]

    for report in reports:
        check(report)
    assert 6_000 < sum(report.acquires for report in reports)


@pytest.mark.parametrize("part", range(2))
def test_new_seeds_every_time(part: int) -> None:
    """All that is promised holds after every step of runs that nobody has seen before."""
    first = int.from_bytes(os.urandom(5)) * 2 + part

    for seed in range(first, first + FRESH // 2):
        check(simulate_seed(seed))


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_what_was_found_once_stays_mended(plan: Plan) -> None:
    """A run that has found something is run for good."""
    check(simulate_seed(plan.seed, plan))


def test_every_fault_is_met() -> None:
    """The fixed seeds have everything in them that can go wrong, and runs in which nothing does."""
    plans = [plan_of(seed) for seed in range(FIXED)]

    assert set(FAULTS) == set().union(*(plan.faults for plan in plans))
    assert 5 < sum(not plan.faults for plan in plans)


def test_a_run_is_a_seed() -> None:
    """The same seed gives the same run, step by step, in any process, however Python orders its sets."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "5"]
    told = [
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout
        for hashes in ("1", "2")
    ]

    assert "digest" in told[0]
    assert told[0] == told[1]


def test_a_smaller_run_is_told_by_its_command() -> None:
    """What was made of a seed can be said in one line."""
    plan = plan_of(3)

    assert "python -m tests.simulation --seed 3" == plan.command
    assert f"python -m tests.simulation --seed 3 --clients {plan.clients + 1} --steps 7" == (
        plan.less(clients=plan.clients + 1, requests=7).command
    )
