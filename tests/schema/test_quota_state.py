"""What users see of a quota in a bucket: its state, its capacity, and the view after a write."""

import pytest

from tests.many_shards import after_split
from tests.one_bucket import NOON, at, created, stored, view
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import BucketState
from zae_limiter.schema.bucket_item import LimitCapacity, capacity_of, states_of, view_after_write
from zae_limiter.schema.item_view import ItemView

SPEND = Limit.quota("spend", 100, every="month", unit="USD", enforce=False, warn_at=(0.8,))
RPM = Limit.per_minute("rpm", 100)
NOVEMBER_MS = 1_698_796_800_000
DECEMBER_MS = 1_701_388_800_000
JANUARY_S = 1_704_067_200
ITEM = created(stored(SPEND), {"spend": 7})


def test_state_of_a_quota_is_what_is_left_of_its_period() -> None:
    """With its options, and when it is full again."""
    expected = BucketState(
        entity_id="user-1",
        resource="gpt-4",
        limit_name="spend",
        tokens_milli=93_000,
        last_refill_ms=NOVEMBER_MS,
        capacity_milli=100_000,
        refill_amount_milli=0,
        refill_period_ms=0,
        total_consumed_milli=7_000,
        schedule=SPEND.schedule,
        unit="USD",
        enforce=False,
        warn_at=(0.8,),
        resets_at=DECEMBER_MS // 1000,
    )

    assert [expected] == states_of([ITEM], NOON)
    assert SPEND == expected.limit


def test_state_of_a_quota_in_the_next_period_is_full() -> None:
    """The begin of a period needs no write."""
    (state,) = states_of([ITEM], DECEMBER_MS)

    assert (100_000, DECEMBER_MS, JANUARY_S) == (state.tokens_milli, state.last_refill_ms, state.resets_at)


def test_state_of_a_quota_at_an_earlier_clock_is_that_of_the_proven_period() -> None:
    """A client that knew November has written the item, so it is not October any more."""
    (state,) = states_of([ITEM], NOVEMBER_MS - 1)

    assert (93_000, NOVEMBER_MS) == (state.tokens_milli, state.last_refill_ms)


def test_state_of_a_quota_on_two_shards_is_their_sum() -> None:
    """A split moves half of what is left, and changes no sum."""
    shards = list(after_split({0: ITEM}, 0, at(NOON)).values())
    (state,) = states_of(shards, NOON)

    assert 2 == len(shards)
    assert (93_000, 100_000, 7_000) == (state.tokens_milli, state.capacity_milli, state.total_consumed_milli)


def test_states_of_a_bucket_with_several_kinds_are_in_the_order_of_their_names() -> None:
    """Each is read as its own kind."""
    slots = Limit.concurrent("slots", 4, hold_seconds=10)
    item = created(stored(RPM, slots, SPEND), {"rpm": 1, "slots": 2, "spend": 3})

    assert [("rpm", 99), ("slots", 2), ("spend", 97)] == [
        (state.limit_name, state.tokens) for state in states_of([item], NOON)
    ]


@pytest.mark.parametrize(("now_ms", "left"), [(NOON, 93_000), (DECEMBER_MS - 1, 93_000), (DECEMBER_MS, 100_000)])
def test_capacity_of_a_quota_has_its_level_in_the_period(now_ms: int, left: int) -> None:
    """It is full from the first moment of the next one."""
    assert LimitCapacity(100_000, left, "USD") == capacity_of([ITEM], "spend", now_ms)


def test_view_of_an_embedded_bucket_after_a_write_keeps_the_new_item() -> None:
    """Its numbers are read from it when they are asked for."""
    before = ItemView(view(ITEM).layout, ITEM, NOON, None, None)
    item = {**ITEM, "b_spend_qk": ITEM["b_spend_qk"] - 5, "b_wcu_tc": ITEM["b_wcu_tc"] + 1}

    after = view_after_write(before, item, ((0, 5_000),), NOON + 1)

    assert isinstance(after, ItemView)
    assert (item, before.layout, NOON + 1, None) == (after.item, after.layout, after.seen_ms, after.pace)
    assert (before.numbers[0] - 5, 7_000, 2) == after.numbers
