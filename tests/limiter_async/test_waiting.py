"""Requests that wait for their tokens, in simulated time: their order, their bounds, and what they leave behind."""

import asyncio
import pickle
import threading
from contextlib import suppress
from random import Random

import pytest

from tests._async.clients import AsynchronousTable, CountingTable, another
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from tests.simulation.world import LoopClock, simulate
from zae_limiter import (
    Also,
    AmountExceedsCapacityError,
    EntityBlockedError,
    Limit,
    Queue,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Repository,
    ValidationError,
)

PER_SECOND = [Limit.per_second("rps", 5)]


async def opened(limits=PER_SECOND, **settings):
    """Return a repository in simulated time, with these default limits."""
    clock = LoopClock(asyncio.get_running_loop())
    repo = await Repository.open("memory://", clock=clock, random=Random(1), **settings)
    await repo.set_system_defaults(limits)
    return repo


async def exhaust(limiter, amount=5, entity="user"):
    """Take tokens and keep them."""
    async with limiter.acquire(entity, "api", {"rps": amount}):
        pass


class Order:
    """Starts requests that wait, and notes when each was admitted."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.admitted = []
        self.tasks = []

    def start(self, name, amount=1, entity="user", **options):
        """Start a request in a task of its own, which waits up to a minute."""
        self.tasks.append(asyncio.create_task(self._take(name, amount, entity, {"max_wait": 60, **options})))
        return self.tasks[-1]

    async def _take(self, name, amount, entity, options):
        async with self.limiter.acquire(entity, "api", {"rps": amount}, **options) as lease:
            self.admitted.append((name, round(asyncio.get_running_loop().time(), 2)))
            return lease.waited

    async def names(self):
        """Wait for all, and return the order in which they were admitted."""
        await asyncio.gather(*self.tasks)
        return "".join(name for name, _ in self.admitted)


def queues(limiter):
    """Return how many queues there are."""
    return len(limiter._client.queues())


def test_waiting_requests_are_admitted_in_order_as_the_tokens_come():
    """Each request is admitted when the refill reaches it, to the millisecond, and costs one call."""

    async def main():
        repo = await opened()
        limiter = RateLimiter(another(repo, CountingTable))
        await exhaust(limiter)
        limiter.repository.scope.table.drain()
        order = Order(limiter)
        for name in "abcdefghij":
            order.start(name)
            await asyncio.sleep(0.001)

        assert "abcdefghij" == await order.names()
        ideal = [0.2 * number for number in range(1, 11)]
        assert ideal == pytest.approx([when for _, when in order.admitted], abs=0.011)
        assert ["write"] * 10 == limiter.repository.scope.table.drain()
        assert 0 == queues(limiter)

    simulate(main)


def test_lease_says_how_long_it_has_waited():
    """It is 0 if the tokens were there."""

    async def main():
        limiter = RateLimiter(await opened())
        async with limiter.acquire("user", "api", {"rps": 5}, max_wait=1) as lease:
            assert 0.0 == lease.waited
            assert lease.waiting is None
        async with limiter.acquire("user", "api", {"rps": 1}, max_wait=1) as lease:
            assert 0.2 == pytest.approx(lease.waited, abs=0.005)
        async with limiter.acquire("other", "api", {"rps": 1}) as lease:
            assert (0.0, None) == (lease.waited, lease.waiting)

    simulate(main)


def test_newcomer_does_not_overtake_a_large_request():
    """The first request blocks the queue, also for requests whose tokens are there."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        order.start("L", 5)
        await asyncio.sleep(0.9)
        order.start("s")

        assert "Ls" == await order.names()
        assert [("L", 1.0), ("s", 1.2)] == order.admitted

    simulate(main)


