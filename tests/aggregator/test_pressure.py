"""Write counters in records plan splits before a shard is throttled, and surveys for merges."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.simulated_table import BUCKETS, START_MS
from zae_limiter.core.sharding import Gauge
from zae_limiter.schema.usage_item import pad_sequence
from zae_limiter_aggregator.plan import BatchPlan, Memories, Merge, Rules, Split, Survey, plan
from zae_limiter_aggregator.records import Batch, BucketChange, BucketRecord
from zae_limiter_aggregator.write_rates import Memory, Watch, looked_at, pairs_to_merge

RULES = Rules(window_types=("hourly",))
MINUTE_MS = 60_000
BUCKET = BUCKETS[0]


def written(at_ms: int, writes: int, shard_count: int = 1, bucket=BUCKET) -> BucketChange:
    """Return the record of a bucket after this many writes."""
    return BucketChange(bucket, pad_sequence(str(writes)), at_ms, {}, 1, BucketRecord(shard_count, writes))


def planned(memories: Memories, changes: Iterable[BucketChange], now_ms: int | None = None) -> BatchPlan:
    listed = list(changes)
    return plan(Batch(changes=listed), memories, RULES, listed[-1].at_ms if now_ms is None else now_ms)


def traffic(rate: int, seconds: int, whole_seconds: bool, start_ms: int = START_MS, before: int = 0):
    """Yield records of a shard with this write rate, with times as in a stream."""
    for number in range(rate * seconds):
        at_ms = start_ms + number * 1000 // rate
        yield written(at_ms // 1000 * 1000 if whole_seconds else at_ms, before + number + 1)


@pytest.mark.parametrize("whole_seconds", [True, False])
@pytest.mark.parametrize(("rate", "pressed"), [(10, False), (790, False), (810, True), (1000, True)])
def test_a_shard_is_split_before_it_is_throttled(rate: int, pressed: bool, whole_seconds: bool):
    """The threshold is four fifths of the limit of a partition. Times of a stream are rounded down to seconds."""
    found = planned(Memories(), traffic(rate, 3, whole_seconds))

    assert ([Split(BUCKET, 1)] if pressed else []) == found.splits


@given(st.integers(1, 400), st.booleans())
def test_small_batches_measure_the_same_rate_as_a_large_one(size: int, whole_seconds: bool):
    """The memory of earlier batches makes the rate the same."""
    memories = Memories()
    changes = list(traffic(900, 3, whole_seconds))
    splits = []
    for start in range(0, len(changes), size):
        splits += planned(memories, changes[start : start + size]).splits

    assert {Split(BUCKET, 1)} == set(splits)


def test_a_repeated_batch_is_not_measured_again():
    """Older write counters are ignored."""
    memories = Memories()
    changes = list(traffic(100, 5, True))
    for _ in range(20):
        assert [] == planned(memories, changes).splits


def test_a_high_rate_in_the_past_does_not_split():
    """A lagging stream reports rates that are over."""
    changes = list(traffic(900, 3, True))
    late_ms = changes[-1].at_ms + 60_000

    assert [] == planned(Memories(), changes, late_ms + 1_000).splits
    assert [Split(BUCKET, 1)] == planned(Memories(), changes, late_ms).splits


def test_a_split_shard_is_measured_from_its_split():
    """Both halves share the rate of the one."""
    memories = Memories()
    changes = [*traffic(900, 2, False), written(START_MS + 2_000, 1801, 2)]

    assert [] == planned(memories, changes).splits
    assert [] == planned(memories, [written(START_MS + 3_000, 2_251, 2)]).splits


def test_a_restarted_write_counter_is_measured_from_its_start():
    """The bucket was deleted and created again."""
    watch = looked_at(Watch(Gauge(START_MS, 5_000), 1, 10.0, START_MS), START_MS + 9_000, BucketRecord(1, 3), 1_000)

    assert Watch(Gauge(START_MS + 9_000, 3), 1, None, START_MS + 9_000) == watch


@pytest.mark.parametrize("record", [BucketRecord(1, 9_000), BucketRecord(2, 10), BucketRecord(2, 90_000)])
def test_an_older_record_of_a_shard_is_ignored(record: BucketRecord):
    """This includes its shard count."""
    watch = Watch(Gauge(START_MS, 5_000), 2, 10.0, START_MS - 9_000)

    assert watch == looked_at(watch, START_MS - 1, record, 1_000)


def test_a_bucket_with_the_maximum_number_of_shards_is_not_split():
    """The maximum is 64."""
    changes = [written(START_MS, 1, 64), written(START_MS + 1_000, 1_001, 64)]

    assert [] == planned(Memories(), changes).splits


def test_a_record_without_shard_data_is_counted():
    """The log of an embedded table has none."""
    change = BucketChange(BUCKET, pad_sequence("1"), START_MS, {"rpm": 1_000}, 1)
    found = planned(Memories(), [change])

    assert (1, [], []) == (len(found.counts), found.splits, found.merges)


def test_a_bucket_of_several_shards_is_surveyed_once_a_minute():
    """It is surveyed while it is written to, with the earlier results."""
    memories = Memories()
    both = [written(START_MS, 1, 4, BUCKETS[1]), written(START_MS, 1, 2, BUCKETS[0])]
    known = {0: Watch(Gauge(START_MS, 1), 2, None, START_MS)}

    assert [Merge(BUCKETS[0], 4, {})] == planned(memories, both).merges
    memories.surveys.keep(BUCKETS[0], Survey(START_MS, known))
    assert [] == planned(memories, both, START_MS + MINUTE_MS - 1).merges
    assert [Merge(BUCKETS[0], 4, known)] == planned(memories, both, START_MS + MINUTE_MS).merges
    # A clock that was set back does not stop the surveys.
    assert [Merge(BUCKETS[0], 4, known)] == planned(memories, both, START_MS - 1).merges


@pytest.mark.parametrize(("late_ms", "apart"), [(0, True), (30_000, True), (30_001, False)])
def test_a_lagging_aggregator_counts_in_transactions(late_ms: int, apart: bool):
    """They cost more but are faster. The newest record shows the lag."""
    changes = [written(START_MS - 3_600_000, 1), written(START_MS, 2)]

    assert apart == planned(Memories(), changes, START_MS + late_ms).rules.apart


@pytest.mark.parametrize(("late_ms", "apart"), [(90_000, True), (90_001, False)])
def test_a_record_that_waited_for_the_interval_is_not_late(late_ms: int, apart: bool):
    """Lambda may deliver it only at the end of the interval, so the lag begins there."""
    batch = Batch(changes=[written(START_MS, 1)])
    found = plan(batch, Memories(), Rules(interval_s=60), START_MS + late_ms)

    assert apart == found.rules.apart


def test_a_bucket_of_one_shard_is_not_surveyed():
    """There is nothing to merge."""
    assert [] == planned(Memories(), [written(START_MS, 1)]).merges


def test_a_low_write_rate_lasts_until_a_survey_shows_otherwise():
    """It starts at the first survey, or at the last one with a higher rate."""
    watch = looked_at(None, START_MS, BucketRecord(2, 0), 1_000)
    spans = []
    for minute, writes in enumerate([1_000, 2_000, 30_000, 31_000, 32_000], start=1):
        watch = looked_at(watch, START_MS + minute * MINUTE_MS, BucketRecord(2, writes), 1_000)
        spans.append(watch.calm.calm_ms // MINUTE_MS)

    assert [1, 2, 0, 1, 2] == spans


def test_merge_pairs_share_no_shard():
    """All shards with low rates merge in one step, each with one other."""
    calm = Watch(Gauge(START_MS, 0), 4, 0.0, START_MS - 3 * MINUTE_MS)

    assert [(1, 3), (0, 2)] == pairs_to_merge(dict.fromkeys(range(4), calm))


def test_a_full_memory_forgets_the_oldest_entry():
    """The memory has a maximum size."""
    memory: Memory[str, int] = Memory(2)
    for number, key in enumerate(["one", "two", "one", "three"]):
        memory.keep(key, number)

    assert (2, 2, None, 3) == (len(memory), memory.get("one"), memory.get("two"), memory.get("three"))


@given(st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 50)), max_size=40))
def test_effects_are_at_most_buckets_times_windows(parts):
    """The number of records makes no difference."""
    changes = [
        written(START_MS + hour * MINUTE_MS, number + 1, 1, bucket) for number, (bucket, hour) in enumerate(parts)
    ]
    found = plan(Batch(changes=changes), Memories(), Rules(window_types=("hourly", "daily")), START_MS)

    assert sum(len(group) for group in found.counts) <= 2 * len({change.bucket for change in changes})
