"""Requests that share a write: when and with which others each is sent, fails, or is cancelled."""

import asyncio
from random import Random

import pytest

from tests.limiter_async.write_batchers import Number, NumberBatcher, ticks, unavailable
from zae_limiter.core.errors import RateLimiterUnavailable


@pytest.fixture
def batcher():
    return NumberBatcher()


async def left_by(task):
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


class TestBatching:
    async def test_request_to_an_idle_batcher_is_sent_immediately(self, batcher):
        """It is sent alone, without waiting for others."""
        assert "1" == await batcher.join(Number(1))
        assert [[1]] == batcher.batches
        assert batcher.rests()

    async def test_waiting_requests_are_sent_as_one_batch_in_order(self, batcher):
        """Each gets its own outcome."""
        batcher.held.clear()
        tasks = await batcher.sent(1)
        tasks += await batcher.sent(2, 3, 4)
        batcher.held.set()

        assert ["1", "2", "3", "4"] == await asyncio.gather(*tasks)
        assert [[1], [2, 3, 4]] == batcher.batches
        assert batcher.rests()

    async def test_requests_that_start_together_are_sent_in_one_batch(self, batcher):
        """A batch that is about to be sent takes in later requests."""
        tasks = await batcher.sent(1, 2, 3)

        assert ["1", "2", "3"] == await asyncio.gather(*tasks)
        assert [[1, 2, 3]] == batcher.batches

    @pytest.mark.parametrize("room", [1, 2, 3])
    async def test_batches_in_flight_never_exceed_the_maximum(self, room):
        """The number of requests makes no difference."""
        batcher = NumberBatcher(max_in_flight=room, most_together=2)
        batcher.held.clear()
        tasks = [task for number in range(20) for task in await batcher.sent(number)]
        sent_at_first = len(batcher.batches)
        batcher.held.set()
        await asyncio.gather(*tasks)

        assert (room, room) == (sent_at_first, batcher.most_seen)
        assert list(range(20)) == [number for some in batcher.batches for number in some]
        assert {1, 2} >= {len(some) for some in batcher.batches}
        assert batcher.rests()

    async def test_second_batch_is_sent_while_the_first_is_in_flight(self):
        """With a maximum above one, a request does not wait for earlier batches."""
        batcher = NumberBatcher(max_in_flight=2)
        batcher.held.clear()
        tasks = [*await batcher.sent(1), *await batcher.sent(2), *await batcher.sent(3, 4)]
        before = [list(some) for some in batcher.batches]
        batcher.held.set()
        await asyncio.gather(*tasks)

        assert [[1], [2]] == before
        assert [[1], [2], [3, 4]] == batcher.batches


class TestFailures:
    async def test_failed_batch_raises_for_its_requests_and_no_others(self, batcher):
        """Batches before and after it succeed."""
        batcher.held.clear()
        tasks = await batcher.sent(1)
        tasks += await batcher.sent(2, 3)
        batcher.failing = error = unavailable()
        batcher.held.set()
        await asyncio.wait(tasks[:1])
        await ticks(3)
        batcher.failing = None
        tasks += await batcher.sent(4)
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert ["1", error, error, "4"] == results
        assert [] == batcher.undone
        assert batcher.rests()

    async def test_outcome_of_one_request_may_be_an_error(self, batcher):
        """The other requests of its batch succeed."""
        error = unavailable()

        async def send_all(requests):
            return [error if number == 2 else str(number) for number in requests]

        batcher.send_all = send_all
        results = await asyncio.gather(*await batcher.sent(1, 2, 3), return_exceptions=True)

        assert ["1", error, "3"] == results

    async def test_unexpected_error_of_a_batch_raises_for_the_leader_and_unavailable_for_others(self, batcher):
        """The outcome of the other requests is unknown, and none is left waiting."""
        batcher.failing = ZeroDivisionError()
        tasks = await batcher.sent(1, 2)
        batcher.failing = None
        results = await asyncio.gather(*tasks, *await batcher.sent(3), return_exceptions=True)

        assert [ZeroDivisionError, RateLimiterUnavailable, str] == [type(result) for result in results]
        assert batcher.rests()

    async def test_traceback_of_a_shared_error_does_not_grow_with_the_requests(self, batcher):
        """Each request raises it with its own traceback."""
        batcher.failing = unavailable()
        tasks = await batcher.sent(*range(50))
        lengths = []
        for task in reversed(tasks):
            with pytest.raises(RateLimiterUnavailable) as caught:
                await task
            lengths.append(len(caught.traceback))

        assert max(lengths) < 30


