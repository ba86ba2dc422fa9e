"""What a client expects of a bucket while takes are under way, and where one waits for its turn."""

import asyncio

from tests.one_bucket import NOON, at, created, stored, view, with_balances
from zae_limiter._async.caches import NamespaceCaches, Remembered
from zae_limiter._async.runtime import Slot
from zae_limiter.core.batch import room_of
from zae_limiter.core.limit import Limit

TERMS = stored(Limit("rpm", 100, 100, 60), Limit("rps", 10, 10, 1))
ITEM = with_balances(created(TERMS), rpm=50_000, rps=9_000)


def remembering(item=ITEM):
    memory = Remembered()
    memory.view = view(item)
    return memory


def expects(memory):
    """Return the tokens that are expected to be there."""
    return room_of(memory.expected(), TERMS, at(NOON))


class TestExpected:
    def test_without_takes_under_way_it_is_as_last_seen(self):
        """Nothing is reckoned with."""
        memory = remembering()

        assert memory.view is memory.expected()
        assert Remembered().expected() is None

    def test_each_take_under_way_is_reckoned_with_until_it_arrives(self):
        """In whatever order they do."""
        memory = remembering()
        first, second = [(0, -10_000), (1, -1_000)], [(0, -5_000)]
        memory.send(memory.view, first)
        memory.send(memory.view, second)
        both = expects(memory)
        memory.arrive(memory.view, first)
        one = expects(memory)
        memory.arrive(memory.view, second)

        assert [{"rpm": 35, "rps": 8}, {"rpm": 45, "rps": 9}] == [both, one]
        assert memory.view is memory.expected()

    def test_all_but_the_balances_is_as_last_seen(self):
        """Totals and the count of writes."""
        memory = remembering()
        memory.send(memory.view, [(0, -10_000)])

        assert memory.view.numbers[2:] == memory.expected().numbers[2:]
        assert len(memory.view.numbers) == len(memory.expected().numbers)

    def test_takes_on_other_limits_are_not_reckoned_with(self):
        """A bucket that was brought up to date meanwhile is judged as it is."""
        memory = remembering()
        old = memory.view
        memory.send(old, [(0, -10_000)])
        memory.view = view(ITEM)
        as_seen = memory.expected()
        memory.send(memory.view, [(0, -1_000)])
        memory.arrive(old, [(0, -10_000)])

        assert memory.view is as_seen
        assert {"rpm": 49, "rps": 9} == expects(memory)

    def test_what_cannot_be_hashed_is_not_remembered(self):
        """Nothing is known of it, and asking is no fault."""
        assert NamespaceCaches().limits((["user-1"], "gpt-4")) is None


class TestSlot:
    async def test_who_waits_is_woken_by_the_value(self):
        """Also if that is None."""
        slots = [Slot(), Slot()]
        tasks = [asyncio.create_task(slot.wait()) for slot in slots]
        await asyncio.sleep(0)
        slots[0].set("value")
        slots[1].set(None)

        assert ["value", None] == await asyncio.gather(*tasks)

    async def test_a_value_that_is_there_is_had_at_once_and_again(self):
        """Nobody needs to wait for it."""
        slot = Slot()
        slot.set("value")

        assert ("value", "value") == (await slot.wait(), await slot.wait())

    async def test_who_was_cancelled_may_wait_again(self):
        """Whether the value came before or after it asks."""
        for late in (True, False):
            slot = Slot()
            task = asyncio.create_task(slot.wait())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            again = asyncio.create_task(slot.wait())
            if late:
                await asyncio.sleep(0)
            slot.set("value")

            assert "value" == await again
