"""The catalogue is complete, and the checks that use it are independent of each other."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations import __main__ as command
from tests.mutations.catalogue import MUTATIONS, mutation_named
from tests.mutations.mutation import Mutation

TESTS = Path(__file__).resolve().parents[1]
INVARIANTS = {
    "simulation": ("invariants", "holdings", "stream"),
    "model": ("invariants", "slots_invariants"),
    "promise": ("ledger", "shard_ledger"),
    "soak": ("accounts", "checks", "promise"),
}
"""The modules of each check that decide whether an invariant holds."""


def imported(path: Path) -> set[str]:
    """Return the modules that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    whole = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return whole | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_mutation_name_occurs_once() -> None:
    """A name identifies one mutation."""
    names = Counter(mutation.name for mutation in MUTATIONS)

    assert [] == [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_mutation_has_a_check_or_a_reason_why_none_can_notice(mutation: Mutation) -> None:
    """A mutation is noticed by at least one check, or is redundant, and never both."""
    checks = (mutation.simulation, *mutation.model, *mutation.slot_model, *mutation.promise, mutation.soak)

    assert any(checks) == (mutation.redundant is None)
    assert mutation.redundant is None or mutation.redundant.reason


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_mutation_without_patches_is_broken_by_each_of_its_checks(mutation: Mutation) -> None:
    """A check breaks the rule by the patches of the mutation, or in a way of its own."""
    own_ways = [bool(check.rules) for check in mutation.model] + [bool(check.patches) for check in mutation.promise]

    assert mutation.patches or (all(own_ways) and mutation.simulation is None)


@pytest.mark.parametrize(
    ("check", "module"), [(check, module) for check, modules in INVARIANTS.items() for module in modules]
)
def test_invariants_of_a_check_import_no_other_check_and_no_mutation(check: str, module: str) -> None:
    """A bug in the invariants of one check cannot hide a fault from the others."""
    others = tuple(f"tests.{name}" for name in (*INVARIANTS, "mutations") if name != check)

    assert [] == [name for name in imported(TESTS / check / f"{module}.py") if name.startswith(others)]


def test_unknown_mutation_exits_with_a_hint() -> None:
    """The error names the command that prints all names."""
    with pytest.raises(SystemExit, match="--list"):
        mutation_named("no such rule")


def test_list_prints_every_mutation_and_no_unnoticed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list has one row per mutation, and a kept run for each that the simulation must notice."""
    monkeypatch.setattr("sys.argv", ["mutations", "--list"])

    assert 0 == command.main()
    printed = capsys.readouterr().out
    assert len(MUTATIONS) + 2 == len(printed.splitlines())
    assert "NOT NOTICED" not in printed
