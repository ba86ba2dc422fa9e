"""Break a rule in the model: by the mutated writers, or by its own rules if it has no such function."""

from dataclasses import fields, replace

from tests.model.explorer import Explored, explore
from tests.model.rules import REAL, Rules
from tests.mutations.mutation import ModelCheck, Mutation
from zae_limiter.schema import bucket_writes

_WRITERS = {field.name for field in fields(Rules)}


def mutated_rules(mutation: Mutation, check: ModelCheck) -> Rules:
    """Return the rules of the model with a mutation."""
    if check.rules:
        return replace(REAL, **check.rules)
    writers = [patch for patch in mutation.patches if patch.owner is bucket_writes and patch.name in _WRITERS]
    assert writers, f"{mutation.name} mutates no writer that the model knows"
    return replace(REAL, **{name: around(getattr(REAL, name)) for _, name, around in writers})


def explore_mutated(mutation: Mutation, check: ModelCheck) -> Explored:
    """Explore the configuration of a check with a mutation, until the invariant of the check is violated."""
    return explore(check.config, mutated_rules(mutation, check), frozenset({check.breaks}))
