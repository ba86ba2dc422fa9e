"""Leases with slots on a real engine that are cancelled at every await, among competitors and with lost answers.

Slots are returned at once, or are in use until their end if the answer to their release was lost.
"""

import asyncio
from contextlib import suppress

import pytest

from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faults import Drop, Nothing
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.test_every_await import opened
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from tests.limiter_async.test_every_await_of_slots import CHILD, LIMITS, PARENT, StoredSlots, program
from zae_limiter import RateLimiter, RateLimiterUnavailable

HELD = 4
"""The most slots that a lease of the program ever holds."""


@pytest.fixture
async def repo(proxy: Proxy):
    async with await opened(proxy.url, fresh_table_name()) as made:
        await made.set_system_defaults(LIMITS)
        await made.create_entity(PARENT)
        await made.create_entity(CHILD, parent_id=PARENT, cascade=True)
        yield made


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_lease_with_slots_cancelled_at_any_await_among_competitors_returns_them(repo, fails, again):
    """A competitor takes and returns slots all the time, so writes are refused and retried."""
    slots = StoredSlots(repo)
    await slots.rival()
    over = asyncio.Event()

    async def compete() -> None:
        while not over.is_set():
            await slots.rival()

    async def checked(number: int) -> CancelledAt:
        over.clear()
        rival = asyncio.create_task(compete())
        run = CancelledAt(program(RateLimiter(repo), fails=fails), number, again=again)
        await ended(run)
        over.set()
        await rival
        assert {CHILD: 0, PARENT: 0} == await slots.in_use(), f"cancelled at await {number}"
        return run

    assert 4 <= await cancelled_everywhere(checked)


@pytest.mark.parametrize("lost", range(8))
@pytest.mark.parametrize("applied", [False, True])
async def test_lost_answer_and_a_cancellation_never_return_a_slot_twice(repo, proxy, applied, lost):
    """Free and used slots are always the capacity, and at most the slots of one lease stay in use."""
    slots = StoredSlots(repo)
    await slots.rival()
    before = await slots.in_use()

    async def checked(number: int) -> CancelledAt:
        nonlocal before
        proxy.next(Nothing(), lost, "UpdateItem")
        proxy.next(Drop(applied=applied), 1, "UpdateItem")
        run = CancelledAt(program(RateLimiter(repo), fails=False), number)
        with suppress(RateLimiterUnavailable):
            await ended(run)
        proxy.clear_faults()
        after = await slots.in_use()
        kept = [after[one] - before[one] for one in after]
        assert all(0 <= one <= HELD for one in kept), f"cancelled at await {number}: {kept}"
        before = after
        return run

    assert 4 <= await cancelled_everywhere(checked)


async def test_loop_shutdown_returns_slots(repo):
    """The loop cancels every task, also those that settle."""
    slots, limiter, entered = StoredSlots(repo), RateLimiter(repo), asyncio.Event()

    async def work() -> None:
        async with limiter.acquire(CHILD, "gpt-4", {"rpy": 10, "slots": 3}):
            entered.set()
            await asyncio.sleep(3_600)

    task = asyncio.create_task(work())
    await entered.wait()
    while not task.done():
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)

    assert {CHILD: 0, PARENT: 0} == await slots.in_use()
