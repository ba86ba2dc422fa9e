"""No rule of the protocol goes unnoticed: each is broken here, and the run that noticed it is made again."""

from dataclasses import replace

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.mutations import kept, search
from tests.simulation.plan import plan_of
from tests.simulation.run import simulate_seed

DEFENDED = [one for one in MUTANTS if not one.redundant]
CATCHES = kept()


@pytest.mark.parametrize("mutant", DEFENDED, ids=lambda one: one.name)
def test_a_broken_rule_is_noticed(mutant: Mutant) -> None:
    """The run that is kept notices it, and finds nothing wrong with the rule in place."""
    catch = CATCHES[mutant.name]
    with mutant.applied():
        broken = simulate_seed(catch.seed, catch.plan).violation
    whole = simulate_seed(catch.seed, catch.plan).violation

    told = (
        f"not noticed any more; find and keep another run: python -m tests.simulation.mutations --keep '{mutant.name}'"
    )
    assert broken is not None, told
    assert catch.kind == broken.kind
    assert broken.kind in mutant.kinds
    assert whole is None


def test_every_rule_has_a_run_and_every_run_a_rule() -> None:
    """Names are told once, and each has its run, found within a thousand seeds, or a reason why there can be none."""
    names = [one.name for one in MUTANTS]

    assert len(names) == len(set(names))
    assert {one.name for one in DEFENDED} == CATCHES.keys()
    assert 1_000 >= max(catch.tried for catch in CATCHES.values())


def test_a_rule_that_is_broken_where_it_does_not_matter_goes_unnoticed() -> None:
    """A search that finds nothing says so."""
    harmless = replace(DEFENDED[0], patches=())

    with harmless.applied():
        assert simulate_seed(0, plan_of(0).less(clients=1, requests=20)).violation is None
    assert search(DEFENDED[0].name, 0, smaller=False).catch is None
