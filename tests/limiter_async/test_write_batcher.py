"""Requests that travel together: who sets out when and with whom, who fails, and who leaves."""

import asyncio
from random import Random

import pytest

from tests.limiter_async.write_batchers import Carrier, Number, away, ticks
from zae_limiter.core.errors import RateLimiterUnavailable


@pytest.fixture
def carrier():
    return Carrier()


async def left_by(task):
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


class TestTravelling:
    async def test_who_comes_to_an_idle_convoy_sets_out_at_once(self, carrier):
        """Alone, and before it first waits for anything but its own carrying."""
        assert "1" == await carrier.join(Number(1))
        assert [[1]] == carrier.carried
        assert carrier.rests()

    async def test_those_who_wait_travel_as_one_in_their_order(self, carrier):
        """Each gets what came of its own."""
        carrier.held.clear()
        tasks = await carrier.sent(1)
        tasks += await carrier.sent(2, 3, 4)
        carrier.held.set()

        assert ["1", "2", "3", "4"] == await asyncio.gather(*tasks)
        assert [[1], [2, 3, 4]] == carrier.carried
        assert carrier.rests()

    async def test_who_comes_while_one_is_about_to_set_out_is_taken_along(self, carrier):
        """Tasks that start at once need one journey."""
        tasks = await carrier.sent(1, 2, 3)

        assert ["1", "2", "3"] == await asyncio.gather(*tasks)
        assert [[1, 2, 3]] == carrier.carried

    @pytest.mark.parametrize("room", [1, 2, 3])
    async def test_never_more_under_way_than_there_is_room(self, room):
        """However many come."""
        carrier = Carrier(most_under_way=room, most_together=2)
        carrier.held.clear()
        tasks = [task for number in range(20) for task in await carrier.sent(number)]
        carried_at_first = len(carrier.carried)
        carrier.held.set()
        await asyncio.gather(*tasks)

        assert (room, room) == (carried_at_first, carrier.most_seen)
        assert list(range(20)) == [number for some in carrier.carried for number in some]
        assert {1, 2} >= {len(some) for some in carrier.carried}
        assert carrier.rests()

    async def test_with_room_another_sets_out_beside_the_first(self):
        """Who comes later does not wait for who came before."""
        carrier = Carrier(most_under_way=2)
        carrier.held.clear()
        tasks = [*await carrier.sent(1), *await carrier.sent(2), *await carrier.sent(3, 4)]
        before = [list(some) for some in carrier.carried]
        carrier.held.set()
        await asyncio.gather(*tasks)

        assert [[1], [2]] == before
        assert [[1], [2], [3, 4]] == carrier.carried


class TestFailing:
    async def test_a_failure_reaches_all_of_its_journey_and_no_other(self, carrier):
        """Those before and after it arrive."""
        carrier.held.clear()
        tasks = await carrier.sent(1)
        tasks += await carrier.sent(2, 3)
        carrier.failing = error = away()
        carrier.held.set()
        await asyncio.wait(tasks[:1])
        await ticks(3)
        carrier.failing = None
        tasks += await carrier.sent(4)
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert ["1", error, error, "4"] == results
        assert [] == carrier.undone
        assert carrier.rests()

    async def test_what_came_of_one_may_be_an_error_of_its_own(self, carrier):
        """Others of its journey arrive."""
        error = away()

        async def carry(requests):
            return [error if number == 2 else str(number) for number in requests]

        carrier.carry = carry
        results = await asyncio.gather(*await carrier.sent(1, 2, 3), return_exceptions=True)

        assert ["1", error, "3"] == results

    async def test_a_fault_of_the_carrier_is_told_to_its_leader_and_strands_nobody(self, carrier):
        """The others hear that they cannot know what came of their requests."""
        carrier.failing = ZeroDivisionError()
        tasks = await carrier.sent(1, 2)
        carrier.failing = None
        results = await asyncio.gather(*tasks, *await carrier.sent(3), return_exceptions=True)

        assert [ZeroDivisionError, RateLimiterUnavailable, str] == [type(result) for result in results]
        assert carrier.rests()

    async def test_an_error_that_many_hear_does_not_grow_with_them(self, carrier):
        """Each tells where it was raised for itself."""
        carrier.failing = away()
        tasks = await carrier.sent(*range(50))
        lengths = []
        for task in reversed(tasks):
            with pytest.raises(RateLimiterUnavailable) as caught:
                await task
            lengths.append(len(caught.traceback))

        assert max(lengths) < 30


