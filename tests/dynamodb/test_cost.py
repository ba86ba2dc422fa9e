"""The cost of every case on a real engine: round trips, calls, and capacity of the table and every index.

What an engine reports has to equal DynamoDB's published rules. No engine reports the capacity of a
refused write, nor does DynamoDB, which bills it. There only the rules apply.
"""

from pathlib import Path

from tests.dynamodb import cost_cases as cases
from tests.dynamodb.spending import Cost

GET, BATCH, PUT, UPDATE = "GetItem", "BatchGetItem", "PutItem", "UpdateItem"


class TestAdmitted:
    async def test_an_admitted_request_costs_one_write_unit(self, cost_of):
        """One round trip, no reads, and no index writes."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted)

    async def test_a_request_after_refill_costs_one_write_unit(self, cost_of):
        """The refill is computed from the clock and never written separately."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted_after_refill)

    async def test_a_request_on_a_full_bucket_costs_one_write_unit(self, cost_of):
        """Setting the balance is one write too."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.admitted_from_full)

    async def test_a_request_on_a_bucket_above_one_kilobyte_costs_two_write_units(self, cost_of):
        """A write is billed by the size of the item."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.admitted_by_a_large_bucket)

    async def test_a_request_for_a_resource_of_100_characters_costs_two_write_units(self, cost_of):
        """The item contains the resource five times, and is above 1 KB with two limits."""
        assert 100 == len(cases.LONG_RESOURCE)
        assert Cost(1, (UPDATE,), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.admitted_by_a_long_resource)

    async def test_a_request_with_an_outdated_view_costs_a_second_write(self, cost_of):
        """The refused write is billed, and returns what the second one needs."""
        assert Cost(2, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.view_was_off)

    async def test_a_stale_view_with_too_few_tokens_costs_a_read_and_a_write(self, cost_of):
        """A stale view is refreshed before a request is rejected."""
        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == await cost_of(cases.view_says_too_little)

    async def test_without_speculative_writes_a_read_precedes_every_write(self, cost_of):
        """It costs half a read unit more, and a round trip."""
        cost = await cost_of(cases.looking_first, speculative_writes=False)

        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == cost

    async def test_a_take_writes_to_no_index(self, ledger_of):
        """No index projects an attribute that a take changes."""
        (entry,) = (await ledger_of(cases.admitted)).entries

        assert {} == entry.reported.indexes

    async def test_an_engine_reports_writes_to_an_index(self, ledger_of):
        """Otherwise its report of a take would prove nothing."""
        ledger = await ledger_of(cases.create_cached)

        assert {"GSI2": 1, "GSI3": 1, "GSI4": 1} == ledger.entries[-1].reported.indexes


class TestFirstTouch:
    async def test_a_first_request_with_cached_limits_reads_only_the_bucket(self, cost_of):
        """It costs half a read unit."""
        assert Cost(2, (GET, UPDATE), rcu=0.5, wcu=1, index_wcu=0) == await cost_of(cases.first_touch_cached)

    async def test_a_first_request_without_cached_limits_reads_everything_in_one_batch(self, cost_of):
        """Four levels of limits, the entity and the bucket cost half a unit each, whether or not they exist."""
        assert Cost(2, (BATCH, UPDATE), rcu=3, wcu=1, index_wcu=0) == await cost_of(cases.first_touch_not_cached)

    async def test_a_client_reads_its_namespace_once_per_cache_ttl(self, cost_of):
        """Its first call reads one unit more than the first touch of another bucket: also the version record."""
        assert Cost(2, (BATCH, UPDATE), rcu=4, wcu=1, index_wcu=0) == await cost_of(cases.first_call_of_a_client)

    async def test_refreshing_cached_limits_does_not_read_the_bucket(self, cost_of):
        """After the cache TTL the five records are read, and the view of the bucket stays valid."""
        assert Cost(2, (BATCH, UPDATE), rcu=2.5, wcu=1, index_wcu=0) == await cost_of(cases.limits_read_again)

    async def test_creating_a_bucket_costs_four_write_units(self, cost_of):
        """The table and three indexes are written, in as many round trips as for an existing bucket."""
        assert Cost(2, (GET, PUT), rcu=0.5, wcu=1, index_wcu=3) == await cost_of(cases.create_cached)

    async def test_creating_a_bucket_of_a_resource_of_100_characters_costs_five_write_units(self, cost_of):
        """An entry of an index has keys only, so each remains one unit."""
        assert Cost(2, (GET, PUT), rcu=0.5, wcu=2, index_wcu=3) == await cost_of(cases.create_for_a_long_resource)

    async def test_creating_a_bucket_without_cached_limits_reads_as_much_as_a_first_request(self, cost_of):
        """A missing bucket costs half a read unit too."""
        assert Cost(2, (BATCH, PUT), rcu=3, wcu=1, index_wcu=3) == await cost_of(cases.create_not_cached)


