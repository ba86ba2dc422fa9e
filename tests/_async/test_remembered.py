"""What a client remembers of the shards of a bucket."""

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


def test_shards_are_known_by_their_counts(memory):
    """One that was found absent counts as none, one that was never looked at is not there."""
    memory.keep(2, None)

    assert {0: 4, 1: 4, 2: 0} == memory.counts()
    assert {0, 1} == set(memory.views())
    assert (VIEWS[1], None, None) == (memory.seen(1), memory.seen(2), memory.seen(3))


def test_what_was_found_absent_stays_so_while_others_are_found_absent_too(memory):
    """Else a client that saw many shards would look for those that are gone again and again."""
    memory.keep(2, None)
    memory.keep(1, None)
    memory.keep(0, VIEWS[0])

    assert {0: 4, 1: 0, 2: 0} == memory.counts()


def test_what_was_absent_may_have_been_split_off_once_a_count_changes(memory):
    """Then it is looked for again."""
    memory.keep(5, None)
    memory.keep(1, SPLIT[1])

    assert {0: 4, 1: 8, 2: 4} == memory.counts()


def test_a_bucket_that_is_whole_again_has_no_other_shards(memory):
    """All are forgotten, absent ones too."""
    memory.keep(2, None)
    memory.keep(0, WHOLE[0])

    assert memory.shards is None
    assert {0: 1} == memory.counts()


def test_a_bucket_that_is_gone_has_no_other_shards(memory):
    """All go at once."""
    memory.keep(0, None)

    assert memory.shards is None
    assert {0: 0} == memory.counts()
    assert {} == memory.views()
