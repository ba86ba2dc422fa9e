"""Faults that last: an answer within the deadline, as the caller chose, and nothing admitted that was not charged."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.dynamodb.faults import Exchange, Fault, Nothing, Stall, throttled
from tests.dynamodb.stage import CONSUME, CREDITS, DOUBTS, SCENES, Actor, Scene, Stage, gives_back
from tests.dynamodb.trees import KINDS
from zae_limiter import RateLimiterUnavailable

DEADLINE_S = 1.0
GENEROUS = 20
LASTING: dict[str, Fault] = {**DOUBTS, "throttled": throttled()}
HEALTHY_ACQUIRES = 50
# Of the two clients there are, one reads before it writes, and one cascades.
FEW_CONNECTIONS = 4


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def timed(act: Callable[[], None]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


def block(actor: Actor) -> None:
    with pytest.raises(RateLimiterUnavailable) as caught:
        actor.take(on_unavailable="block")
    assert (actor.entity_id, "api") == (caught.value.entity_id, caught.value.resource)


def allow(actor: Actor) -> None:
    with actor.acquire(on_unavailable="allow") as lease:
        assert lease.degraded
        lease.adjust(tpm=5)


@pytest.mark.parametrize("fault", LASTING.values(), ids=LASTING)
def test_a_take_ends_within_the_deadline(stage: Stage, fault: Fault):
    """Refused, where the caller chose to block; however often it was sent, it was applied at most once."""
    actor = stage.actor()
    actor.take()
    stage.hurry(DEADLINE_S)
    stage.proxy.always(fault)
    took_s = timed(lambda: block(actor))
    stage.calm()

    assert took_s < DEADLINE_S * GENEROUS
    assert actor.used in (CONSUME, {"rpm": 2, "tpm": 20})


@pytest.mark.parametrize("choice", ["block", "allow"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_every_kind_of_call_ends_within_the_deadline(stage: Stage, scene: Scene, choice: str):
    """Of whatever calls an acquire is made, all of them share one deadline; so do those of its end."""
    actor = stage.actor()
    actor.choice = choice
    planted_s: list[float] = []

    def plant() -> None:
        stage.hurry(DEADLINE_S)
        stage.proxy.always(Stall(applied=True))
        planted_s.append(time.monotonic())

    try:
        scene.act(actor, plant)
        failed = False
    except RateLimiterUnavailable:
        failed = True
    took_s = time.monotonic() - planted_s[0]
    stage.calm()

    assert (choice == "block") == failed
    # Leaving a lease has a deadline of its own.
    assert took_s < 2 * DEADLINE_S * GENEROUS
    # What was let through in doubt is charged again at the end, never less than once.
    assert all(actor.used.get(name, 0) <= most + CONSUME[name] for name, most in scene.used.items())


@pytest.mark.parametrize("scene", CREDITS.values(), ids=CREDITS)
def test_a_credit_that_gets_no_answer_ends_within_the_deadline(stage: Stage, scene: Scene):
    """It was sent once, and whoever gives back has nothing to fear."""
    actor = stage.actor()
    actor.choice = "allow"
    planted_s: list[float] = []

    def plant() -> None:
        stage.hurry(DEADLINE_S)
        stage.proxy.always(Stall(applied=False), scene.target)
        planted_s.append(time.monotonic())

    scene.act(actor, plant)
    took_s = time.monotonic() - planted_s[0]
    credits_sent = sum(gives_back(seen.body) for seen in stage.proxy.seen)
    stage.calm()

    assert took_s < DEADLINE_S * GENEROUS
    assert 1 == credits_sent


@dataclass(frozen=True, slots=True)
class ParentAway:
    """Writes to parents stall; giving back to a child does too, if it shall."""

    giving_back: bool

    async def play(self, exchange: Exchange) -> None:
        body = exchange.request.body
        away = b"BUCKET#above-" in body or (self.giving_back and gives_back(json.loads(body)))
        await (Stall(applied=False) if away else Nothing()).play(exchange)


def test_a_parent_out_of_reach_leaves_the_child_uncharged(stage: Stage):
    """Both share the deadline, and the child gets its tokens back."""
    actor = stage.actor()
    actor.have_parent()
    stage.hurry(DEADLINE_S)
    stage.proxy.always(ParentAway(giving_back=False), "UpdateItem")
    took_s = timed(lambda: block(actor))
    stage.calm()

    assert took_s < DEADLINE_S * GENEROUS
    assert CONSUME == actor.used == stage.ledger.used(actor.parent_id)


def test_a_cascade_and_its_giving_back_share_one_deadline(stage: Stage):
    """A store that goes away between the two is away no longer than a store that was away from the beginning."""
    actor = stage.actor()
    actor.have_parent()
    stage.hurry(DEADLINE_S)
    stage.proxy.always(ParentAway(giving_back=True), "UpdateItem")
    took_s = timed(lambda: block(actor))
    stage.calm()

    assert took_s < DEADLINE_S * GENEROUS
    assert {"rpm": 2, "tpm": 20} == actor.used
    assert CONSUME == stage.ledger.used(actor.parent_id)


@pytest.mark.parametrize("fault", LASTING.values(), ids=LASTING)
def test_a_take_is_let_through_and_the_connections_are_good_afterwards(stage: Stage, fault: Fault):
    """Where the caller chose to allow. Once all is calm every acquire works, on connections that are few."""
    actor = stage.actor()
    actor.take()
    before = actor.used["rpm"]
    stage.hurry(DEADLINE_S)
    stage.proxy.always(fault)
    took_s = timed(lambda: allow(actor))
    stage.calm()
    after = actor.used["rpm"]
    for _ in range(HEALTHY_ACQUIRES):
        actor.take(on_unavailable="block")

    assert took_s < DEADLINE_S * GENEROUS
    assert after - before in (0, 1)
    assert after + HEALTHY_ACQUIRES == actor.used["rpm"]
    assert stage.proxy.open_connections <= FEW_CONNECTIONS
