"""The model of slots: no reachable state violates an invariant, and every broken rule does."""

import pytest

from tests.model import slots as command
from tests.model.slots import explore
from tests.model.slots_configs import SLOT_CONFIGS, SlotConfig, slot_config
from tests.mutations.catalogue import MUTATIONS, mutation_named
from tests.mutations.mutation import Mutation, SlotModelCheck

STATES = 2_500
"""What CI explores of each configuration. ``python -m tests.model.slots`` explores all of it, for minutes."""

COSTLY = 20_000
"""States; mutations that need more are only explored by the command."""

WRITES = {
    "create",
    "take",
    "take across",
    "rebase",
    "release",
    "renew",
    "split",
    "merge",
}

MUTATED = [
    pytest.param(mutation, check, id=mutation.name)
    for mutation in MUTATIONS
    for check in mutation.slot_model
    if not check.is_costly
]


def test_exploration_of_slots_violates_no_invariant_and_applies_every_write() -> None:
    """The invariants hold in the nearest states of every configuration, however often messages are lost or late."""
    kinds: set[str] = set()
    for config in SLOT_CONFIGS:
        explored = explore(config, most=STATES)
        kinds |= explored.kinds

        assert explored.violation is None, str(explored)
    assert WRITES <= kinds


@pytest.mark.parametrize(("mutation", "check"), MUTATED)
def test_model_of_slots_with_a_broken_rule_violates_its_invariant(mutation: Mutation, check: SlotModelCheck) -> None:
    """Each condition prevents something, which the shortest trace without it shows."""
    with mutation.applied():
        explored = explore(check.config, most=COSTLY)

    assert explored.violation is not None, f"not noticed in {explored.states} states"
    assert (check.breaks, check.steps) == (explored.violation.invariant, len(explored.trace)), str(explored)


def test_violation_of_slots_is_printed_as_its_shortest_steps() -> None:
    """Each step shows the item after it."""
    with mutation_named("slots released to another bucket").applied():
        lines = str(explore(slot_config("deleted"))).splitlines()

    assert "violates backed: 1000 of s are relied on" in lines[1]
    assert 4 == len(lines[2:])


def test_command_of_slots_prints_one_line_per_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0 if no invariant is violated."""
    assert 0 == command.main(["--config", "slow", "--most", "500"])
    assert capsys.readouterr().out.startswith("slow ")


@pytest.mark.parametrize("config", SLOT_CONFIGS, ids=lambda one: one.name)
def test_deepened_configuration_of_slots_has_larger_bounds(config: SlotConfig) -> None:
    """A long run explores states that a short one does not."""
    assert config.deepened().writes > config.writes
