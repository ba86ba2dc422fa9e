"""A lease that several tasks use at the same time: while it is left, and while its verbs are in flight."""

import asyncio

import pytest

from zae_limiter import LeaseExpiredError, ValidationError


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpy"]


async def entered(limiter, amount=10):
    async with limiter.acquire("user-1", "gpt-4", {"rpy": 1}):
        pass
    return await limiter.acquire("user-1", "gpt-4", {"rpy": amount}).__aenter__()


def leave(lease, failure=None):
    return lease.__aexit__(None if failure is None else type(failure), failure, None)


async def outcomes(*calls):
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else None for one in found]


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
async def test_a_lease_left_by_three_tasks_is_settled_once(far, slow, limiter, failure):
    """The exits that come later return without effect, though the first is still in flight."""
    lease = await entered(far)
    await lease.adjust(rpy=5)

    assert [None] * 3 == await outcomes(*(leave(lease, failure) for _ in range(3)))
    assert (984 if failure is None else 999) == await left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
async def test_a_verb_while_the_lease_is_left_raises(far, slow, limiter, verb):
    """From the moment on at which it is left, not from the end of the settlement."""
    lease = await entered(far)
    slow.before.shut()
    leaving = asyncio.create_task(leave(lease, KeyError("failed")))
    await slow.before.reached()

    with pytest.raises(LeaseExpiredError):
        await getattr(lease, verb)(rpy=1)
    slow.before.open()
    await leaving
    assert 999 == await left(limiter)


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
async def test_a_consume_in_flight_when_the_lease_ends_is_given_back(far, slow, limiter, failure):
    """The lease could not hold it any more, so no exit would settle it."""
    lease = await entered(far)
    slow.after.shut()
    consuming = asyncio.create_task(lease.consume(rpy=4))
    await slow.after.reached()
    leaving = asyncio.create_task(leave(lease, failure))
    await asyncio.sleep(0)
    slow.after.open()

    assert [LeaseExpiredError, None] == await outcomes(consuming, leaving)
    assert (989 if failure is None else 999) == await left(limiter)


async def test_releases_at_the_same_time_give_back_at_most_what_is_held(far, slow, limiter):
    """The second one sees what the first gives back, though it is still in flight."""
    lease = await entered(far)

    assert [None, ValidationError] == await outcomes(lease.release(rpy=6), lease.release(rpy=6))
    assert 995 == await left(limiter)
    await leave(lease, KeyError("failed"))
    assert 999 == await left(limiter)
