"""A fault met once: the caller is served, and the table has counted exactly what it was told."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from _pytest.mark import ParameterSet

from tests.dynamodb.faults import Fault, Stall
from tests.dynamodb.stage import (
    CLEAR,
    CREDITS,
    DOUBTS,
    FAULTS,
    PATIENT_S,
    SCENES,
    Actor,
    Scene,
    Stage,
    gives_back,
    is_applied,
)
from tests.dynamodb.trees import KINDS

# A stalled call is given up after half of the deadline.
STALLED_S = 2.0
GENEROUS = 5


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One for all: whatever went wrong before, the connections are good for the next."""
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def deadline_of(fault: Fault) -> float:
    return STALLED_S if isinstance(fault, Stall) else PATIENT_S


def play(actor: Actor, scene: Scene, fault: Fault) -> float:
    """Act, with the fault planted; how long it took from there."""
    planted_s: list[float] = []

    def plant() -> None:
        actor.stage.hurry(deadline_of(fault))
        actor.stage.proxy.next(fault, scene.meets, scene.target)
        planted_s.append(time.monotonic())

    scene.act(actor, plant)
    return time.monotonic() - planted_s[0]


def cases(scenes: dict[str, Scene], faults: dict[str, Fault]) -> list[ParameterSet]:
    """Every fault in every scene; but a call that stalls unapplied costs time, and is to the table what a drop is."""
    return [
        pytest.param(fault, scene, id=f"{named}-{name}")
        for named, fault in faults.items()
        for name, scene in scenes.items()
        if named != "stalled" or name in ("take", "first touch", "beside a debit")
    ]


@pytest.mark.parametrize(("fault", "scene"), cases(SCENES, FAULTS))
def test_a_fault_met_once_is_not_noticed(stage: Stage, fault: Fault, scene: Scene):
    """Whatever the call, it is made again where that is safe: admitted once, and charged once."""
    actor = stage.actor()
    took_s = play(actor, scene, fault)

    assert scene.meets == sum(seen.fault is fault for seen in stage.proxy.seen)
    assert scene.used == actor.used
    if scene.cascades:
        assert scene.used == stage.ledger.used(actor.parent_id)
    assert took_s < deadline_of(fault) * GENEROUS


@pytest.mark.parametrize(("fault", "scene"), cases(CREDITS, DOUBTS))
def test_a_credit_whose_fate_is_unknown_is_never_sent_again(stage: Stage, fault: Fault, scene: Scene):
    """It is given once or lost, never twice; a debit beside it is charged all the same, once."""
    actor = stage.actor()
    took_s = play(actor, scene, fault)

    assert 1 == sum(gives_back(seen.body) for seen in stage.proxy.seen)
    assert (scene.used if is_applied(fault) else scene.lost) == actor.used
    assert took_s < deadline_of(fault) * GENEROUS


@pytest.mark.parametrize(("fault", "scene"), cases(CREDITS, CLEAR))
def test_a_credit_that_was_surely_not_given_is_sent_again(stage: Stage, fault: Fault, scene: Scene):
    """Throttled, it was not carried out, and so is not lost."""
    actor = stage.actor()
    play(actor, scene, fault)

    assert scene.used == actor.used
