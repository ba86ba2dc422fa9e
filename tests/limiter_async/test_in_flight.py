"""The level that a client expects of a bucket while takes are in flight, and the slot where a request waits."""

import asyncio

from tests.one_bucket import NOON, at, created, stored, view, with_balances
from zae_limiter.caches.buckets import Flight, NamespaceCaches, Remembered
from zae_limiter.core.batch import room_of
from zae_limiter.core.limit import Limit
from zae_limiter.runtime.aio import Slot

LONG_DEADLINE_S = 300
DUE_S = 1000.0
NEVER_S = 0.0
TERMS = stored(Limit("rpm", 100, 100, 60), Limit("rps", 10, 10, 1))
ITEM = with_balances(created(TERMS), rpm=50_000, rps=9_000)


def remembering(item=ITEM):
    memory = Remembered()
    memory.view = view(item)
    return memory


def flight(memory, *changes):
    """Return a take in flight that changes the balances of the cached view."""
    return Flight(memory.view.layout, changes, DUE_S)


def expects(memory):
    """Return the tokens that the client expects to be available."""
    return room_of(memory.expected(), TERMS, at(NOON))


class TestExpected:
    def test_expected_view_without_takes_in_flight_is_the_cached_view(self):
        """Nothing is subtracted."""
        memory = remembering()

        assert memory.view is memory.expected()
        assert Remembered().expected() is None

    def test_expected_view_subtracts_each_take_in_flight_until_it_arrives(self):
        """The order in which takes arrive makes no difference."""
        memory = remembering()
        first, second = flight(memory, (0, -10_000), (1, -1_000)), flight(memory, (0, -5_000))
        memory.send(first, NEVER_S)
        memory.send(second, NEVER_S)
        both, count = expects(memory), memory.in_flight
        del memory.flights[first]
        one = expects(memory)
        del memory.flights[second]

        assert [{"rpm": 35, "rps": 8}, {"rpm": 45, "rps": 9}] == [both, one]
        assert (2, 0) == (count, memory.in_flight)
        assert memory.view is memory.expected()

    def test_expected_view_differs_from_the_cached_view_only_in_the_balances(self):
        """Totals and the count of writes are the same."""
        memory = remembering()
        memory.send(flight(memory, (0, -10_000)), NEVER_S)

        assert memory.view.numbers[2:] == memory.expected().numbers[2:]
        assert len(memory.view.numbers) == len(memory.expected().numbers)

    def test_expected_view_ignores_takes_in_flight_on_an_older_layout(self):
        """A bucket that was rebased in the meantime is judged as it is."""
        memory = remembering()
        old = flight(memory, (0, -10_000))
        memory.send(old, NEVER_S)
        memory.view = view(ITEM)
        as_seen = memory.expected()
        memory.send(flight(memory, (0, -1_000)), NEVER_S)
        del memory.flights[old]

        assert memory.view.numbers == as_seen.numbers
        assert {"rpm": 49, "rps": 9} == expects(memory)

    def test_lost_take_in_flight_is_dropped_by_the_next_take_after_its_deadline(self):
        """An interrupt makes the expected view less exact for a while, but not forever."""
        memory = remembering()
        memory.send(flight(memory, (0, -10_000)), NEVER_S)
        memory.send(flight(memory, (0, -1_000)), DUE_S + 1)

        assert {"rpm": 49, "rps": 9} == expects(memory)

    def test_cached_limits_of_an_unhashable_key_are_none(self):
        """Such a key is never cached, and the lookup does not raise."""
        assert NamespaceCaches().limits((["user-1"], "gpt-4")) is None


class TestSlot:
    async def test_slot_wait_returns_when_the_value_is_set(self):
        """None is a value, too."""
        slots = [Slot(), Slot()]
        tasks = [asyncio.create_task(slot.wait(LONG_DEADLINE_S)) for slot in slots]
        await asyncio.sleep(0)
        slots[0].set("value")
        slots[1].set(None)
        await asyncio.gather(*tasks)

        assert [(True, "value"), (True, None)] == [(slot.filled, slot.value) for slot in slots]

    async def test_slot_wait_returns_immediately_if_the_value_is_set(self):
        """It may be called again."""
        slot = Slot()
        slot.set("value")
        await slot.wait(LONG_DEADLINE_S)
        await slot.wait(LONG_DEADLINE_S)

        assert "value" == slot.value

    async def test_slot_wait_returns_without_a_value_after_its_timeout(self):
        """A negative timeout returns immediately."""
        slot = Slot()
        await slot.wait(0.001)
        await slot.wait(-1)

        assert not slot.filled

    async def test_slot_wait_may_be_called_again_after_a_cancellation(self):
        """Whether the value was set before or after that call."""
        for late in (True, False):
            slot = Slot()
            task = asyncio.create_task(slot.wait(LONG_DEADLINE_S))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            again = asyncio.create_task(slot.wait(LONG_DEADLINE_S))
            if late:
                await asyncio.sleep(0)
            slot.set("value")
            await again

            assert "value" == slot.value
