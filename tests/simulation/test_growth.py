"""A bucket gets more shards only if its write rate needs them, on a table whose partitions throttle."""

import pytest

from tests.simulation.growth import Load, grow, grow_and_measure, settled, usd_per_million
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


def test_price_of_calls_to_one_key_is_that_of_one_write_each():
    """A million write units cost USD 0.625. Opening, refused writes and reads add less than a tenth."""
    seconds = simulate(grow, 1, Load(clients=4, per_second=200, seconds=10))

    assert 0.625 <= usd_per_million(seconds) < 1.1 * 0.625


def test_group_commit_lets_few_clients_make_more_calls_than_writes():
    """A client has at most 8 writes of a key in flight, and later calls share the next write."""
    seconds = simulate(grow, 1, Load(clients=1, per_second=3_000, seconds=2, group_commit=True))
    late = seconds[-1]

    assert len(late.latencies_ms) > 1.4 * late.tally.writes
    assert usd_per_million([late]) < 0.625 / 1.4


def test_many_keys_have_one_shard_each_and_no_throttles():
    """Every key is a partition of its own. A client caches each key that it has used, in about a kilobyte."""
    seconds, cached = simulate(grow_and_measure, 1, Load(8, 1_000, 2, group_commit=True, keys=1_000_000))
    admitted = sum(len(one.latencies_ms) for one in seconds)

    assert 0.99 * admitted < seconds[-1].shards < 1.01 * admitted
    assert 0 == sum(one.tally.throttled + one.tally.reads_throttled + one.failed for one in seconds)
    assert 0 < cached.buckets < admitted
    assert cached.size_bytes < 1_200 * cached.buckets


@pytest.mark.parametrize(("per_second", "fails"), [(80, False), (150, True)])
def test_new_keys_are_limited_by_the_reads_of_the_system_defaults(per_second: int, fails: bool):
    """The first call to a key reads the limits. Those of all keys are one item, whose partition accepts so many reads.

    Here it is 100 reads a second instead of DynamoDB's 6,000.
    """
    few = Partitions(reads_per_s=50)
    load = Load(4, per_second, 3, group_commit=True, keys=1_000_000, partitions=few)
    seconds = simulate(grow, 1, load)

    assert fails == (sum(one.failed for one in seconds) > 0.1 * per_second)
    assert fails == (sum(one.tally.reads_throttled for one in seconds) > per_second)
