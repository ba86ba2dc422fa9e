"""A bucket gets more shards only if its write rate needs them, on a table whose partitions throttle."""

import pytest

from tests.simulation.growth import Load, grow, settled
from tests.simulation.table import Partitions
from tests.simulation.world import simulate


def test_shards_of_a_bucket_at_a_low_rate_stay_one() -> None:
    """A large limit is no reason to split. 20 writes per second are few, even 5,000 of them."""
    seconds = simulate(grow, 1, Load(clients=4, per_second=20, seconds=250))

    assert {1} == {one.shards for one in seconds}
    assert 4_800 < sum(len(one.latencies_ms) for one in seconds)


def test_shards_under_throttles_of_the_whole_table_stay_one() -> None:
    """5 % of 57 writes per second are throttled although the partition has room. A rejection then reads one shard."""
    seconds = simulate(grow, 1, Load(clients=4, per_second=57, seconds=40, throttled=0.05))

    assert {1} == {one.shards for one in seconds}
    assert 0 == sum(one.rejected + one.failed for one in seconds)
    assert sum(one.tally.throttled for one in seconds) > 80


@pytest.mark.parametrize(("seed", "overdraws"), [(1, False), (2, True)])
def test_shards_of_a_hot_bucket_settle_within_five_seconds(seed: int, overdraws: bool) -> None:
    """5,000 writes/s are five times what one partition accepts. From the sixth second on, fewer than 1 % are throttled.

    This also holds if a full partition rejects the split itself: clients then leave the partition alone for a while.
    """
    seconds = simulate(grow, seed, Load(64, 5_000, seconds=7, partitions=Partitions(overdraws=overdraws)))

    assert settled(seconds, after_s=5) < 0.01
    assert 8 <= seconds[-1].shards <= 32
    assert all(4_500 < len(one.latencies_ms) for one in seconds[5:])
    assert 0 == sum(one.rejected + one.failed for one in seconds)


def test_growth_run_of_the_same_seed_is_identical() -> None:
    """The same seed gives the same run, so a result can be reproduced."""
    load = Load(clients=8, per_second=1_500, seconds=2)

    assert simulate(grow, 3, load) == simulate(grow, 3, load)