class TestRejected:
    async def test_a_rejection_by_a_fresh_view_costs_nothing(self, cost_of):
        """Within a second of the last read, no call is made."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(cases.rejected_fresh)

    async def test_a_rejection_by_a_stale_view_costs_a_read(self, cost_of):
        """Half a read unit is a tenth of the price of a refused write."""
        assert Cost(1, (GET,), rcu=0.5, wcu=0, index_wcu=0) == await cost_of(cases.rejected_stale)

    async def test_a_rejection_by_the_bucket_costs_a_write_unit(self, cost_of):
        """Other clients took the tokens that the view still shows. The refused write returns what is left."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.rejected_by_the_bucket)


class TestQuota:
    async def test_a_take_with_a_quota_costs_one_write_unit(self, cost_of):
        """A quota is part of the item, so it has no write of its own."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.quota_taken)

    async def test_the_first_take_of_a_period_costs_one_write_unit(self, cost_of):
        """A period begins without a write."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.quota_taken_in_a_new_period)

    async def test_an_adjustment_of_a_quota_and_a_rate_limit_costs_one_write_unit(self, cost_of):
        """Both are settled in one write."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.quota_adjusted)

    async def test_a_rejection_by_a_quota_costs_nothing_if_the_view_is_fresh(self, cost_of):
        """As for any limit."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(cases.quota_rejected_fresh)


class TestSettled:
    async def test_an_adjustment_up_costs_one_write(self, cost_of):
        """It is written on leaving, besides the write on entering."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.adjust)

    async def test_an_adjustment_down_costs_one_write(self, cost_of):
        """A credit costs as much as a debit."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.adjust_down)

    async def test_a_release_costs_one_write(self, cost_of):
        """Leaving the lease writes nothing more."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.release)

    async def test_a_rollback_costs_one_write(self, cost_of):
        """An exception in the block costs as much as an adjustment."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.roll_back)

    async def test_a_debit_to_a_missing_bucket_creates_it(self, cost_of):
        """The debit is refused, the namespace and its limits are read consistently, and the bucket is created."""
        cost = await cost_of(cases.debit_to_a_missing_bucket)

        assert Cost(3, (UPDATE, BATCH, PUT), rcu=7, wcu=2, index_wcu=3) == cost


class TestCascade:
    async def test_a_cascade_costs_two_writes_in_one_round_trip(self, cost_of):
        """Child and parent are written at the same time."""
        assert Cost(1, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.cascade)

    async def test_an_adjustment_of_a_cascade_costs_two_writes_in_one_round_trip(self, cost_of):
        """Child and parent are written at the same time."""
        assert Cost(1, (UPDATE, UPDATE), rcu=0, wcu=2, index_wcu=0) == await cost_of(cases.cascade_adjusted)

    async def test_a_cascade_refused_by_the_parent_writes_the_child_twice(self, cost_of):
        """Taken from the child, refused by the parent, credited to the child."""
        cost = await cost_of(cases.cascade_refused_by_the_parent)

        assert Cost(2, (UPDATE, UPDATE, UPDATE), rcu=0, wcu=3, index_wcu=0) == cost

    async def test_a_cascade_rejected_by_the_view_of_the_parent_costs_nothing(self, cost_of):
        """The child is not written."""
        cost = await cost_of(cases.cascade_rejected_by_the_view_of_the_parent)

        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == cost


async def test_available_costs_half_a_read_unit(cost_of):
    """``available`` reads the bucket, whatever is cached."""
    assert Cost(1, (GET,), rcu=0.5, wcu=0, index_wcu=0) == await cost_of(cases.looked_at)


def test_every_printed_cost_case_is_tested_here():
    """The figures in the documentation are those of these tests."""
    source = Path(__file__).read_text()

    assert [] == [case.title for case in cases.CASES if f"cases.{case.run.__name__}" not in source]


class TestSlots:
    async def test_slots_are_taken_in_the_write_of_the_tokens(self, cost_of):
        """Requests, tokens and slots are one write unit together."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.slot_taken)

    async def test_slots_are_returned_in_the_write_of_an_adjustment(self, cost_of):
        """A lease with an adjustment pays nothing for its slots."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.slot_returned_with_an_adjustment)

    async def test_slots_that_are_returned_alone_cost_one_write(self, cost_of):
        """A lease without an adjustment has no other write."""
        assert Cost(1, (UPDATE,), rcu=0, wcu=1, index_wcu=0) == await cost_of(cases.slot_returned)

    async def test_a_rejection_for_lack_of_slots_is_free_while_the_view_is_fresh(self, cost_of):
        """A view of slots is trusted for a shorter time, because slots are returned at any time."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(cases.slots_rejected_fresh)
        assert Cost(1, (GET,), rcu=0.5, wcu=0, index_wcu=0) == await cost_of(cases.slots_rejected_stale)