class TestCancellation:
    async def test_waiting_request_that_is_cancelled_leaves_the_queue(self, batcher):
        """It is not sent, and nothing is undone."""
        batcher.held.clear()
        tasks = await batcher.sent(1)
        tasks += await batcher.sent(2, 3)
        tasks[1].cancel()
        gone = await left_by(tasks[1])
        batcher.held.set()

        assert gone
        assert ["1", "3"] == [await tasks[0], await tasks[2]]
        assert ([[1], [3]], []) == (batcher.batches, batcher.undone)

    @pytest.mark.parametrize("number", [1, 2, 3])
    @pytest.mark.parametrize("times", [1, 3])
    async def test_request_cancelled_in_flight_waits_for_its_outcome_and_is_undone(self, batcher, number, times):
        """Leader or not, and however often it is cancelled; the others succeed."""
        batcher.held.clear()
        tasks = await batcher.sent(1, 2, 3)
        cancelled_task = tasks.pop(number - 1)
        for _ in range(times):
            cancelled_task.cancel()
            await ticks(4)
        waits = not cancelled_task.done()
        batcher.held.set()

        assert waits
        assert await left_by(cancelled_task)
        assert [str(number)] == batcher.undone
        assert {"1", "2", "3"} - {str(number)} == set(await asyncio.gather(*tasks))
        assert batcher.rests()

    async def test_failed_request_that_is_cancelled_is_not_undone(self, batcher):
        """There is nothing to undo."""
        batcher.held.clear()
        batcher.failing = unavailable()
        tasks = await batcher.sent(1, 2)
        for task in tasks:
            task.cancel()
        await ticks(3)
        batcher.held.set()

        assert [True, True] == [await left_by(task) for task in tasks]
        assert [] == batcher.undone

    async def test_failed_undo_is_logged_and_affects_no_other_request(self, batcher, caplog):
        """The caller still gets its cancellation."""

        async def undo(*_):
            raise unavailable()

        batcher.undo = undo
        batcher.held.clear()
        leads, led, other = [asyncio.create_task(batcher.join(Number(number))) for number in (1, 2, 3)]
        await ticks(3)
        leads.cancel()
        led.cancel()
        batcher.held.set()

        assert [True, True] == [await left_by(leads), await left_by(led)]
        assert "3" == await other
        assert 2 == caplog.text.count("request not undone")

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    @pytest.mark.parametrize("apart", range(5))
    @pytest.mark.parametrize("later", range(6))
    async def test_leader_cancelled_before_its_batch_is_sent_hands_over(self, batcher, order, apart, later):
        """The next leader may be cancelled as well, at any moment."""
        batcher.held.clear()
        tasks = await batcher.sent(0)
        tasks += await batcher.sent(1, 2, 3)
        batcher.held.set()
        await ticks(later)
        for number in order:
            tasks[1 + number].cancel()
            await ticks(apart)
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)

        assert "3" == await tasks[3]
        assert settled_once(batcher, tasks, range(4))

    @pytest.mark.parametrize("at", range(12))
    async def test_batcher_is_idle_after_all_tasks_of_a_loop_are_cancelled(self, batcher, at):
        """The next request is not blocked."""
        tasks = [batcher.send(number) for number in range(3)]
        await ticks(at)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)
            await ticks(20)

        assert batcher.rests()
        assert "9" == await batcher.join(Number(9))


class TestRandomTasks:
    @pytest.mark.parametrize("seed", range(40))
    async def test_random_requests_are_sent_at_most_once_and_undone_if_cancelled(self, seed):
        """Requests start, fail and are cancelled at random moments."""
        random = Random(seed)
        batcher = UnreliableCarrier(random)
        tasks = []
        async with asyncio.timeout(300):
            for number in range(150):
                tasks.append(batcher.send(number))
                if random.random() < 0.4:
                    await ticks(random.randrange(4))
                for _ in range(random.randrange(3)):
                    random.choice(tasks[-20:]).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        assert settled_once(batcher, tasks, range(150))
        assert batcher.rests()
        assert batcher.most_seen <= batcher.max_in_flight


class UnreliableCarrier(NumberBatcher):
    """Takes a while, fails at random, and records what it has actually batches out."""

    def __init__(self, random):
        super().__init__(max_in_flight=random.choice((1, 2, 8)), most_together=random.choice((1, 3, 1_000)))
        self.random = random
        self.failed = set()

    async def send_all(self, requests):
        await ticks(self.random.randrange(3))
        if self.random.random() < 0.2:
            self.failing = self.random.choice((unavailable(), ZeroDivisionError()))
            self.failed.update(requests)
        try:
            return await super().send_all(requests)
        finally:
            self.failing = None
            await ticks(self.random.randrange(3))


def settled_once(batcher, tasks, numbers):
    """Check that each request was sent at most once, and undone once exactly if its task was cancelled."""
    batches = [number for some in batcher.batches for number in some]
    arrived = set(batches) - getattr(batcher, "failed", set())
    cancelled = {number for number in numbers if tasks[number].cancelled()}
    returned = {number for number in numbers if not tasks[number].cancelled() and tasks[number].exception() is None}
    assert len(batches) == len(set(batches))
    assert sorted(map(str, arrived & cancelled)) == sorted(batcher.undone)
    assert returned == arrived - cancelled
    return True
