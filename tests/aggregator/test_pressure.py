"""Splits are planned ahead of pressure and looks for merges now and then, from what records tell of write counters."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.stage import BUCKETS, START_MS
from zae_limiter.core.sharding import Gauge
from zae_limiter.schema.usage_item import pad_sequence
from zae_limiter_aggregator.plan import BatchPlan, Memories, Merge, Rules, Split, Survey, plan
from zae_limiter_aggregator.records import Batch, BucketChange, BucketRecord
from zae_limiter_aggregator.write_rates import Memory, Watch, looked_at, pairs_to_merge

RULES = Rules(window_types=("hourly",))
MINUTE_MS = 60_000
BUCKET = BUCKETS[0]


def written(at_ms: int, writes: int, shard_count: int = 1, bucket=BUCKET) -> BucketChange:
    """A bucket after so many writes."""
    return BucketChange(bucket, pad_sequence(str(writes)), at_ms, {}, 1, BucketRecord(shard_count, writes))


def planned(memories: Memories, changes: Iterable[BucketChange], now_ms: int | None = None) -> BatchPlan:
    told = list(changes)
    return plan(Batch(changes=told), memories, RULES, told[-1].at_ms if now_ms is None else now_ms)


def traffic(rate: int, seconds: int, whole_seconds: bool, start_ms: int = START_MS, before: int = 0):
    """Records of a shard that is written to so often, as a stream tells their times."""
    for number in range(rate * seconds):
        at_ms = start_ms + number * 1000 // rate
        yield written(at_ms // 1000 * 1000 if whole_seconds else at_ms, before + number + 1)


@pytest.mark.parametrize("whole_seconds", [True, False])
@pytest.mark.parametrize(("rate", "pressed"), [(10, False), (790, False), (810, True), (1000, True)])
def test_a_shard_is_split_ahead_of_pressure(rate: int, pressed: bool, whole_seconds: bool):
    """At four fifths of what a partition takes; times of a stream are rounded down to seconds."""
    found = planned(Memories(), traffic(rate, 3, whole_seconds))

    assert ([Split(BUCKET, 1)] if pressed else []) == found.splits


@given(st.integers(1, 400), st.booleans())
def test_small_batches_tell_what_a_large_one_does(size: int, whole_seconds: bool):
    """Whoever remembers the batch before sees the same rate."""
    memories = Memories()
    changes = list(traffic(900, 3, whole_seconds))
    splits = []
    for start in range(0, len(changes), size):
        splits += planned(memories, changes[start : start + size]).splits

    assert {Split(BUCKET, 1)} == set(splits)


def test_a_batch_that_comes_again_is_no_pressure():
    """Older looks tell nothing."""
    memories = Memories()
    changes = list(traffic(100, 5, True))
    for _ in range(20):
        assert [] == planned(memories, changes).splits


def test_pressure_of_long_ago_is_no_reason_to_split():
    """A stream that lags behind tells of what is over."""
    changes = list(traffic(900, 3, True))
    late_ms = changes[-1].at_ms + 60_000

    assert [] == planned(Memories(), changes, late_ms + 1_000).splits
    assert [Split(BUCKET, 1)] == planned(Memories(), changes, late_ms).splits


def test_a_shard_that_was_split_is_watched_anew():
    """Both halves share what was too much for one."""
    memories = Memories()
    changes = [*traffic(900, 2, False), written(START_MS + 2_000, 1801, 2)]

    assert [] == planned(memories, changes).splits
    assert [] == planned(memories, [written(START_MS + 3_000, 2_251, 2)]).splits


def test_a_counter_that_begins_again_is_watched_anew():
    """A bucket was deleted and created."""
    watch = looked_at(Watch(Gauge(START_MS, 5_000), 1, 10.0, START_MS), START_MS + 9_000, BucketRecord(1, 3), 1_000)

    assert Watch(Gauge(START_MS + 9_000, 3), 1, None, START_MS + 9_000) == watch


@pytest.mark.parametrize("standing", [BucketRecord(1, 9_000), BucketRecord(2, 10), BucketRecord(2, 90_000)])
def test_an_older_look_tells_nothing(standing: BucketRecord):
    """Also of the count it had then."""
    watch = Watch(Gauge(START_MS, 5_000), 2, 10.0, START_MS - 9_000)

    assert watch == looked_at(watch, START_MS - 1, standing, 1_000)


def test_one_who_has_as_many_shards_as_there_may_be_is_not_split():
    """There are at most 64."""
    changes = [written(START_MS, 1, 64), written(START_MS + 1_000, 1_001, 64)]

    assert [] == planned(Memories(), changes).splits


def test_a_record_without_a_standing_is_counted_all_the_same():
    """The log of an embedded table does not tell."""
    change = BucketChange(BUCKET, pad_sequence("1"), START_MS, {"rpm": 1_000}, 1)
    found = planned(Memories(), [change])

    assert (1, [], []) == (len(found.counts), found.splits, found.merges)


def test_a_bucket_of_several_shards_is_looked_at_now_and_then():
    """Once a minute, while it is written to; with what was seen before."""
    memories = Memories()
    both = [written(START_MS, 1, 4, BUCKETS[1]), written(START_MS, 1, 2, BUCKETS[0])]
    known = {0: Watch(Gauge(START_MS, 1), 2, None, START_MS)}

    assert [Merge(BUCKETS[0], 4, {})] == planned(memories, both).merges
    memories.surveys.keep(BUCKETS[0], Survey(START_MS, known))
    assert [] == planned(memories, both, START_MS + MINUTE_MS - 1).merges
    assert [Merge(BUCKETS[0], 4, known)] == planned(memories, both, START_MS + MINUTE_MS).merges
    # A clock that was set back is no reason never to look again.
    assert [Merge(BUCKETS[0], 4, known)] == planned(memories, both, START_MS - 1).merges


@pytest.mark.parametrize(("late_ms", "apart"), [(0, True), (30_000, True), (30_001, False)])
def test_who_is_behind_counts_in_transactions(late_ms: int, apart: bool):
    """Dearer, but faster; the newest record tells how far it is behind."""
    changes = [written(START_MS - 3_600_000, 1), written(START_MS, 2)]

    assert apart == planned(Memories(), changes, START_MS + late_ms).rules.apart


def test_a_bucket_of_one_shard_is_not_looked_at():
    """There is nothing to merge."""
    assert [] == planned(Memories(), [written(START_MS, 1)]).merges


def test_calm_lasts_until_a_look_shows_otherwise():
    """From the look at which it was not, or the first."""
    watch = looked_at(None, START_MS, BucketRecord(2, 0), 1_000)
    spans = []
    for minute, writes in enumerate([1_000, 2_000, 30_000, 31_000, 32_000], start=1):
        watch = looked_at(watch, START_MS + minute * MINUTE_MS, BucketRecord(2, writes), 1_000)
        spans.append(watch.calm.calm_ms // MINUTE_MS)

    assert [1, 2, 0, 1, 2] == spans


def test_pairs_do_not_share_a_shard():
    """All that are calm merge at once, each with one other."""
    calm = Watch(Gauge(START_MS, 0), 4, 0.0, START_MS - 3 * MINUTE_MS)

    assert [(1, 3), (0, 2)] == pairs_to_merge(dict.fromkeys(range(4), calm))


def test_the_oldest_is_forgotten_first():
    """A memory holds so many."""
    memory: Memory[str, int] = Memory(2)
    for number, key in enumerate(["one", "two", "one", "three"]):
        memory.keep(key, number)

    assert (2, 2, None, 3) == (len(memory), memory.get("one"), memory.get("two"), memory.get("three"))


@given(st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 50)), max_size=40))
def test_effects_are_at_most_buckets_times_windows(parts):
    """However many records there are."""
    changes = [
        written(START_MS + hour * MINUTE_MS, number + 1, 1, bucket) for number, (bucket, hour) in enumerate(parts)
    ]
    found = plan(Batch(changes=changes), Memories(), Rules(window_types=("hourly", "daily")), START_MS)

    assert sum(len(group) for group in found.counts) <= 2 * len({change.bucket for change in changes})
