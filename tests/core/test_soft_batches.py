"""Batches beside soft limits, and levels of several shards that must keep a reserve."""

from tests.many_shards import after_split
from tests.one_bucket import NOON, at, created, stored, view
from zae_limiter.core.batch import room_of
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.tracked import Refund, refunds_across

HARD = Limit.per_minute("rpm", 100)
SOFT = Limit.per_minute("tpm", 40, enforce=False)
TRIAL = Limit.quota("trial", 10, enforce=False)


def test_room_has_soft_rate_limits_only_if_they_are_asked_for() -> None:
    """A soft quota counts everything, so it bounds no batch."""
    terms = stored(HARD, SOFT, TRIAL)
    seen = view(created(terms))

    assert {"rpm": 100} == room_of(seen, terms, at(NOON))
    assert {"rpm": 100, "tpm": 40} == room_of(seen, terms, at(NOON), of_soft=True)


def test_level_after_a_take_above_a_reserve_lacks_exactly_what_was_taken() -> None:
    """Every shard keeps its part, so a take leaves less above it by its amount."""
    terms = stored(HARD)
    items = after_split({0: created(terms)}, 0, at(NOON))
    (level,) = combined([view(item) for item in items.values()], terms, at(NOON))
    half = Reserve(1, 2)
    after = level.less_above(30_000, at(NOON), half)

    assert 50_000 == level.above(half).available_milli(at(NOON))
    assert 20_000 == after.above(half).available_milli(at(NOON))
    assert 70_000 == after.available_milli(at(NOON))


def test_refund_of_a_soft_rate_limit_goes_to_its_shard_or_to_the_one_it_was_merged_into() -> None:
    """A split leaves it where it was charged; a merge leaves the lower shard."""
    terms = stored(SOFT)
    items = after_split({0: created(terms)}, 0, at(NOON))
    views = {shard: view(item) for shard, item in items.items()}
    charged = Refund("tpm", 0, 3_000, 5_000)

    assert {1: [charged]} == refunds_across(views, [(1, charged)])
    assert {0: [charged]} == refunds_across(views, [(3, charged)])
    assert {} == refunds_across({}, [(0, charged)])
