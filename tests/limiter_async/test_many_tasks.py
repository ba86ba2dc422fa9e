"""Many tasks on one bucket: never more than there is, and all of it."""

import asyncio

import pytest

from zae_limiter import RateLimitExceeded

TASKS = 200


@pytest.mark.parametrize("each", [1, 7])
async def test_tasks_share_out_all_there_is(limiter, each):
    """Two hundred tasks that ask for more than there is get just what there is, to the last request that fits."""
    admitted = await admissions(limiter, each)

    assert 1_000 // each == admitted
    assert 1_000 % each == await left(limiter)


@pytest.mark.parametrize("each", [1, 7])
async def test_tasks_share_out_all_there_is_on_a_table_far_away(far, limiter, each):
    """Though every write is in flight for a while and views are old."""
    admitted = await admissions(far, each)

    assert 1_000 // each == admitted
    assert 1_000 % each == await left(limiter)


async def test_tasks_that_fail_leave_nothing_behind(limiter):
    """Whatever is given back is there for others, and nothing more."""

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


async def test_tasks_that_are_cancelled_at_any_moment_leave_nothing_behind(far, limiter):
    """Wherever each of them was when it was cancelled."""

    async def work():
        async with far.acquire("user-1", "gpt-4", {"rpy": 1}) as lease:
            await lease.adjust(rpy=1)
            await asyncio.sleep(0)
            await lease.release(rpy=1)
            await asyncio.Event().wait()

    await far.available("user-1", "gpt-4")
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
    """How many requests are admitted to many tasks that keep asking."""

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
