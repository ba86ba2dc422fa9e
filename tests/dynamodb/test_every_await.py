"""Leases on a real engine that are cancelled at every await, with competing clients and lost answers.

Child and parent are settled exactly once. A credit with a lost answer is given up, and never
applied twice.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faults import Drop
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import session
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from tests.limiter_async.test_every_await import CHILD, LIMITS, PARENT, Levels, Program
from zae_limiter import RateLimiter, RateLimiterUnavailable, Repository

DEADLINE_S = 30.0
HELD = 18
"""The most that a lease of the program ever holds."""


async def opened(url: str, table_name: str) -> Repository:
    place = f"dynamodb://{table_name}?region=us-east-1&endpoint_url={url}&create=true"
    return await Repository.open(place, session=session(), deadline_s=DEADLINE_S)


@pytest.fixture
async def repo(proxy: Proxy) -> AsyncIterator[Repository]:
    async with await opened(proxy.url, fresh_table_name()) as made:
        await made.set_system_defaults(LIMITS)
        await made.create_entity(PARENT)
        await made.create_entity(CHILD, parent_id=PARENT, cascade=True)
        yield made


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cascade_cancelled_at_any_await_is_settled_once_among_competitors(repo, fails, again):
    """A competitor takes from both buckets all the time, so writes are refused and retried."""
    levels = Levels(repo)
    await levels.rival(CHILD)
    over = asyncio.Event()

    async def compete() -> None:
        while not over.is_set():
            await levels.rival(CHILD)

    async def checked(number: int) -> CancelledAt:
        over.clear()
        rival = asyncio.create_task(compete())
        body = Program(RateLimiter(repo), fails=fails)
        run = CancelledAt(body.run(), number, again=again)
        await ended(run)
        over.set()
        await rival
        levels.used[CHILD] += body.kept
        levels.used[PARENT] += body.kept
        assert {CHILD: 0, PARENT: 0} == await levels.lost(), f"cancelled at await {number}"
        return run

    assert 4 <= await cancelled_everywhere(checked)


@pytest.mark.parametrize("applied", [False, True])
async def test_a_lost_answer_and_a_cancellation_never_credit_twice(repo, proxy, applied):
    """The connection drops at the last writes, which settle, while the caller is cancelled."""
    levels = Levels(repo)
    await levels.rival(CHILD)

    async def checked(number: int) -> CancelledAt:
        body = Program(RateLimiter(repo), fails=True)
        proxy.next(Drop(applied=applied), 1, "UpdateItem")
        run = CancelledAt(body.run(), number)
        with suppress(RateLimiterUnavailable):
            await ended(run)
        left = await levels.lost()
        assert all(0 <= amount <= HELD for amount in left.values()), f"cancelled at {number}: {left}"
        levels.forgive(left)
        return run

    await cancelled_everywhere(checked)


async def test_a_loop_shutdown_settles_leases(repo):
    """The loop cancels every task, also those that settle; a debit is written nevertheless."""
    limiter = RateLimiter(repo)
    entered = asyncio.Event()

    async def work() -> None:
        async with limiter.acquire(CHILD, "gpt-4", {"rpy": 10}) as lease:
            await lease.adjust(rpy=5)
            entered.set()

    task = asyncio.create_task(work())
    await entered.wait()
    while not task.done():
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)

    buckets = [(await repo.get_buckets(one))[0] for one in (CHILD, PARENT)]
    assert [15_000, 15_000] == [bucket.total_consumed_milli for bucket in buckets]
