"""A hot bucket is not split later because usage is counted once a minute."""

from tests.aggregator.stream_batches import BEFORE
from tests.simulation.split_times import LARGEST, SETTINGS, Heat, mean_s, runs

# The aggregator alone splits: clients are not throttled, and live too briefly to measure the rate.
HOT = Heat(per_s=950, measured=False)
SEEDS = range(1, 9)
# A quarter of the time in which the bucket fills a batch.
NOISE_S = 0.25


def test_hot_bucket_is_split_as_soon_as_with_batches_of_two_seconds() -> None:
    """It fills a batch within 1.25 seconds, whatever the interval. Where batches begin is a matter of chance."""
    now, before = runs(SEEDS, HOT, SETTINGS["default"]), runs(SEEDS, HOT, BEFORE)

    assert mean_s(now) < mean_s(before) + NOISE_S
    assert 0 == sum(one.throttled for one in now)


def test_hot_bucket_would_be_split_later_with_larger_batches() -> None:
    """The simulation detects a delay: batches of 6 MB take more than two seconds to fill."""
    assert mean_s(runs(SEEDS, HOT, SETTINGS["default"])) + NOISE_S < mean_s(runs(SEEDS, HOT, LARGEST))


def test_long_lived_clients_split_before_the_aggregator() -> None:
    """They measure the rate themselves, so neither interval nor batch matters."""
    heat = Heat(per_s=950, measured=True)

    assert all(one.split_s < 1.5 for one in runs(SEEDS, heat, LARGEST))