def test_request_without_max_wait_is_served_before_those_that_wait():
    """It behaves as if there were no queue, and the waiting requests wait for longer."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        order.start("a", 2)
        await asyncio.sleep(0.25)
        await exhaust(limiter, 1)

        assert "a" == await order.names()
        assert 0.6 == pytest.approx(order.admitted[0][1], abs=0.02)

    simulate(main)


def test_entities_under_one_parent_share_its_queue_fairly():
    """The bucket of the parent refuses, so its children wait in one queue, and take turns."""

    async def main():
        repo = await opened([Limit.per_second("rps", 100)])
        await repo.create_entity("team")
        await repo.set_limits("team", PER_SECOND)
        for child in "ab":
            await repo.create_entity(child, parent_id="team", cascade=True)
        limiter = RateLimiter(repo)
        await exhaust(limiter, entity="a")
        order = Order(limiter)
        for name in "1234":
            order.start(name, entity="a")
        await asyncio.sleep(0.05)
        for name in "56":
            order.start(name, entity="b")
        await asyncio.sleep(0.01)

        assert 6 == limiter._client.queues().waiting(("team", "api"))
        assert "152634" == await order.names()

    simulate(main)


def test_queue_without_fairness_is_in_the_order_of_arrival():
    """With ``fair_by=None`` it does not matter whose requests they are."""

    async def main():
        repo = await opened([Limit.per_second("rps", 100)])
        await repo.create_entity("team")
        await repo.set_limits("team", PER_SECOND)
        for child in "ab":
            await repo.create_entity(child, parent_id="team", cascade=True)
        limiter = RateLimiter(repo, queue=Queue(fair_by=None))
        await exhaust(limiter, entity="a")
        order = Order(limiter)
        for name in "1234":
            order.start(name, entity="a")
        await asyncio.sleep(0.05)
        order.start("5", entity="b")

        assert "12345" == await order.names()

    simulate(main)


def test_higher_priority_goes_first():
    """A request of a higher priority that comes later becomes the first of the queue."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        for name, priority in (("a", 0), ("b", -1), ("c", 1), ("d", 0)):
            order.start(name, priority=priority)
            await asyncio.sleep(0.01)

        assert "cadb" == await order.names()

    simulate(main)


def test_request_that_another_bucket_refuses_moves_to_its_queue():
    """It waits for one bucket after the other, and leaves nothing in the first queue."""

    async def main():
        repo = await opened([Limit.per_second("rps", 100), Limit.per_second("tps", 100)])
        await repo.create_entity("team")
        await repo.set_limits("team", [Limit.per_second("rps", 5)])
        await repo.create_entity("a", parent_id="team", cascade=True)
        await repo.set_limits("a", [Limit.per_second("tps", 10), Limit.per_second("rps", 100)])
        limiter = RateLimiter(repo)
        async with limiter.acquire("a", "api", {"tps": 10}):
            pass
        async with limiter.acquire("team", "api", {"rps": 5}):
            pass
        taking = asyncio.create_task(enter(limiter, "a", {"tps": 9, "rps": 1}))
        await asyncio.sleep(0.1)
        first = limiter._client.queues().waiting(("a", "api"))
        await asyncio.sleep(0.75)
        async with limiter.acquire("team", "api", {"rps": 4}):
            pass
        await asyncio.sleep(0.1)

        assert (1, 1) == (first, limiter._client.queues().waiting(("team", "api")))
        assert 1 == queues(limiter)
        assert 1.0 == pytest.approx(await taking, abs=0.02)

    async def enter(limiter, entity, consume):
        async with limiter.acquire(entity, "api", consume, max_wait=10) as lease:
            return lease.waited

    simulate(main)


@pytest.mark.parametrize(("amount", "max_wait", "estimate"), [(1, 0.1, 0.2), (5, 0.9, 1.0), (1, 0, 0.2)])
def test_request_that_cannot_be_admitted_in_time_is_rejected_at_once(amount, max_wait, estimate):
    """It says how long it would have had to wait, and nothing waits."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        with pytest.raises(RateLimitExceeded) as caught:
            await limiter.acquire("user", "api", {"rps": amount}, max_wait=max_wait).__aenter__()

        assert (0.0, 1) == (caught.value.waited, caught.value.position)
        assert estimate == pytest.approx(caught.value.estimate, abs=0.002)
        assert 0 == queues(limiter)

    simulate(main)


def test_estimate_counts_the_requests_ahead():
    """A request whose own tokens come in time is rejected at once if the queue ahead of it takes too long."""

    async def main():
        limiter = RateLimiter(another(await opened(), CountingTable))
        await exhaust(limiter)
        order = Order(limiter)
        for name in "abc":
            order.start(name)
        await asyncio.sleep(0.001)
        limiter.repository.scope.table.drain()
        with pytest.raises(RateLimitExceeded) as caught:
            await limiter.acquire("user", "api", {"rps": 1}, max_wait=0.7).__aenter__()
        error = pickle.loads(pickle.dumps(caught.value))

        assert [] == limiter.repository.scope.table.drain()
        assert 4 == error.position
        assert 0.8 == pytest.approx(error.estimate, abs=0.01)
        assert error.estimate == error.retry_after_seconds
        assert (4, error.estimate) == (error.as_dict()["position"], error.as_dict()["estimate"])
        assert "abc" == await order.names()

    simulate(main)


def test_rejection_without_a_missing_token_names_the_queue():
    """Requests ahead may wait for tokens that this request alone would not lack."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        order.start("L", 5)
        await asyncio.sleep(0.5)
        with pytest.raises(RateLimitExceeded, match="1 requests wait for the same tokens before this one") as caught:
            await limiter.acquire("user", "api", {"rps": 1}, max_wait=0.1).__aenter__()

        assert () == caught.value.violations
        assert 0.7 == pytest.approx(caught.value.retry_after_seconds, abs=0.01)
        assert "L" == await order.names()

    simulate(main)


