"""Requests that wait and must leave a reserve: when they are admitted, and whom they let go first."""

import asyncio

import pytest

from tests.limiter_async.waiters import Order, exhaust, opened
from tests.simulation.world import simulate
from zae_limiter import AmountExceedsCapacityError, Limit, RateLimiter, RateLimitExceeded

TEN = [Limit.per_second("rps", 5, burst=10)]


def reserved(repo):
    return RateLimiter(repo, priority_reserve={-1: 0.5})


def test_request_with_a_reserve_waits_until_it_and_the_reserve_are_there():
    """Two tokens above five of ten: 1.4 s after the bucket was empty, at five per second."""

    async def main():
        limiter = reserved(await opened(TEN))
        await exhaust(limiter, 10)
        order = Order(limiter)
        order.start("a", 2, priority=-1)
        await order.names()

        assert [("a", pytest.approx(1.4, abs=0.011))] == order.admitted

    simulate(main)


def test_several_requests_with_a_reserve_are_admitted_in_order_as_the_tokens_come():
    """Each is admitted when its tokens are above the reserve."""

    async def main():
        limiter = reserved(await opened(TEN))
        await exhaust(limiter, 10)
        order = Order(limiter)
        for name in "abc":
            order.start(name, 1, priority=-1)
            await asyncio.sleep(0)

        assert "abc" == await order.names()
        assert [1.2, 1.4, 1.6] == pytest.approx([when for _, when in order.admitted], abs=0.011)

    simulate(main)


def test_request_with_a_reserve_does_not_block_those_without():
    """It waits for tokens that they leave, so it goes after them, also if it has waited for longer than any age."""

    async def main():
        limiter = reserved(await opened(TEN))
        await exhaust(limiter, 10)
        order = Order(limiter)
        order.start("low", 1, priority=-1)
        for number in range(12):
            # Each takes what one second gives, so the reserve never fills up.
            await asyncio.sleep(1)
            order.start(f"{number},", 5)
        await asyncio.sleep(0.5)

        assert [f"{number}," for number in range(12)] == [name for name, _ in order.admitted]
        assert [pytest.approx(1 + number, abs=0.02) for number in range(12)] == [when for _, when in order.admitted]
        await order.names()
        assert "low" == order.admitted[-1][0]

    simulate(main)


def test_request_that_its_reserve_never_admits_does_not_wait():
    """It is too large for its priority."""

    async def main():
        limiter = reserved(await opened(TEN))
        await exhaust(limiter, 10)

        with pytest.raises(AmountExceedsCapacityError, match="reserve of 5"):
            async with limiter.acquire("user", "api", {"rps": 6}, max_wait=60, priority=-1):
                pass

    simulate(main)


def test_request_whose_reserve_is_not_there_in_time_is_rejected_immediately():
    """The estimate counts the reserve."""

    async def main():
        limiter = reserved(await opened(TEN))
        await exhaust(limiter, 10)

        with pytest.raises(RateLimitExceeded) as caught:
            async with limiter.acquire("user", "api", {"rps": 1}, max_wait=1, priority=-1):
                pass

        assert (0.0, 1) == (caught.value.waited, caught.value.position)
        assert 1.2 == pytest.approx(caught.value.estimate, abs=0.01)

    simulate(main)


def test_waiting_request_with_a_soft_limit_does_not_wait_for_it():
    """A soft limit never rejects, so it delays no request."""

    async def main():
        soft = Limit.per_minute("tpm", 10, enforce=False)
        limiter = RateLimiter(await opened([Limit.per_second("rps", 5), soft]))
        async with limiter.acquire("user", "api", {"rps": 5, "tpm": 10}):
            pass
        admitted = []

        async def take(name):
            async with limiter.acquire("user", "api", {"rps": 1, "tpm": 10}, max_wait=5):
                admitted.append((name, asyncio.get_running_loop().time()))

        await asyncio.gather(*[take(name) for name in "abc"])

        assert [0.2, 0.4, 0.6] == pytest.approx([when for _, when in admitted], abs=0.011)

    simulate(main)
