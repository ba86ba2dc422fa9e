"""A single fault: the caller succeeds, and the table has counted exactly what the caller was told."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from _pytest.mark import ParameterSet

from tests.dynamodb.faults import Fault, Stall
from tests.dynamodb.faulty_table import (
    CREDITS,
    DEFINITE_OUTCOMES,
    FAULTS,
    LONG_DEADLINE_S,
    SCENARIOS,
    UNKNOWN_OUTCOMES,
    Actor,
    FaultyTable,
    Scenario,
    gives_back,
    is_applied,
)
from tests.dynamodb.trees import KINDS

# A stalled call is given up after half of the deadline.
STALLED_S = 2.0
GENEROUS = 5


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    """One for all tests: earlier faults do not affect later connections."""
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def deadline_of(fault: Fault) -> float:
    return STALLED_S if isinstance(fault, Stall) else LONG_DEADLINE_S


def play(actor: Actor, scenario: Scenario, fault: Fault) -> float:
    """Run a scenario with its fault; return the seconds since the fault was injected."""
    planted_s: list[float] = []

    def plant() -> None:
        actor.faulty.shorten_deadlines(deadline_of(fault))
        actor.faulty.proxy.next(fault, scenario.meets, scenario.target)
        planted_s.append(time.monotonic())

    scenario.act(actor, plant)
    return time.monotonic() - planted_s[0]


def cases(scenarios: dict[str, Scenario], faults: dict[str, Fault]) -> list[ParameterSet]:
    """Return every fault in every scenario.

    Most stalls without effect are left out: they take time, and are the same as a drop for the
    table.
    """
    return [
        pytest.param(fault, scenario, id=f"{named}-{name}")
        for named, fault in faults.items()
        for name, scenario in scenarios.items()
        if named != "stalled" or name in ("take", "first touch", "beside a debit")
    ]


@pytest.mark.parametrize(("fault", "scenario"), cases(SCENARIOS, FAULTS))
def test_a_single_fault_is_hidden_from_the_caller(faulty: FaultyTable, fault: Fault, scenario: Scenario):
    """Calls are retried if that is safe; the request is admitted once and charged once."""
    actor = faulty.actor()
    took_s = play(actor, scenario, fault)

    assert scenario.meets == sum(seen.fault is fault for seen in faulty.proxy.seen)
    assert scenario.used == actor.used
    if scenario.cascades:
        assert scenario.used == faulty.ledger.used(actor.parent_id)
    assert took_s < deadline_of(fault) * GENEROUS


@pytest.mark.parametrize(("fault", "scenario"), cases(CREDITS, UNKNOWN_OUTCOMES))
def test_a_credit_with_an_unknown_outcome_is_never_retried(faulty: FaultyTable, fault: Fault, scenario: Scenario):
    """It is applied once or lost, never twice. A debit in the same write is charged once."""
    actor = faulty.actor()
    took_s = play(actor, scenario, fault)

    assert 1 == sum(gives_back(seen.body) for seen in faulty.proxy.seen)
    assert (scenario.used if is_applied(fault) else scenario.lost) == actor.used
    assert took_s < deadline_of(fault) * GENEROUS


@pytest.mark.parametrize(("fault", "scenario"), cases(CREDITS, DEFINITE_OUTCOMES))
def test_a_credit_that_was_definitely_not_applied_is_retried(faulty: FaultyTable, fault: Fault, scenario: Scenario):
    """A throttled credit was not applied, and is not lost."""
    actor = faulty.actor()
    play(actor, scenario, fault)

    assert scenario.used == actor.used
