"""The cost of requests of several buckets on a real engine, as in ``test_cost``."""

from functools import partial
from pathlib import Path

import pytest

from tests.dynamodb import level_cost_cases as cases
from tests.dynamodb.spending import Cost

BATCH, PUT, UPDATE = "BatchGetItem", "PutItem", "UpdateItem"
FREE = Cost(0, (), rcu=0, wcu=0, index_wcu=0)


def written(units: int, trips: int = 1) -> Cost:
    """Return the cost of writes alone, of one unit each."""
    return Cost(trips, (UPDATE,) * units, rcu=0, wcu=units, index_wcu=0)


class TestWarm:
    @pytest.mark.parametrize("levels", [1, 2, 3, 5])
    async def test_each_level_costs_one_write_in_one_round_trip(self, cost_of, levels):
        """All levels are written at the same time, and nothing is read."""
        assert written(levels) == await cost_of(partial(cases.admitted, levels=levels))

    async def test_adjustment_of_five_levels_costs_one_write_each(self, cost_of):
        """They are written at the same time, when the lease ends."""
        assert written(5) == await cost_of(partial(cases.adjusted, levels=5))

    async def test_level_known_to_be_exhausted_rejects_for_free(self, cost_of):
        """Its view is fresh."""
        assert FREE == await cost_of(cases.known_exhausted)

    async def test_level_that_was_exhausted_when_last_seen_is_read_before_any_write(self, cost_of):
        """All views are too old to reject: that level is read first, and the others for their statuses in one call."""
        cost = await cost_of(cases.exhausted_when_last_seen)

        assert Cost(2, ("GetItem", BATCH), rcu=2.5, wcu=0, index_wcu=0) == cost

    async def test_nearly_exhausted_level_that_refuses_costs_one_write(self, cost_of):
        """It is written first and alone, so no other level is charged in vain. The goal is two at most."""
        assert written(1) == await cost_of(cases.nearly_exhausted)

    async def test_nearly_exhausted_level_that_admits_costs_a_round_trip_more(self, cost_of):
        """The others are written after it."""
        assert written(5, trips=2) == await cost_of(cases.nearly_exhausted_admits)

    async def test_level_that_seemed_to_have_enough_costs_nine_writes_if_it_refuses(self, cost_of):
        """Five takes, one of them refused, and four credits."""
        assert written(9, trips=2) == await cost_of(cases.refused)

    async def test_limits_of_all_levels_are_read_again_in_one_call(self, cost_of):
        """The defaults of the resource and of the system are shared by all levels."""
        cost = await cost_of(cases.limits_read_again)

        assert Cost(2, (BATCH, *[UPDATE] * 5), rcu=8.5, wcu=5, index_wcu=0) == cost


class TestCold:
    async def test_first_call_reads_twice(self, cost_of):
        """First the entity, then all levels that its record names. The goal is four round trips at most."""
        cost = await cost_of(cases.cold)

        assert Cost(3, (BATCH, BATCH, *[UPDATE] * 5), rcu=13, wcu=5, index_wcu=0) == cost

    async def test_first_call_with_wrong_hints_reads_each_level(self, cost_of):
        """Each entity above was moved after the one below it. The goal is seven round trips at most."""
        cost = await cost_of(cases.cold_with_wrong_hints)

        assert Cost(6, (*[BATCH] * 5, *[UPDATE] * 5), rcu=16, wcu=5, index_wcu=0) == cost

    async def test_first_call_creates_all_buckets_at_the_same_time(self, cost_of):
        """Each has three entries in indexes."""
        cost = await cost_of(cases.cold_and_created)

        assert Cost(3, (BATCH, BATCH, *[PUT] * 5), rcu=13, wcu=5, index_wcu=15) == cost


class TestAcrossResources:
    async def test_limits_across_resources_cost_one_write_more(self, cost_of):
        """At the same time as the bucket of the resource."""
        assert written(2) == await cost_of(cases.across_resources)

    async def test_limits_across_resources_of_other_entities_cost_nothing(self, cost_of):
        """An entity without them is charged as before."""
        assert written(1) == await cost_of(cases.across_resources_of_others)

    async def test_limits_across_resources_on_every_level_cost_one_write_each(self, cost_of):
        """Ten buckets are written at the same time."""
        assert written(10) == await cost_of(cases.across_resources_on_every_level)


class TestAlso:
    async def test_another_entity_costs_one_write(self, cost_of):
        """At the same time as the first request."""
        assert written(2) == await cost_of(cases.also_another_entity)

    async def test_parent_of_both_entities_is_written_once(self, cost_of):
        """With the sum of both."""
        assert written(3) == await cost_of(cases.also_below_the_same_parent)


def test_every_printed_cost_case_is_tested_here():
    """The figures in the documentation are those of these tests."""
    source = Path(__file__).read_text()
    names = [getattr(case.run, "func", case.run).__name__ for case in cases.LEVEL_CASES]

    assert [] == [name for name in names if f"cases.{name}" not in source]
