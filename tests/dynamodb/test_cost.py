"""What every case costs on a real engine: round trips, calls, and capacity of the table and of every index.

What an engine tells must be what DynamoDB's published rules say. No engine tells the capacity of a refused write, nor
does DynamoDB, which bills it: there the rules count alone.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.dynamodb import cost_cases as cases
from tests.dynamodb.cost_cases import Case
from tests.dynamodb.engines import Engine
from tests.dynamodb.spending import OPENINGS, Cost, Ledger

Play = Callable[[cases.Scene], Awaitable[None]]

GET, BATCH, PUT, UPDATE = "GetItem", "BatchGetItem", "PutItem", "UpdateItem"

# ministack gives no ConsumedCapacity for BatchGetItem.
UNTOLD = {"ministack": {BATCH}, "dynoxide": set()}


@pytest.fixture(params=OPENINGS)
def ledger_of(request: pytest.FixtureRequest, engine: Engine) -> Callable[[Play], Awaitable[Ledger]]:
    """Plays a case with a client of either tree; its calls are billed as the rules say, wherever the engine tells."""

    async def play(scene: Play, *, speculative_writes: bool = True) -> Ledger:
        ledger = await cases.play(Case("", scene, speculative_writes), engine, request.param)
        for entry in ledger.entries:
            silent = entry.refused or entry.verb in UNTOLD[engine.name]
            assert (None if silent else entry.billed) == entry.told
        return ledger

    return play


@pytest.fixture
def cost_of(ledger_of):
    async def cost(scene: Play, **options: bool) -> Cost:
        return (await ledger_of(scene, **options)).cost()

    return cost


class TestAdmitted:
    async def test_an_admitted_request_is_one_write(self, cost_of):
        """One round trip, nothing read, one write unit, no index."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted)

    async def test_a_refill_costs_nothing(self, cost_of):
        """What was earned is read off the clock and never written."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted_after_refill)

    async def test_a_bucket_that_was_full_again_costs_the_same(self, cost_of):
        """Setting the balance is one write too."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted_from_full)

    async def test_a_bucket_above_one_kilobyte_costs_two_units(self, cost_of):
        """A write is billed by the size of the item."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.admitted_by_a_large_bucket)

    async def test_a_view_that_was_off_is_a_second_write(self, cost_of):
        """The refused write is billed, and answers with what the second one needs."""
        assert Cost(2, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.view_was_off)

    async def test_a_view_that_says_too_little_is_a_read_and_a_write(self, cost_of):
        """Once it is stale it is looked at again before anything is rejected."""
        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == await cost_of(cases.view_says_too_little)

    async def test_without_speculative_writes_every_write_follows_a_read(self, cost_of):
        """Half a read unit more, and a round trip."""
        cost = await cost_of(cases.looking_first, speculative_writes=False)

        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == cost

    async def test_a_take_writes_to_no_index(self, ledger_of):
        """No index projects an attribute that a take changes."""
        (entry,) = (await ledger_of(cases.admitted)).entries

        assert {} == entry.told.indexes

    async def test_an_engine_does_tell_when_an_index_is_written_to(self, ledger_of):
        """So that its silence about a take means something."""
        ledger = await ledger_of(cases.create_cached)

        assert {"GSI2": 1, "GSI3": 1, "GSI4": 1} == ledger.entries[-1].told.indexes


class TestFirstTouch:
    async def test_with_cached_limits_only_the_bucket_is_read(self, cost_of):
        """Half a read unit."""
        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == await cost_of(cases.first_touch_cached)

    async def test_without_cached_limits_all_is_read_at_once(self, cost_of):
        """Four levels of limits, the entity, and the bucket, half a unit each, there or not."""
        assert Cost(2, (BATCH, UPDATE), rcu=3, wcu=1, index_wcu=0) == await cost_of(cases.first_touch_not_cached)

    async def test_a_client_asks_for_its_namespace_once_per_cache_ttl(self, cost_of):
        """Its first call reads half a unit more than the first touch of another bucket."""
        assert Cost(2, (BATCH, UPDATE), rcu=3.5, wcu=1, index_wcu=0) == await cost_of(cases.first_call_of_a_client)

    async def test_limits_that_are_read_again_do_not_read_the_bucket(self, cost_of):
        """After the cache TTL the five records are read, and the view of the bucket still holds."""
        assert Cost(2, (BATCH, UPDATE), rcu=2.5, wcu=1, index_wcu=0) == await cost_of(cases.limits_read_again)

    async def test_a_bucket_is_created_in_the_table_and_three_indexes(self, cost_of):
        """Four write units, in no more round trips than the first touch of one that is there."""
        assert Cost(2, (GET, PUT), rcu=0.5, wcu=1, index_wcu=3) == await cost_of(cases.create_cached)

    async def test_creating_without_cached_limits_costs_the_same_reads_as_touching(self, cost_of):
        """A bucket that is not there costs half a read unit like one that is."""
        assert Cost(2, (BATCH, PUT), rcu=3, wcu=1, index_wcu=3) == await cost_of(cases.create_not_cached)


class TestRejected:
    async def test_a_fresh_view_rejects_for_nothing(self, cost_of):
        """Within a second of the last look nobody is asked."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(cases.rejected_fresh)

    async def test_a_stale_view_is_a_read(self, cost_of):
        """Half a read unit, a tenth of the price of a refused write."""
        assert Cost(1, (GET,), rcu=0.5, wcu=0, index_wcu=0) == await cost_of(cases.rejected_stale)

    async def test_a_rejection_by_the_bucket_is_billed_as_a_write(self, cost_of):
        """Where others took what the view still shows; the refused write says how much is left."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.rejected_by_the_bucket)


class TestSettled:
    async def test_an_adjustment_up_is_one_write(self, cost_of):
        """On leaving, beside the write of entering."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.adjust)

    async def test_an_adjustment_down_is_one_write(self, cost_of):
        """A credit costs what a debit costs."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.adjust_down)

    async def test_a_release_is_one_write(self, cost_of):
        """And leaving writes nothing more."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.release)

    async def test_giving_everything_back_is_one_write(self, cost_of):
        """An exception in the block costs as much as an adjustment."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.roll_back)

    async def test_a_debit_to_a_bucket_that_is_gone_creates_it(self, cost_of):
        """The debit is refused, the namespace and its limits are read consistently, and the bucket is made."""
        cost = await cost_of(cases.debit_to_a_missing_bucket)

        assert Cost(3, (UPDATE, BATCH, PUT), rcu=6, wcu=2, index_wcu=3) == cost


class TestCascade:
    async def test_child_and_parent_are_written_at_once(self, cost_of):
        """Two writes, one round trip."""
        assert Cost(1, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.cascade)

    async def test_an_adjustment_is_a_write_for_each(self, cost_of):
        """Both at once, in one round trip."""
        assert Cost(1, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.cascade_adjusted)

    async def test_a_parent_that_refuses_has_the_child_written_twice(self, cost_of):
        """Taken from the child, refused by the parent, given back to the child."""
        cost = await cost_of(cases.cascade_refused_by_the_parent)

        assert Cost(2, (UPDATE, UPDATE, UPDATE), rcu=0, wcu=3, index_wcu=0) == cost

    async def test_a_parent_that_is_known_to_be_empty_rejects_for_free(self, cost_of):
        """The child is not written: no call, no unit."""
        cost = await cost_of(cases.cascade_rejected_by_the_view_of_the_parent)

        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == cost


async def test_looking_is_half_a_read_unit(cost_of):
    """``available`` reads the bucket, whatever is remembered of it."""
    assert Cost(1, (GET,), rcu=0.5, wcu=0, index_wcu=0) == await cost_of(cases.looked_at)


def test_every_case_that_is_printed_is_tested_here():
    """The figures in the docs are those of these tests."""
    source = Path(__file__).read_text()

    assert [] == [case.title for case in cases.CASES if f"cases.{case.play.__name__}" not in source]
