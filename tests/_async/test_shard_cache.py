"""What a client caches of the shards of a bucket."""

import pytest

from tests.many_shards import after_split, grown, looks
from tests.one_bucket import NOON, at, stored
from zae_limiter import Limit
from zae_limiter.caches.buckets import Remembered

ITEMS = grown(stored(Limit("rpm", 80, 80, 60)), [0, 0, 1])
VIEWS = looks(ITEMS)
SPLIT = looks(after_split(ITEMS, 1, at(NOON)))
WHOLE = looks(grown(stored(Limit("rpm", 80, 80, 60)), []))


@pytest.fixture
def memory():
    remembered = Remembered()
    for shard in (0, 1, 2):
        remembered.keep(shard, VIEWS[shard])
    return remembered


def test_cached_shards_report_their_shard_counts(memory):
    """An absent shard counts 0, and a shard that was never read is not listed."""
    memory.keep(2, None)

    assert {0: 4, 1: 4, 2: 0} == memory.counts()
    assert {0, 1} == set(memory.views())
    assert (VIEWS[1], None, None) == (memory.seen(1), memory.seen(2), memory.seen(3))


def test_absent_shards_stay_cached_while_other_shards_are_found_absent(memory):
    """Otherwise a client that saw many shards would read the removed ones again and again."""
    memory.keep(2, None)
    memory.keep(1, None)
    memory.keep(0, VIEWS[0])

    assert {0: 4, 1: 0, 2: 0} == memory.counts()


def test_absent_shards_are_dropped_from_the_cache_when_a_count_changes(memory):
    """They may have been split off, so they are read again."""
    memory.keep(5, None)
    memory.keep(1, SPLIT[1])

    assert {0: 4, 1: 8, 2: 4} == memory.counts()


def test_bucket_merged_to_one_shard_drops_all_other_cached_shards(memory):
    """Absent shards are dropped too."""
    memory.keep(2, None)
    memory.keep(0, WHOLE[0])

    assert memory.shards is None
    assert {0: 1} == memory.counts()


def test_missing_bucket_drops_all_cached_shards(memory):
    """All shards are deleted together."""
    memory.keep(0, None)

    assert memory.shards is None
    assert {0: 0} == memory.counts()
    assert {} == memory.views()
