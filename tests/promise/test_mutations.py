"""Each mutation that the promise tests must notice breaks the promise in one of 600 random runs."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import ONE_BUCKET, SHARDED_BUCKET, Mutation, PromiseCheck, patched
from tests.promise import random_run, shard_random_run
from tests.promise.ledger import BrokenPromiseError

RUNS = 600
WORLDS: dict[str, tuple[Callable[[int, int], Any], int]] = {
    ONE_BUCKET: (random_run.run_random, 150),
    SHARDED_BUCKET: (shard_random_run.run_random, 200),
}
"""The function that runs a seed in each world, and the number of its steps."""


CASES = [
    pytest.param(mutation, check, id=f"{mutation.name} in {check.world}")
    for mutation in MUTATIONS
    for check in mutation.promise
]


def run_all(check: PromiseCheck) -> None:
    """Run all seeds in the world of a check."""
    run, steps = WORLDS[check.world]
    for seed in range(RUNS):
        run(seed, steps)


@pytest.mark.parametrize(("mutation", "check"), CASES)
def test_promise_with_a_broken_rule_is_broken(mutation: Mutation, check: PromiseCheck) -> None:
    """Each bound, hold and half prevents something: without it, one of the runs breaks the promise."""
    with patched(check.patches or mutation.patches), pytest.raises(BrokenPromiseError):
        run_all(check)
