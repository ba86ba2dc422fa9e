"""Bucket items of several shards are shown to users as one row per limit."""

import pytest

from tests.many_shards import Items, after_split, have
from tests.one_bucket import NOON, after, at, created, stored, taking, view
from zae_limiter.core.limit import Limit
from zae_limiter.schema.bucket_item import capacity_of, counts_of, states_of

RPM = Limit("rpm", 101, 100, 60)
TPM = Limit("tpm", 9, 1, 60)
TERMS = stored(RPM)


def three_shards() -> Items:
    items = after_split({0: created(TERMS, {"rpm": 7})}, 0, at(NOON))
    return after_split(items, 1, at(NOON))


def test_states_of_shards_are_one_row_per_limit() -> None:
    """Capacity is undivided, totals are added, and the write counter is hidden."""
    items = three_shards()
    items[1] = after(taking(view(items[1]), TERMS, {"rpm": 3}, at(NOON)), items[1])

    (state,) = states_of(list(items.values()), 0)

    assert ("user-1", "gpt-4", "rpm") == (state.entity_id, state.resource, state.limit_name)
    assert (91_000, NOON, 101_000, 10_000) == (
        state.tokens_milli,
        state.last_refill_ms,
        state.capacity_milli,
        state.total_consumed_milli,
    )


def test_capacity_of_shards_is_that_of_the_bucket() -> None:
    """It includes the level at the requested time."""
    items = three_shards()
    shards = list(items.values())

    assert (101_000, have(items, "rpm", NOON + 1_000), None) == capacity_of(shards, "rpm", NOON + 1_000)
    assert capacity_of(shards, "tpm", NOON) is None


def test_states_of_shards_with_different_limits_use_the_newest() -> None:
    """A shard that has yet to be rebased counts its full share of a new limit."""
    items = after_split({0: created(TERMS)}, 0, at(NOON))
    items[1] = after(taking(view(items[1]), stored(TPM, stamp=2), {"tpm": 1}, at(NOON)), items[1])

    (state,) = states_of(list(items.values()), 0)

    assert ("tpm", 8_000, 9_000) == (state.limit_name, state.tokens_milli, state.capacity_milli)


@pytest.mark.parametrize("damage", [None, 0, 65, "two"])
def test_damaged_shard_count_is_read_as_one(damage: object) -> None:
    """A damaged item can still be removed."""
    items = three_shards()

    assert {0: 2, 1: 4, 3: 4} == counts_of(items.values())
    assert {1: 1} == counts_of([{**items[1], "shard_count": damage}])
