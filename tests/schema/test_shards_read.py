"""Bucket items of several shards, as users see them: one row per limit."""

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


def test_shards_are_one_row_per_limit() -> None:
    """The capacity is undivided, totals are added up, and the write counter is no limit."""
    items = three_shards()
    items[1] = after(taking(view(items[1]), TERMS, {"rpm": 3}, at(NOON)), items[1])

    (state,) = states_of(list(items.values()))

    assert ("user-1", "gpt-4", "rpm") == (state.entity_id, state.resource, state.limit_name)
    assert (91_000, NOON, 101_000, 10_000) == (
        state.tokens_milli,
        state.last_refill_ms,
        state.capacity_milli,
        state.total_consumed_milli,
    )


def test_the_capacity_of_shards_is_that_of_the_bucket() -> None:
    """The level is that of the time asked for."""
    items = three_shards()
    shards = list(items.values())

    assert (101_000, have(items, "rpm", NOON + 1_000)) == capacity_of(shards, "rpm", NOON + 1_000)
    assert capacity_of(shards, "tpm", NOON) is None


def test_the_newest_limits_count_where_shards_differ() -> None:
    """A shard that was not put on them yet has its share of a limit that is new to it."""
    items = after_split({0: created(TERMS)}, 0, at(NOON))
    items[1] = after(taking(view(items[1]), stored(TPM, stamp=2), {"tpm": 1}, at(NOON)), items[1])

    (state,) = states_of(list(items.values()))

    assert ("tpm", 8_000, 9_000) == (state.limit_name, state.tokens_milli, state.capacity_milli)


@pytest.mark.parametrize("damage", [None, 0, 65, "two"])
def test_a_damaged_count_is_that_of_the_only_shard(damage: object) -> None:
    """So that what is damaged can be removed all the same."""
    items = three_shards()

    assert {0: 2, 1: 4, 3: 4} == counts_of(items.values())
    assert {1: 1} == counts_of([{**items[1], "shard_count": damage}])
