"""Requests that wait for their tokens, in simulated time: their order, their bounds, and what they leave behind."""

import asyncio
import pickle
from contextlib import suppress

import pytest

from tests._async.clients import AsynchronousTable, CountingTable, another
from tests.limiter_async.waiters import PER_SECOND, Order, exhaust, opened, queues
from tests.simulation.world import simulate
from zae_limiter import (
    Also,
    AmountExceedsCapacityError,
    EntityBlockedError,
    Limit,
    Queue,
    RateLimiter,
    RateLimitExceeded,
    ValidationError,
)


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
    """A request that reads the limits wakes those of its process that wait for the bucket."""

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
