"""Jobs of many calls that are paced by their limits, and the queue of a limiter as an argument."""

import asyncio

import pytest

from tests.limiter_async.waiters import opened
from tests.simulation.world import simulate
from zae_limiter import RateLimiter, ValidationError


def test_pace_yields_leases_as_fast_as_the_limit_allows():
    """A job of many calls gets its leases one after the other, and reports its progress."""
    seen = []

    async def main():
        limiter = RateLimiter(await opened())
        times = []
        async for lease in limiter.pace("user", "api", {"rps": 1}, count=10, progress=seen.append):
            times.append(asyncio.get_running_loop().time())
            await lease.adjust(rps=0)
        assert [0.0] * 5 + [0.2, 0.4, 0.6, 0.8, 1.0] == pytest.approx(times, abs=0.01)

    simulate(main)

    assert (list(range(1, 11)), {10}) == ([one.granted for one in seen], {one.total for one in seen})
    assert 1.0 == pytest.approx(seen[-1].elapsed_s, abs=0.01) == pytest.approx(seen[-1].waited_s, abs=0.01)


def test_pace_that_is_left_early_charges_what_it_took():
    """The last lease is settled when the loop ends, and the tokens stay charged."""

    async def main():
        limiter = RateLimiter(await opened())
        paced = limiter.pace("user", "api", {"rps": 1})
        async for lease in paced:
            await lease.adjust(rps=1)
            break
        await paced.aclose()

        assert {"rps": 3} == await limiter.available("user", "api")

    simulate(main)


@pytest.mark.parametrize("queue", [None, 5, {"max_waiting": 3}])
def test_limiter_refuses_what_is_no_queue(queue):
    """A queue is a Queue."""
    with pytest.raises(ValidationError, match="queue"):
        simulate(_limiter_with, queue)


async def _limiter_with(queue):
    return RateLimiter(await opened(), queue=queue)
