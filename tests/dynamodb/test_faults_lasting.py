"""Lasting faults: calls end within the deadline as the caller chose, and nothing is admitted without a charge."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.dynamodb.faults import Exchange, Fault, Nothing, Stall, throttled
from tests.dynamodb.faulty_table import (
    CONSUME,
    CREDITS,
    SCENARIOS,
    UNKNOWN_OUTCOMES,
    Actor,
    FaultyTable,
    Scenario,
    gives_back,
)
from tests.dynamodb.trees import KINDS
from zae_limiter import RateLimiterUnavailable

DEADLINE_S = 1.0
GENEROUS = 20
LASTING: dict[str, Fault] = {**UNKNOWN_OUTCOMES, "throttled": throttled()}
HEALTHY_ACQUIRES = 50
# There are two clients: one reads before it writes, and one cascades.
FEW_CONNECTIONS = 4


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


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
def test_a_take_during_a_lasting_fault_ends_within_the_deadline(faulty: FaultyTable, fault: Fault):
    """With block it is refused. However often it was sent, it was applied at most once."""
    actor = faulty.actor()
    actor.take()
    faulty.shorten_deadlines(DEADLINE_S)
    faulty.proxy.always(fault)
    took_s = timed(lambda: block(actor))
    faulty.clear_faults()

    assert took_s < DEADLINE_S * GENEROUS
    assert actor.used in (CONSUME, {"rpm": 2, "tpm": 20})


@pytest.mark.parametrize("choice", ["block", "allow"])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_every_kind_of_call_ends_within_the_deadline(faulty: FaultyTable, scenario: Scenario, choice: str):
    """All calls of an acquire share one deadline, and so do those on leaving."""
    actor = faulty.actor()
    actor.choice = choice
    planted_s: list[float] = []

    def plant() -> None:
        faulty.shorten_deadlines(DEADLINE_S)
        faulty.proxy.always(Stall(applied=True))
        planted_s.append(time.monotonic())

    try:
        scenario.act(actor, plant)
        failed = False
    except RateLimiterUnavailable:
        failed = True
    took_s = time.monotonic() - planted_s[0]
    faulty.clear_faults()

    assert (choice == "block") == failed
    # Leaving a lease has a deadline of its own.
    assert took_s < 2 * DEADLINE_S * GENEROUS
    # A take with an unknown outcome is charged again on leaving, never less than once.
    assert all(actor.used.get(name, 0) <= most + CONSUME[name] for name, most in scenario.used.items())


@pytest.mark.parametrize("scenario", CREDITS.values(), ids=CREDITS)
def test_a_credit_without_an_answer_ends_within_the_deadline(faulty: FaultyTable, scenario: Scenario):
    """It is sent once, and the caller sees no error."""
    actor = faulty.actor()
    actor.choice = "allow"
    planted_s: list[float] = []

    def plant() -> None:
        faulty.shorten_deadlines(DEADLINE_S)
        faulty.proxy.always(Stall(applied=False), scenario.target)
        planted_s.append(time.monotonic())

    scenario.act(actor, plant)
    took_s = time.monotonic() - planted_s[0]
    credits_sent = sum(gives_back(seen.body) for seen in faulty.proxy.seen)
    faulty.clear_faults()

    assert took_s < DEADLINE_S * GENEROUS
    assert 1 == credits_sent


@dataclass(frozen=True, slots=True)
class UnavailableParent:
    """Writes to parents stall, and optionally credits to a child."""

    giving_back: bool

    async def play(self, exchange: Exchange) -> None:
        body = exchange.request.body
        stalls = b"BUCKET#above-" in body or (self.giving_back and gives_back(json.loads(body)))
        await (Stall(applied=False) if stalls else Nothing()).play(exchange)


def test_an_unreachable_parent_leaves_the_child_uncharged(faulty: FaultyTable):
    """Both share the deadline, and the child gets its tokens back."""
    actor = faulty.actor()
    actor.have_parent()
    faulty.shorten_deadlines(DEADLINE_S)
    faulty.proxy.always(UnavailableParent(giving_back=False), "UpdateItem")
    took_s = timed(lambda: block(actor))
    faulty.clear_faults()

    assert took_s < DEADLINE_S * GENEROUS
    assert CONSUME == actor.used == faulty.ledger.used(actor.parent_id)


def test_a_cascade_and_its_rollback_share_one_deadline(faulty: FaultyTable):
    """A store that fails between the two does not extend the wait."""
    actor = faulty.actor()
    actor.have_parent()
    faulty.shorten_deadlines(DEADLINE_S)
    faulty.proxy.always(UnavailableParent(giving_back=True), "UpdateItem")
    took_s = timed(lambda: block(actor))
    faulty.clear_faults()

    assert took_s < DEADLINE_S * GENEROUS
    assert {"rpm": 2, "tpm": 20} == actor.used
    assert CONSUME == faulty.ledger.used(actor.parent_id)


@pytest.mark.parametrize("fault", LASTING.values(), ids=LASTING)
def test_an_allowed_take_leaves_working_connections(faulty: FaultyTable, fault: Fault):
    """The caller chose to allow. After the fault every acquire works, on few connections."""
    actor = faulty.actor()
    actor.take()
    before = actor.used["rpm"]
    faulty.shorten_deadlines(DEADLINE_S)
    faulty.proxy.always(fault)
    took_s = timed(lambda: allow(actor))
    faulty.clear_faults()
    for _ in range(HEALTHY_ACQUIRES):
        actor.take(on_unavailable="block")

    assert took_s < DEADLINE_S * GENEROUS
    # The proxy of a busy machine may read the last attempt of the allowed take only after the fault.
    assert actor.used["rpm"] - before - HEALTHY_ACQUIRES in (0, 1)
    assert faulty.proxy.open_connections <= FEW_CONNECTIONS