class TestLeaving:
    async def test_who_waits_and_is_cancelled_leaves_the_queue(self, carrier):
        """It is not carried, and nothing is undone."""
        carrier.held.clear()
        tasks = await carrier.sent(1)
        tasks += await carrier.sent(2, 3)
        tasks[1].cancel()
        gone = await left_by(tasks[1])
        carrier.held.set()

        assert gone
        assert ["1", "3"] == [await tasks[0], await tasks[2]]
        assert ([[1], [3]], []) == (carrier.carried, carrier.undone)

    @pytest.mark.parametrize("number", [1, 2, 3])
    @pytest.mark.parametrize("times", [1, 3])
    async def test_who_is_cancelled_under_way_waits_for_its_end_and_is_undone(self, carrier, number, times):
        """Whether it leads or is led, however often it is cancelled; the others arrive."""
        carrier.held.clear()
        tasks = await carrier.sent(1, 2, 3)
        leaver = tasks.pop(number - 1)
        for _ in range(times):
            leaver.cancel()
            await ticks(4)
        waits = not leaver.done()
        carrier.held.set()

        assert waits
        assert await left_by(leaver)
        assert [str(number)] == carrier.undone
        assert {"1", "2", "3"} - {str(number)} == set(await asyncio.gather(*tasks))
        assert carrier.rests()

    async def test_what_failed_is_not_undone(self, carrier):
        """There is nothing to undo."""
        carrier.held.clear()
        carrier.failing = away()
        tasks = await carrier.sent(1, 2)
        for task in tasks:
            task.cancel()
        await ticks(3)
        carrier.held.set()

        assert [True, True] == [await left_by(task) for task in tasks]
        assert [] == carrier.undone

    async def test_an_undoing_that_fails_is_still_a_cancellation_and_harms_no_other(self, carrier, caplog):
        """It is logged: nobody is left to hear of it."""

        async def undo(*_):
            raise away()

        carrier.undo = undo
        carrier.held.clear()
        leads, led, other = [asyncio.create_task(carrier.join(Number(number))) for number in (1, 2, 3)]
        await ticks(3)
        leads.cancel()
        led.cancel()
        carrier.held.set()

        assert [True, True] == [await left_by(leads), await left_by(led)]
        assert "3" == await other
        assert 2 == caplog.text.count("was not undone")

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    @pytest.mark.parametrize("apart", range(5))
    @pytest.mark.parametrize("later", range(6))
    async def test_a_leader_that_leaves_before_it_sets_out_hands_on(self, carrier, order, apart, later):
        """Though the next leaves as well, before it or after it, at any moment."""
        carrier.held.clear()
        tasks = await carrier.sent(0)
        tasks += await carrier.sent(1, 2, 3)
        carrier.held.set()
        await ticks(later)
        for number in order:
            tasks[1 + number].cancel()
            await ticks(apart)
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)

        assert "3" == await tasks[3]
        assert kept(carrier, tasks, range(4))

    @pytest.mark.parametrize("at", range(12))
    async def test_a_loop_that_ends_leaves_the_convoy_free(self, carrier, at):
        """Every task is cancelled, those inside too: who comes next finds nobody in the way."""
        tasks = [carrier.send(number) for number in range(3)]
        await ticks(at)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)
            await ticks(20)

        assert carrier.rests()
        assert "9" == await carrier.join(Number(9))


class TestStorms:
    @pytest.mark.parametrize("seed", range(40))
    async def test_nobody_is_left_behind(self, seed):
        """Whoever comes, leaves and fails, and whenever: each is carried once at most, and undone if it had left."""
        random = Random(seed)
        carrier = Wayward(random)
        tasks = []
        async with asyncio.timeout(300):
            for number in range(150):
                tasks.append(carrier.send(number))
                if random.random() < 0.4:
                    await ticks(random.randrange(4))
                for _ in range(random.randrange(3)):
                    random.choice(tasks[-20:]).cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        assert kept(carrier, tasks, range(150))
        assert carrier.rests()
        assert carrier.most_seen <= carrier.most_under_way


class Wayward(Carrier):
    """Takes a while, fails now and then, and remembers what it has truly carried."""

    def __init__(self, random):
        super().__init__(most_under_way=random.choice((1, 2, 8)), most_together=random.choice((1, 3, 1_000)))
        self.random = random
        self.failed = set()

    async def carry(self, requests):
        await ticks(self.random.randrange(3))
        if self.random.random() < 0.2:
            self.failing = self.random.choice((away(), ZeroDivisionError()))
            self.failed.update(requests)
        try:
            return await super().carry(requests)
        finally:
            self.failing = None
            await ticks(self.random.randrange(3))


def kept(carrier, tasks, numbers):
    """Say whether all was carried once at most, and undone, once, just where its task was cancelled."""
    carried = [number for some in carrier.carried for number in some]
    arrived = set(carried) - getattr(carrier, "failed", set())
    cancelled = {number for number in numbers if tasks[number].cancelled()}
    returned = {number for number in numbers if not tasks[number].cancelled() and tasks[number].exception() is None}
    assert len(carried) == len(set(carried))
    assert sorted(map(str, arrived & cancelled)) == sorted(carrier.undone)
    assert returned == arrived - cancelled
    return True