def test_full_queue_rejects_at_once():
    """``max_waiting`` bounds the requests that wait for one bucket."""

    async def main():
        limiter = RateLimiter(await opened(), queue=Queue(max_waiting=2))
        await exhaust(limiter)
        order = Order(limiter)
        for name in "ab":
            order.start(name)
        await asyncio.sleep(0.001)
        with pytest.raises(RateLimitExceeded) as caught:
            await limiter.acquire("user", "api", {"rps": 1}, max_wait=60).__aenter__()

        assert 3 == caught.value.position
        assert "ab" == await order.names()

    simulate(main)


@pytest.mark.parametrize("occupied", [False, True])
def test_amount_above_a_capacity_is_rejected_at_once(occupied):
    """No wait helps it, whether others wait or not."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        if occupied:
            order.start("a")
            await asyncio.sleep(0.001)
        with pytest.raises(AmountExceedsCapacityError):
            await limiter.acquire("user", "api", {"rps": 6}, max_wait=60).__aenter__()
        with pytest.raises(ValidationError, match="not a limit in force"):
            await limiter.acquire("user", "api", {"other": 6}, max_wait=60).__aenter__()

        assert ("a" if occupied else "") == await order.names()

    simulate(main)


def test_timeout_rejects_with_the_place_in_the_queue():
    """Requests without max_wait may take the tokens, so a wait may end in vain."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        order = Order(limiter)
        late = order.start("a", 5, max_wait=1.05)
        later = order.start("b", 1, max_wait=1.3)
        await asyncio.sleep(0.9)
        await exhaust(limiter, 4)
        with pytest.raises(RateLimitExceeded) as caught:
            await late
        order.tasks.remove(late)

        assert 1 == caught.value.position
        assert caught.value.waited < 1.06
        assert "b" == await order.names()
        assert 0.9 < await later < 1.3
        assert 0 == queues(limiter)

    simulate(main)


def test_release_wakes_the_first_request():
    """Tokens that come back are used without delay."""

    async def main():
        limiter = RateLimiter(await opened([Limit.per_minute("rps", 5)]))
        order = Order(limiter)
        async with limiter.acquire("user", "api", {"rps": 5}) as lease:
            for name in "abc":
                order.start(name)
            await asyncio.sleep(1)
            await lease.release(rps=2)
            await asyncio.sleep(0.5)
            await lease.adjust(rps=-1)

        assert "abc" == await order.names()
        assert [("a", 1.0), ("b", 1.0), ("c", 1.5)] == order.admitted

    simulate(main)


@pytest.mark.parametrize("settle_within", [0, 0.3])
def test_rollback_wakes_the_first_request(settle_within):
    """A block that raises gives its tokens back, and the next request gets them, also if settlements are put off."""

    async def main():
        repo = await opened([Limit.per_minute("rps", 5)], settle_within=settle_within)
        limiter = RateLimiter(repo)
        order = Order(limiter)
        with suppress(KeyError):
            async with limiter.acquire("user", "api", {"rps": 5}):
                order.start("a", 5)
                await asyncio.sleep(1)
                raise KeyError

        assert "a" == await order.names()
        assert [("a", 1.0)] == order.admitted
        await repo.close()

    simulate(main)


def test_raised_limit_wakes_all_that_fit():
    """A limit that this process raises applies to the requests that wait."""

    async def main():
        limiter = RateLimiter(await opened([Limit.per_minute("rps", 5)]))
        await exhaust(limiter)
        order = Order(limiter)
        for name in "abc":
            order.start(name)
        await asyncio.sleep(1)
        await limiter.set_system_defaults([Limit.per_minute("rps", 60)])

        assert "abc" == await order.names()
        assert order.admitted[-1][1] < 5

    simulate(main)


