"""A lease that several tasks use at the same time: during its exit, and while its methods are in flight."""

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
async def test_lease_left_by_three_tasks_concurrently_is_settled_once(remote, slow, limiter, failure):
    """Later exits return without effect, even if the first is still in flight."""
    lease = await entered(remote)
    await lease.adjust(rpy=5)

    assert [None] * 3 == await outcomes(*(leave(lease, failure) for _ in range(3)))
    assert (984 if failure is None else 999) == await left(limiter)


@pytest.mark.parametrize("verb", ["adjust", "consume", "release"])
async def test_lease_method_during_the_exit_raises_lease_expired(remote, slow, limiter, verb):
    """The lease ends when its exit starts, not when the settlement is written."""
    lease = await entered(remote)
    slow.before.shut()
    leaving = asyncio.create_task(leave(lease, KeyError("failed")))
    await slow.before.reached()

    with pytest.raises(LeaseExpiredError):
        await getattr(lease, verb)(rpy=1)
    slow.before.open()
    await leaving
    assert 999 == await left(limiter)


@pytest.mark.parametrize("failure", [None, KeyError("failed")])
async def test_consume_in_flight_when_the_lease_ends_is_credited(remote, slow, limiter, failure):
    """The lease can no longer hold the tokens, so no exit would settle them."""
    lease = await entered(remote)
    slow.after.shut()
    consuming = asyncio.create_task(lease.consume(rpy=4))
    await slow.after.reached()
    leaving = asyncio.create_task(leave(lease, failure))
    await asyncio.sleep(0)
    slow.after.open()

    assert [LeaseExpiredError, None] == await outcomes(consuming, leaving)
    assert (989 if failure is None else 999) == await left(limiter)


async def test_concurrent_releases_credit_at_most_what_the_lease_holds(remote, slow, limiter):
    """The second one counts the first, even if it is still in flight."""
    lease = await entered(remote)

    assert [None, ValidationError] == await outcomes(lease.release(rpy=6), lease.release(rpy=6))
    assert 995 == await left(limiter)
    await leave(lease, KeyError("failed"))
    assert 999 == await left(limiter)
