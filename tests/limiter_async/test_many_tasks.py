"""Many tasks on one bucket: they take all of it, and never more."""

import asyncio

import pytest

from zae_limiter import RateLimitExceeded

TASKS = 200


@pytest.mark.parametrize("each", [1, 7])
async def test_concurrent_tasks_take_exactly_the_capacity(limiter, each):
    """Two hundred tasks that request more than the capacity are admitted to the last request that fits."""
    admitted = await admissions(limiter, each)

    assert 1_000 // each == admitted
    assert 1_000 % each == await left(limiter)


@pytest.mark.parametrize("each", [1, 7])
async def test_concurrent_tasks_on_a_remote_table_take_exactly_the_capacity(remote, limiter, each):
    """Every write is in flight for a while, and views are stale."""
    admitted = await admissions(remote, each)

    assert 1_000 // each == admitted
    assert 1_000 % each == await left(limiter)


async def test_failed_tasks_credit_exactly_what_they_took(limiter):
    """Credited tokens are available to other tasks."""

    async def work(number):
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 1, "tpy": 10}) as lease:
            await asyncio.sleep(0)
            await lease.adjust(tpy=number)
            if number % 2:
                raise KeyError

    await asyncio.gather(*(work(number) for number in range(TASKS)), return_exceptions=True)

    even = range(0, TASKS, 2)
    assert {"rpy": 1_000 - len(even), "tpy": 1_000_000 - sum(10 + number for number in even)} == (
        await limiter.available("user-1", "gpt-4")
    )


async def test_tasks_cancelled_at_any_moment_credit_exactly_what_they_took(remote, limiter):
    """The point of the cancellation makes no difference."""

    async def work():
        async with remote.acquire("user-1", "gpt-4", {"rpy": 1}) as lease:
            await lease.adjust(rpy=1)
            await asyncio.sleep(0)
            await lease.release(rpy=1)
            await asyncio.Event().wait()

    await remote.available("user-1", "gpt-4")
    tasks = []
    for number in range(TASKS):
        tasks.append(asyncio.create_task(work()))
        if number % 3 == 0:
            await asyncio.sleep(0)
        tasks[number // 2].cancel()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert 1_000 == await left(limiter)


async def admissions(limiter, each):
    """Return how many requests of many concurrent tasks are admitted."""

    async def work():
        admitted = 0
        for _ in range(-(-1_500 // TASKS // each) + 1):
            try:
                async with limiter.acquire("user-1", "gpt-4", {"rpy": each}):
                    admitted += 1
            except RateLimitExceeded:
                pass
            await asyncio.sleep(0)
        return admitted

    return sum(await asyncio.gather(*(work() for _ in range(TASKS))))


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpy"]
