"""The simulation notices a broken rule: the kept run of each mutation is replayed."""

from dataclasses import replace

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation
from tests.simulation.mutations import kept_runs, search
from tests.simulation.plan import plan_of
from tests.simulation.run import simulate_seed

TO_NOTICE = [mutation for mutation in MUTATIONS if mutation.simulation]
KEPT_RUNS = kept_runs()


@pytest.mark.parametrize("mutation", TO_NOTICE, ids=lambda one: one.name)
def test_kept_run_with_its_mutation_violates_an_invariant(mutation: Mutation) -> None:
    """The kept run notices the mutation, and finds no violation without it."""
    run = KEPT_RUNS[mutation.name]
    with mutation.applied():
        mutated = simulate_seed(run.seed, run.plan).violation
    unmutated = simulate_seed(run.seed, run.plan).violation

    hint = f"not noticed any more; find and keep another run: python -m tests.mutations --keep '{mutation.name}'"
    assert mutated is not None, hint
    assert run.kind == mutated.kind
    assert mutation.simulation is not None
    assert mutated.kind in mutation.simulation.kinds
    assert unmutated is None


def test_every_mutation_to_notice_has_a_kept_run() -> None:
    """Each mutation that the simulation has to notice has one run, found within a thousand seeds."""
    assert {mutation.name for mutation in TO_NOTICE} == KEPT_RUNS.keys()
    assert 1_000 >= max(run.tried for run in KEPT_RUNS.values())


def test_run_with_a_mutation_that_changes_nothing_has_no_violation() -> None:
    """A mutation without patches is not noticed, and a search over no seeds finds no run."""
    harmless = replace(TO_NOTICE[0], patches=())

    with harmless.applied():
        assert simulate_seed(0, plan_of(0).reduced(clients=1, requests=20)).violation is None
    assert search(TO_NOTICE[0].name, 0, smaller=False).found is None
