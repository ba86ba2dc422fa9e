"""The cost of slots on a real engine: round trips, calls and capacity, as in ``test_cost``.

The item stays below 1 KB, because a take of a larger one would cost two write units.
"""

from typing import Any

import pytest

from tests.dynamodb.billing import item_bytes
from tests.dynamodb.cost_cases import ENTITY, RESOURCE, CostScenario
from tests.dynamodb.spending import Cost
from tests.dynamodb.test_bucket_size import NAMESPACE, UUID
from tests.one_bucket import Item, stored
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.tables.dynamodb.codec import encode_item

UPDATE, TRANSACT = "UpdateItem", "TransactWriteItems"
HOLD_S = 60
SLOTS = Limit.concurrent("slots", 20, hold_seconds=HOLD_S)
LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000), SLOTS]
CONSUME = {"rpm": 1, "tpm": 500, "slots": 1}
CREATED_MS = 1_790_000_000_123


def written(units: int) -> Cost:
    """Return the cost of writes of one unit, one after the other."""
    return Cost(units, (UPDATE,) * units, rcu=0, wcu=units, index_wcu=0)


def lease(scenario: CostScenario) -> Any:
    return scenario.client.limiter.acquire(ENTITY, RESOURCE, CONSUME)


async def prepared(scenario: CostScenario) -> None:
    """Store slots, and let the client know its bucket."""
    await scenario.others.limiter.set_system_defaults(LIMITS)
    async with lease(scenario):
        pass


async def taken(scenario: CostScenario) -> None:
    await prepared(scenario)
    scenario.measure()
    await lease(scenario).__aenter__()


async def taken_after_others_expired(scenario: CostScenario) -> None:
    await prepared(scenario)
    await lease(scenario).__aenter__()
    scenario.advance(2 * HOLD_S * 1000)
    async with lease(scenario):
        pass
    scenario.measure()
    await lease(scenario).__aenter__()


async def whole_lease(scenario: CostScenario) -> None:
    await prepared(scenario)
    scenario.measure()
    async with lease(scenario):
        pass


async def adjusted(scenario: CostScenario) -> None:
    await prepared(scenario)
    scenario.measure()
    async with lease(scenario) as held:
        await held.adjust(tpm=230)


async def released_alone(scenario: CostScenario) -> None:
    await prepared(scenario)
    async with lease(scenario):
        scenario.measure()


async def failed(scenario: CostScenario) -> None:
    await prepared(scenario)
    try:
        async with lease(scenario):
            scenario.measure()
            raise LookupError
    except LookupError:
        pass


async def rejected(scenario: CostScenario) -> None:
    await prepared(scenario)
    await scenario.client.limiter.acquire(ENTITY, RESOURCE, {"slots": 20}).__aenter__()
    scenario.measure()
    with pytest.raises(RateLimitExceeded):
        await lease(scenario).__aenter__()


class TestCost:
    async def test_take_of_requests_tokens_and_a_slot_costs_one_write_unit(self, cost_of):
        """One round trip, no reads, and no index writes."""
        assert written(1) == await cost_of(taken)

    async def test_take_that_returns_expired_slots_costs_one_write_unit(self, cost_of):
        """They are removed in the same write."""
        assert written(1) == await cost_of(taken_after_others_expired)

    async def test_lease_with_a_slot_costs_two_write_units(self, cost_of):
        """The slot is returned in a write of its own."""
        assert written(2) == await cost_of(whole_lease)

    async def test_lease_with_a_slot_and_an_adjustment_costs_two_write_units(self, cost_of):
        """The slot is returned in the write of the adjustment."""
        assert written(2) == await cost_of(adjusted)

    async def test_release_alone_costs_one_write_unit(self, cost_of):
        """Nothing is read for it."""
        assert written(1) == await cost_of(released_alone)

    async def test_failed_lease_gives_back_requests_tokens_and_slot_in_one_write(self, cost_of):
        """It costs as much as a rollback without slots."""
        assert written(1) == await cost_of(failed)

    async def test_rejection_by_a_fresh_view_costs_nothing(self, cost_of):
        """For a moment the view is good enough."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(rejected)

    async def test_renewal_costs_two_write_units(self, cost_of):
        """A transaction of one item has a token, and costs twice as much as a plain write."""
        cost = await cost_of(renewed)

        assert (1, (TRANSACT,), 0, 2) == (cost.trips, cost.calls, cost.rcu, cost.wcu)


async def renewed(scenario: CostScenario) -> None:
    await prepared(scenario)
    limiter = scenario.client.limiter
    leases = [lease(scenario) for _ in range(3)]
    for one in leases:
        await one.__aenter__()
    slots = getattr(limiter, "_inner", limiter)._client.slots
    # The table of the thread is this client's own, so that its calls are measured.
    slots._table = slots._scope.table
    scenario.advance((HOLD_S - 1) * 1000)
    scenario.measure()
    result = slots.renew_due()
    if hasattr(result, "__await__"):
        await result
    assert 3 == len(leases)


def worn_bucket(cohorts: int) -> Item:
    """Return the largest item of such limits after years of use, with so many cohorts."""
    terms = stored(*(Limit.per_minute(name, 987_654) for name in ("rpm", "tpm")), SLOTS, ttl=7, stamp=12_345)
    made = bucket_writes.create(Owner(NAMESPACE, UUID, UUID), terms, {}, CREATED_MS, Signature(2**60 - 1, 2**32 - 1))
    item = dict(made.item)
    for name in ("rpm", "tpm"):
        item |= {f"b_{name}_tk": -987_654_321_987, f"b_{name}_tc": 987_654_321_987_654_321}
    ends = [CREATED_MS // 1000 + 30 * number for number in range(cohorts)]
    item |= {f"b_slots_h{end_s}": 6_543 for end_s in ends}
    return {**item, "b_slots_tk": 1_234, "b_slots_tc": 987_654_321_987, "b_wcu_tc": 987_654_321_987, "parent_id": UUID}


def test_item_with_slots_uuids_and_three_cohorts_is_below_one_kilobyte():
    """A take of a larger item would cost two write units."""
    assert 929 == item_bytes(encode_item(worn_bucket(3))) <= 1024
