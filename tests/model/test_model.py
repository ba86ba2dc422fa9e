"""Every reachable state of small buckets is explored, and no invariant is violated."""

from dataclasses import replace
from random import Random

import pytest

from tests.model import __main__ as command
from tests.model.config import Config
from tests.model.configs import CONFIGS, config
from tests.model.explorer import explore
from tests.model.mutations import explore_mutated
from tests.model.rules import OLDER
from tests.model.state import State
from tests.model.world import World
from tests.mutations.catalogue import MUTATIONS, mutation_named
from tests.mutations.mutation import ModelCheck, Mutation

WRITES = {
    "takes": {"create", "take"},
    "efforts": {"create", "take"},
    "settle": {"create", "take", "debit", "credit"},
    "combined": {"create", "take", "debit", "credit", "take + debit", "take + credit"},
    "combined limits": {"create", "take", "debit", "credit", "take + debit", "take + credit"},
    "combined deleted": {"create", "take", "debit", "credit", "take + debit", "take + credit"},
    "combined late": {"create", "take", "debit", "credit", "take + debit", "take + credit"},
    "late": {"create", "take"},
    "delay": {"create", "take"},
    "top-ups": {"create", "take", "top-up", "credit"},
    "top-ups late": {"create", "take", "top-up"},
    "speeds": {"create", "take"},
    "stored": {"create", "take", "rebase"},
    "own": {"create", "rebase", "take"},
    "added": {"create", "rebase", "take"},
    "expiry": {"create", "take", "debit"},
    "deleted": {"create", "take", "debit", "credit"},
    "resets": {"create", "take", "debit", "credit", "reset"},
    "resets limits": {"create", "rebase", "take", "reset"},
    "resets unsure": {"create", "take", "top-up", "reset"},
    "resets expiry": {"create", "take", "debit", "reset"},
    "operator credits": {"create", "take", "debit", "credit", "grant"},
    "operator credits limits": {"create", "rebase", "take", "grant"},
    "shards": {"take", "split", "merge"},
    "resets shards": {"take", "credit", "reset", "split", "merge"},
    "operator credits shards": {"take", "grant", "split", "merge"},
    "reborn": {"create", "take", "credit", "split", "merge"},
    "rivals": {"take", "split", "merge"},
    "torn": {"take", "split", "merge"},
    "across": {"take", "take across", "split", "merge"},
    "refunds": {"take", "credit", "split", "merge"},
    "reserves": {"create", "take"},
    "reserves rebased": {"create", "rebase", "take"},
    "reserves combined": {"create", "take", "debit", "credit", "take + debit", "take + credit"},
    "reserves across": {"take", "take across", "split", "merge"},
}
"""The writes that are applied somewhere in each configuration."""

MUTATED = [
    pytest.param(mutation, check, id=f"{mutation.name} in {check.config.name}{' by own rules' if check.rules else ''}")
    for mutation in MUTATIONS
    for check in mutation.model
]


@pytest.mark.parametrize("explored", CONFIGS, ids=lambda one: one.name)
def test_exploration_of_a_configuration_violates_no_invariant(explored: Config) -> None:
    """The invariants hold in every reachable state, however often requests and answers are lost."""
    result = explore(explored)

    assert result.violation is None, str(result)
    assert WRITES[explored.name] == result.writes


@pytest.mark.parametrize("name", ["expiry", "own", "rivals"])
def test_exploration_without_birth_numbers_violates_no_invariant(name: str) -> None:
    """The hold on items of an older version requires baseline, stamp, digest, shard count and generation."""
    result = explore(config(name), OLDER)

    assert result.violation is None, str(result)


@pytest.mark.parametrize(("mutation", "check"), MUTATED)
def test_model_with_a_broken_rule_violates_its_invariant(mutation: Mutation, check: ModelCheck) -> None:
    """Each bound, hold and clamp prevents something, which the shortest trace without it shows."""
    trace = explore_mutated(mutation, check).violation

    assert trace is not None
    assert (check.breaks, check.steps) == (trace.violation.invariant, len(trace)), str(trace)


def offers(world: World, state: State) -> object:
    """Return what can be compared between a folded and an unfolded state."""
    names, pool = world.config.names, world.pool
    views = [(actor.views, actor.held, actor.job, actor.late_write is not None) for actor in state.actors]
    return (
        [[pool.level(one, name, state.phase) for name in names] for one in state.items],
        [[[pool.level(one, name, state.phase) for name in names] for one in seen] for seen, *_ in views],
        [rest for _, *rest in views],
        state.ledger,
    )


@pytest.mark.parametrize("walked", CONFIGS, ids=lambda one: one.name)
def test_folded_state_has_the_same_moves_and_levels_as_the_unfolded_one(walked: Config) -> None:
    """Renumbering times changes nothing: the same moves are possible, and lead to the same levels."""
    folded, unfolded = World(walked), World(replace(walked, turns=64))
    for seed in range(10):
        random, here, there = Random(seed), folded.start(), unfolded.start()
        for _ in range(60):
            moves = list(folded.moves(here))
            assert moves == list(unfolded.moves(there))
            move = random.choice([*moves, moves[-1]])
            # A tick that changes only the time is no move after times were renumbered.
            here, there = folded.after(here, move) or here, unfolded.after(there, move) or there
            assert offers(unfolded, there) == offers(folded, here), move


def test_violation_is_printed_as_its_shortest_steps() -> None:
    """Each step shows what the bucket offers after it, and what was used beyond the earnings."""
    mutation = mutation_named("create over another")

    printed = str(explore_mutated(mutation, mutation.model[0]).violation)

    assert [
        "violates promise: 3000 of fast used beyond what was earned, of 2000 at most after 2 steps:",
        "    1. client 0 sends ask 1 fast by what it saw (-) answered            offers 1; used 1",
        "    2. client 1 sends ask 2 fast by what it saw (-) answered",
    ] == printed.splitlines()


def test_command_prints_one_line_per_configuration_and_returns_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0 if no invariant is violated."""
    code = command.main(["--config", "takes"])

    assert 0 == code
    name, states, *_ = capsys.readouterr().out.split()
    assert ("takes", True) == (name, int(states) > 100)


def test_deepened_configuration_has_larger_bounds() -> None:
    """A long run explores states that a short one does not."""
    assert all(one.deepened() != one for one in CONFIGS)
    assert explore(config("takes").deepened(), most=2_000).states >= 2_000
