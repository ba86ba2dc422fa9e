"""Requests that wait keep their invariants in many seeds, and the simulation notices broken rules."""

import pytest

from tests.simulation.waiting import noticed_by, run_seed
from tests.simulation.waiting_mutations import MUTATIONS

SEEDS = 150


def test_waiting_requests_keep_their_invariants():
    """Order, asks, and nothing forgotten or leaked; `python -m tests.simulation.waiting` runs more seeds."""
    found = {seed: violations for seed in range(SEEDS) if (violations := run_seed(seed).violations)}

    assert {} == found


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_rule_of_waiting_is_noticed(name):
    """Each mutation violates an invariant within a few seeds."""
    assert noticed_by(name, 60) is not None