def test_raised_limit_of_another_process_is_seen_when_it_is_read():
    """Whoever reads the limits in this process wakes the requests that wait for the bucket."""

    async def main():
        repo = await opened([Limit.per_minute("rps", 5)], config_cache_ttl=2)
        limiter = RateLimiter(repo)
        await exhaust(limiter)
        order = Order(limiter)
        order.start("a", 5)
        await RateLimiter(another(repo)).set_system_defaults([Limit.per_second("rps", 5)])
        await asyncio.sleep(3)
        with suppress(RateLimitExceeded):
            await exhaust(limiter, 5)

        assert "a" == await order.names()
        assert order.admitted[0][1] < 6

    simulate(main)


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


def test_blocked_entity_is_refused_before_it_waits():
    """A block applies also if others wait for the bucket."""

    async def main():
        repo = await opened()
        await repo.create_entity("user")
        limiter = RateLimiter(repo)
        await exhaust(limiter)
        order = Order(limiter)
        order.start("a")
        await asyncio.sleep(0.001)
        await limiter.block_entity("user")
        with pytest.raises(EntityBlockedError):
            await limiter.acquire("user", "api", {"rps": 1}, max_wait=60).__aenter__()
        (result,) = await asyncio.gather(*order.tasks, return_exceptions=True)

        assert isinstance(result, EntityBlockedError)
        assert 0 == queues(limiter)

    simulate(main)


def test_also_waits_for_every_bucket():
    """A request for several entities waits for the bucket that refuses it, and takes from all or none."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter, entity="friend")
        async with limiter.acquire(
            "user", "api", {"rps": 1}, max_wait=2, also=[Also("friend", "api", {"rps": 2})]
        ) as lease:
            assert 0.4 == pytest.approx(lease.waited, abs=0.01)
            assert ["user", "friend"] == [entry.entity_id for entry in lease.entries]

    simulate(main)


def test_request_for_two_buckets_does_not_overtake_in_either():
    """A newcomer waits behind those that wait for any of its buckets."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter, entity="friend")
        order = Order(limiter)
        order.start("L", 5, entity="friend")
        await asyncio.sleep(0.5)
        order.start("s", 1, also=[Also("friend", "api", {"rps": 1})])

        assert "Ls" == await order.names()

    simulate(main)


def test_lease_is_entered_once_while_it_waits():
    """A second task that enters the same lease gets an error."""

    async def main():
        limiter = RateLimiter(await opened())
        await exhaust(limiter)
        lease = limiter.acquire("user", "api", {"rps": 1}, max_wait=5)
        first = asyncio.create_task(lease.__aenter__())
        await asyncio.sleep(0.001)

        assert (1, pytest.approx(0.2, abs=0.01)) == lease.waiting
        with pytest.raises(RuntimeError, match="entered only once"):
            await lease.__aenter__()
        await first
        await lease.__aexit__(None, None, None)

    simulate(main)


@pytest.mark.parametrize("group_commit", [True, False])
def test_networked_table_takes_one_write_per_admission(group_commit):
    """Also there, only the first request of the queue asks."""

    async def main():
        repo = await opened()
        counting = another(repo, lambda table: CountingTable(AsynchronousTable(table)))
        limiter = RateLimiter(counting, group_commit=group_commit)
        await exhaust(limiter)
        counting.scope.table.drain()
        order = Order(limiter)
        for name in "abcdef":
            order.start(name)
            await asyncio.sleep(0.001)

        assert "abcdef" == await order.names()
        assert ["write"] * 6 == counting.scope.table.drain()

    simulate(main)


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


def test_request_that_waits_for_a_slot_gets_it_when_it_is_returned():
    """A return in the same process wakes it at once. One of another process is found by asking again soon."""
    limits = [Limit.per_second("rps", 100), Limit.concurrent("slots", 1, hold_seconds=60)]

    async def main():
        repo = await opened(limits)
        here, elsewhere = RateLimiter(repo), RateLimiter(another(repo))
        waited = []
        for holder in (here, elsewhere):
            lease = holder.acquire("user", "api", {"rps": 1, "slots": 1})
            await lease.__aenter__()
            waiting = asyncio.create_task(_waited(here))
            await asyncio.sleep(1.1)
            await lease.__aexit__(None, None, None)
            waited.append(round(await waiting, 3))
        return waited, queues(here)

    (woken, found), left = simulate(main)

    assert (1.1, 0) == (woken, left)
    assert 1.1 <= found <= 1.35


async def _waited(limiter):
    async with limiter.acquire("user", "api", {"rps": 1, "slots": 1}, max_wait=5) as lease:
        return lease.waited
