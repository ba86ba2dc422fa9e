"""What a client expects of a bucket while takes are under way, and where one waits for its turn."""

import asyncio

from tests.one_bucket import NOON, at, created, stored, view, with_balances
from zae_limiter.caches.buckets import Flight, NamespaceCaches, Remembered
from zae_limiter.core.batch import room_of
from zae_limiter.core.limit import Limit
from zae_limiter.runtime.aio import Slot

PATIENCE_S = 300
DUE_S = 1000.0
NEVER_S = 0.0
TERMS = stored(Limit("rpm", 100, 100, 60), Limit("rps", 10, 10, 1))
ITEM = with_balances(created(TERMS), rpm=50_000, rps=9_000)


def remembering(item=ITEM):
    memory = Remembered()
    memory.view = view(item)
    return memory


def flight(memory, *changes):
    """Return a take that changes the balances as last seen."""
    return Flight(memory.view.layout, changes, DUE_S)


def expects(memory):
    """Return the tokens that are expected to be there."""
    return room_of(memory.expected(), TERMS, at(NOON))


class TestExpected:
    def test_without_takes_under_way_it_is_as_last_seen(self):
        """Nothing is reckoned with."""
        memory = remembering()

        assert memory.view is memory.expected()
        assert Remembered().expected() is None

    def test_each_take_in_flight_counts_until_it_arrives(self):
        """In whatever order they do."""
        memory = remembering()
        first, second = flight(memory, (0, -10_000), (1, -1_000)), flight(memory, (0, -5_000))
        memory.send(first, NEVER_S)
        memory.send(second, NEVER_S)
        both, count = expects(memory), memory.in_flight
        memory.arrive(first)
        one = expects(memory)
        memory.arrive(second)

        assert [{"rpm": 35, "rps": 8}, {"rpm": 45, "rps": 9}] == [both, one]
        assert (2, 0) == (count, memory.in_flight)
        assert memory.view is memory.expected()

    def test_all_but_the_balances_is_as_last_seen(self):
        """Totals and the count of writes."""
        memory = remembering()
        memory.send(flight(memory, (0, -10_000)), NEVER_S)

        assert memory.view.numbers[2:] == memory.expected().numbers[2:]
        assert len(memory.view.numbers) == len(memory.expected().numbers)

    def test_takes_on_other_limits_do_not_count(self):
        """A bucket that was brought up to date meanwhile is judged as it is."""
        memory = remembering()
        old = flight(memory, (0, -10_000))
        memory.send(old, NEVER_S)
        memory.view = view(ITEM)
        as_seen = memory.expected()
        memory.send(flight(memory, (0, -1_000)), NEVER_S)
        memory.arrive(old)

        assert memory.view.numbers == as_seen.numbers
        assert {"rpm": 49, "rps": 9} == expects(memory)

    def test_a_take_whose_caller_vanished_counts_until_the_next_that_begins_after_its_deadline(self):
        """So an interrupt costs accuracy for a while, and not for good."""
        memory = remembering()
        memory.send(flight(memory, (0, -10_000)), NEVER_S)
        memory.send(flight(memory, (0, -1_000)), DUE_S + 1)

        assert {"rpm": 49, "rps": 9} == expects(memory)

    def test_what_cannot_be_hashed_is_not_remembered(self):
        """Nothing is known of it, and asking is no fault."""
        assert NamespaceCaches().limits((["user-1"], "gpt-4")) is None


class TestSlot:
    async def test_who_waits_is_woken_by_the_value(self):
        """Also if that is None."""
        slots = [Slot(), Slot()]
        tasks = [asyncio.create_task(slot.wait(PATIENCE_S)) for slot in slots]
        await asyncio.sleep(0)
        slots[0].set("value")
        slots[1].set(None)
        await asyncio.gather(*tasks)

        assert [(True, "value"), (True, None)] == [(slot.filled, slot.value) for slot in slots]

    async def test_a_value_that_is_there_is_had_at_once_and_again(self):
        """Nothing waits for it."""
        slot = Slot()
        slot.set("value")
        await slot.wait(PATIENCE_S)
        await slot.wait(PATIENCE_S)

        assert "value" == slot.value

    async def test_a_wait_ends_without_a_value(self):
        """After the time it was given, or at once if none is left."""
        slot = Slot()
        await slot.wait(0.001)
        await slot.wait(-1)

        assert not slot.filled

    async def test_who_was_cancelled_may_wait_again(self):
        """Whether the value came before or after it asks."""
        for late in (True, False):
            slot = Slot()
            task = asyncio.create_task(slot.wait(PATIENCE_S))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            again = asyncio.create_task(slot.wait(PATIENCE_S))
            if late:
                await asyncio.sleep(0)
            slot.set("value")
            await again

            assert "value" == slot.value
