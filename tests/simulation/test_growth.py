"""Shards grow with what a bucket is asked for, and only then, on a table whose partitions throttle."""

import pytest

from tests.simulation.growth import Load, grow, settled
from tests.simulation.table import Partitions
from tests.simulation.world import simulate


def test_a_slow_trickle_never_grows_the_shards() -> None:
    """A large limit is no reason to split: only the writes of a second are, and 5,000 requests at 20/s are few."""
    seconds = simulate(grow, 1, Load(clients=4, per_second=20, seconds=250))

    assert {1} == {one.shards for one in seconds}
    assert 4_800 < sum(len(one.latencies_ms) for one in seconds)


def test_throttles_unrelated_to_the_key_never_grow_the_shards() -> None:
    """5 % of 57 writes a second are throttled, though the partition has room; a rejection then reads one shard."""
    seconds = simulate(grow, 1, Load(clients=4, per_second=57, seconds=40, throttled=0.05))

    assert {1} == {one.shards for one in seconds}
    assert 0 == sum(one.rejected + one.failed for one in seconds)
    assert sum(one.tally.throttled for one in seconds) > 80


@pytest.mark.parametrize(("seed", "overdraws"), [(1, False), (2, True)])
def test_shards_of_a_hot_bucket_settle_within_seconds(seed: int, overdraws: bool) -> None:
    """5,000 writes/s are five times what one partition takes; from the sixth second on hardly one is throttled.

    Also where a partition that is full keeps the split itself out: clients leave it alone for a while.
    """
    seconds = simulate(grow, seed, Load(64, 5_000, seconds=7, partitions=Partitions(overdraws=overdraws)))

    assert settled(seconds, after_s=5) < 0.01
    assert 8 <= seconds[-1].shards <= 32
    assert all(4_500 < len(one.latencies_ms) for one in seconds[5:])
    assert 0 == sum(one.rejected + one.failed for one in seconds)


def test_a_run_is_a_seed() -> None:
    """The same seed gives the same run, so that whatever is found can be found again."""
    load = Load(clients=8, per_second=1_500, seconds=2)

    assert simulate(grow, 3, load) == simulate(grow, 3, load)
