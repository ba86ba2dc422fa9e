"""How waits begin and end: cancellation, close, and the end or the stop of a loop leave nothing behind."""

import asyncio
import threading
from contextlib import suppress

import pytest

from tests._async.clients import AsynchronousTable, another
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from tests.limiter_async.waiters import PER_SECOND, Order, exhaust, opened, queues
from tests.simulation.world import simulate
from zae_limiter import Also, Limit, RateLimiter, RateLimiterUnavailable, Repository, ValidationError


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_cancelled_request_leaves_the_queue(victim):
    """The others keep their order, and nothing remains."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        for name in "abc":
            order.start(name)
        await asyncio.sleep(0.1)
        order.tasks.pop(victim).cancel()

        assert "abc".replace("abc"[victim], "") == await order.names()
        assert 0 == queues(limiter)
        assert 0.4 == pytest.approx(order.admitted[-1][1], abs=0.02)

    simulate(main)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("several", [False, True])
def test_cancellation_at_any_await_gives_back_and_lets_the_next_continue(inline, several):
    """A request that is cancelled at any await leaves no token taken, and no request behind it forgotten."""

    async def main():
        repo = await opened([Limit.custom("rps", 5, 5, 1)])
        other = another(repo, lambda table: _Slow(table))
        other.scope.table.inline = inline
        limiter = RateLimiter(other)
        also = [Also("friend", "api", {"rps": 1})] if several else None

        async def run(number):
            await exhaust(limiter)
            order = Order(limiter)

            async def program():
                with suppress(KeyError):
                    async with limiter.acquire("user", "api", {"rps": 3}, max_wait=60, also=also):
                        raise KeyError

            cancelled = CancelledAt(program(), number)
            began = asyncio.create_task(ended(cancelled))
            await asyncio.sleep(0.001)
            order.start("b", 1)
            await began

            assert "b" == await order.names()
            assert 0 == queues(limiter)
            await asyncio.sleep(2)
            assert 5 == (await RateLimiter(another(repo)).available("user", "api"))["rps"]
            return cancelled

        assert 3 <= await cancelled_everywhere(run)

    simulate(main)


class _Slow(AsynchronousTable):
    """A table whose writes take a moment."""

    async def write(self, operation, until_s=None):
        await asyncio.sleep(0.002)
        return await super().write(operation, until_s)


def test_close_ends_every_wait():
    """Requests that wait when the repository is closed fail, and none is left."""

    async def main():
        repo = await opened()
        limiter = RateLimiter(repo)
        await exhaust(limiter)
        order = Order(limiter)
        for name in "abc":
            order.start(name)
        await asyncio.sleep(0.05)
        await repo.close()
        results = await asyncio.gather(*order.tasks, return_exceptions=True)

        assert [True] * 3 == [isinstance(one, RateLimiterUnavailable) or "closed" in str(one) for one in results]
        assert 0.06 > asyncio.get_running_loop().time()

    simulate(main)


def test_end_of_the_loop_leaves_nothing_behind():
    """A loop that ends cancels its tasks; another loop can use the limiter after that."""
    found = []

    async def first():
        repo = await Repository.open("memory://")
        await repo.set_system_defaults(PER_SECOND)
        limiter = RateLimiter(repo)
        await exhaust(limiter)
        Order(limiter).start("a", 5)
        await asyncio.sleep(0.001)
        assert 1 == queues(limiter)
        found.append(limiter)

    async def second():
        assert 0 == queues(found[0])
        async with found[0].acquire("user", "api", {"rps": 1}, max_wait=5) as lease:
            assert lease.waited < 5

    asyncio.run(first())
    asyncio.run(second())


def test_several_loops_share_a_queue():
    """Requests of two threads, each with its own loop, wait in one queue, in the order of arrival."""
    order, started = [], threading.Barrier(2)

    async def opened_now():
        repo = await Repository.open("memory://")
        await repo.set_system_defaults([Limit.per_second("rps", 100)])
        return RateLimiter(repo)

    async def one(limiter, name):
        async with limiter.acquire("user", "api", {"rps": 1}, max_wait=30):
            order.append(name)

    async def some(limiter, thread):
        started.wait()
        await asyncio.gather(*[one(limiter, (thread, number)) for number in range(60)])

    limiter = asyncio.run(opened_now())
    asyncio.run(exhaust(limiter, 100))
    threads = [threading.Thread(target=asyncio.run, args=(some(limiter, number),)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 120 == len(order)
    assert 0 == queues(limiter)
    for thread in range(2):
        assert list(range(60)) == [number for one, number in order if one == thread]


def test_request_whose_loop_has_stopped_is_passed_over():
    """A loop that does not run must not block the requests of another loop; if it runs again, they wait again."""
    stopped = asyncio.new_event_loop()
    limiter = stopped.run_until_complete(_limiter_of_five())
    order = Order(limiter)
    stopped.run_until_complete(_start(order, "a", 1))

    async def other_loop():
        await asyncio.sleep(1.3)
        later = Order(limiter)
        later.start("b")
        return await later.names()

    assert "b" == asyncio.run(other_loop())
    stopped.run_until_complete(order.tasks[0])
    stopped.close()
    assert ["a"] == [name for name, _ in order.admitted]
    assert 0 == queues(limiter)


async def _limiter_of_five():
    repo = await Repository.open("memory://")
    await repo.set_system_defaults(PER_SECOND)
    limiter = RateLimiter(repo)
    await exhaust(limiter)
    return limiter


async def _start(order, name, amount):
    order.start(name, amount)
    await asyncio.sleep(0.001)


def test_amounts_are_those_of_the_call_even_if_the_dictionary_changes():
    """A request waits with a copy, and an amount that is no number is refused whatever waited before."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order, amounts = Order(limiter), {"rps": 1}
        lease = limiter.acquire("user", "api", amounts, max_wait=5)
        entering = asyncio.create_task(lease.__aenter__())
        await asyncio.sleep(0.001)
        amounts["rps"] = 5
        with pytest.raises(ValidationError):
            await limiter.acquire("user", "api", {"rps": True}, max_wait=5).__aenter__()
        await entering

        assert {"rps": 1} == lease.consumed
        assert "" == await order.names()

    simulate(main)
