"""Leases with slots that are interrupted at any bytecode: no slot is in use beyond its hold, or returned twice."""

import gc

import pytest

from tests._async.clients import SettableClock
from tests.interrupts.interrupt_at import every_interrupt
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.schema.bucket_item import bucket_key

CAPACITY = 1_000
LIMITS = [Limit.per_minute("rpm", 10_000), Limit.concurrent("slots", CAPACITY, hold_seconds=60)]


def held(limiter):
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "slots": 1}) as lease:
        lease.consume(slots=1)
        lease.release(slots=1)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_slots_of_an_interrupted_lease_are_free_after_their_hold(store, tmp_path):
    """A lease that nothing refers to any more is not renewed."""
    clock = SettableClock()
    repo = SyncRepository.open("memory://" if store == "memory" else f"sqlite:///{tmp_path / 'x.db'}", clock=clock)
    repo.set_system_defaults(LIMITS)
    limiter = SyncRateLimiter(repo)
    key = bucket_key(repo.scope.namespace_id, "user-1", "gpt-4")
    wrong = []

    def prepared():
        held(limiter)
        return limiter

    for _, where in every_interrupt(prepared, held):
        gc.collect(0)
        for _ in range(12):
            clock.advance(10_000)
            limiter._client.slots.renew_due()
        item = repo.scope.table.get(key, consistent=True)
        used = sum(milli for name, milli in item.items() if name[:9] == "b_slots_h" and name[9:].isdigit())
        if item["b_slots_tk"] + used != CAPACITY * 1000 or limiter.available("user-1", "gpt-4")["slots"] != CAPACITY:
            wrong.append((where, limiter.available("user-1", "gpt-4")["slots"]))
            limiter._client.slots.holds._holds.clear()
            clock.advance(200_000)
    repo.close()

    assert [] == wrong
