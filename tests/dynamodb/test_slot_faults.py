"""Slots and lost answers: a take is applied once, a release is never resent, a renewal is resent with its token."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.faults import Drop, Fault, Stall
from tests.dynamodb.faulty_table import LONG_DEADLINE_S, UNKNOWN_OUTCOMES, Actor, FaultyTable, is_applied
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.trees import KINDS
from tests.limiter_sync.test_slot_threads import wait_until
from zae_limiter import Limit
from zae_limiter.caches.slot_holds import SlotHold

CAPACITY, HOLD_S = 5, 600
LIMITS = [Limit.per_day("rpm", 1_000), Limit.concurrent("slots", CAPACITY, hold_seconds=HOLD_S)]
CONSUME = {"rpm": 1, "slots": 1}
UPDATE, TRANSACT = "UpdateItem", "TransactWriteItems"
FAULTS = {name: fault for name, fault in UNKNOWN_OUTCOMES.items() if not isinstance(fault, Stall)}


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        made = FaultyTable(request.param, stack)
        made.limiter(LONG_DEADLINE_S).set_system_defaults(LIMITS)
        yield made


@pytest.fixture
def actor(faulty: FaultyTable) -> Actor:
    made = faulty.actor()
    with acquire(made):
        pass
    faulty.proxy.forget()
    return made


def acquire(actor: Actor, **options: Any) -> Any:
    return actor.limiter.acquire(actor.entity_id, RESOURCE, CONSUME, **options)


def slots(actor: Actor) -> tuple[int, int]:
    """Return the free slots and those in use, as they are stored."""
    (item,) = actor.faulty.ledger.shards(actor.entity_id)
    used = [milli for name, milli in item.items() if name[:9] == "b_slots_h" and name[9:].isdigit()]
    return item["b_slots_tk"] // 1000, sum(used) // 1000


def sent(actor: Actor, target: str) -> list[Any]:
    """Return the bodies of requests that were sent since the start."""
    return [seen.body for seen in actor.faulty.proxy.seen if seen.target == target]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_take_with_a_lost_answer_takes_one_slot(actor: Actor, fault: Fault):
    """It is sent again, and applied once."""
    actor.faulty.proxy.next(fault, 1, UPDATE)
    with acquire(actor):
        during = slots(actor)

    assert (CAPACITY - 1, 1) == during
    assert (CAPACITY, 0) == slots(actor)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_release_with_a_lost_answer_is_never_sent_again(actor: Actor, fault: Fault):
    """Its slot is returned once, or at the end of its hold."""
    with acquire(actor):
        actor.faulty.proxy.forget()
        actor.faulty.proxy.next(fault, 1, UPDATE)

    assert 1 == len(sent(actor, UPDATE))
    assert ((CAPACITY, 0) if is_applied(fault) else (CAPACITY - 1, 1)) == slots(actor)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_debit_of_a_settlement_with_a_lost_answer_is_sent_again_without_its_slot(actor: Actor, fault: Fault):
    """The debit is charged once. The slot is returned once, or at the end of its hold."""
    used = actor.used["rpm"]
    with acquire(actor) as lease:
        lease.adjust(rpm=3)
        actor.faulty.proxy.next(fault, 1, UPDATE)

    assert used + 1 + 3 == actor.used["rpm"]
    assert CAPACITY == sum(slots(actor))
    assert slots(actor)[1] == (0 if is_applied(fault) else 1)


@pytest.mark.parametrize("applied", [False, True])
def test_renewal_with_a_lost_answer_is_sent_again_with_its_token(actor: Actor, applied: bool):
    """It is applied once, and the slot stays in use."""
    with acquire(actor) as lease:
        (hold,) = getattr(lease, "_target", lease)._slots.values()
        before_ms = hold.end_ms
        actor.faulty.proxy.next(Drop(applied=applied), 1, TRANSACT)
        renew_late(actor, hold)
        during, after_ms = slots(actor), hold.end_ms
    bodies = sent(actor, TRANSACT)

    assert after_ms == before_ms + HOLD_S * 500
    assert 2 == len(bodies)
    assert 1 == len({body["ClientRequestToken"] for body in bodies})
    assert ((CAPACITY - 1, 1), (CAPACITY, 0)) == (during, slots(actor))


def renew_late(actor: Actor, hold: SlotHold) -> None:
    """Renew on the thread as if half the hold were left."""
    renewals = getattr(actor.limiter, "_target", actor.limiter)._client.slots
    end_ms, hold.jitter = hold.end_ms, 1
    renewals._now = lambda: (end_ms - HOLD_S * 500,) * 2
    try:
        renewals._thread.wake_in(0)
        wait_until(lambda: hold.end_ms > end_ms)
    finally:
        renewals._now = renewals._scope.table.now
