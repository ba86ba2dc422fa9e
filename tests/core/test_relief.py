"""When a client reacts to a throttled shard."""

import pytest

from zae_limiter.core.sharding import MOST_SHARDS, Hold, held, may_relieve, splits_for_throttle


@pytest.mark.parametrize(("last_ms", "may"), [(None, True), (1_000, False), (981, False), (980, True), (1_001, True)])
def test_client_relieves_a_throttled_shard_at_most_every_20_milliseconds(last_ms: int | None, may: bool) -> None:
    """One of the throttled requests acts; a clock that was set back does not block it."""
    assert may == may_relieve(last_ms, 1_000)


@pytest.mark.parametrize(
    ("partition", "rate", "splits"),
    [
        (True, None, True),
        (True, 1.0, True),
        (False, None, False),
        (False, 990.0, False),
        (None, None, False),
        (None, 57.0, False),
        (None, 799.0, False),
        (None, 800.0, True),
    ],
)
def test_shard_is_split_for_its_own_partition_or_its_own_writes(
    partition: bool | None, rate: float | None, splits: bool
) -> None:
    """If the store gives a reason, it decides; otherwise the shard's write rate does."""
    assert splits == splits_for_throttle(partition, rate, 1_000, 1)


@pytest.mark.parametrize("partition", [True, None])
def test_shard_at_the_maximum_shard_count_is_not_split(partition: bool | None) -> None:
    """The reason makes no difference."""
    assert not splits_for_throttle(partition, 990.0, 1_000, MOST_SHARDS)


def test_throttled_shard_is_avoided_for_a_jittered_cooldown() -> None:
    """Clients that were throttled together return at different times."""
    assert Hold(10.01, 0.02) == held(None, 10.0, 0.0)
    assert Hold(pytest.approx(10.015), 0.02) == held(None, 10.0, 0.5)


def test_throttles_during_a_cooldown_do_not_extend_it() -> None:
    """Many writes may be in flight when the first is throttled."""
    hold = held(None, 10.0, 0.0)

    assert hold == held(hold, 10.009, 0.9)
    assert held(hold, hold.until_s, 0.0).until_s > hold.until_s


def test_repeated_throttles_double_the_cooldown_up_to_200_milliseconds() -> None:
    """Each cooldown is about twice as long as the last."""
    hold = held(None, 10.0, 0.0)
    lengths_s = [hold.length_s]
    for _ in range(5):
        hold = held(hold, hold.until_s + 0.9, 0.0)
        lengths_s.append(hold.length_s)

    assert [0.02, 0.04, 0.08, 0.16, 0.2, 0.2] == lengths_s


def test_cooldown_length_is_reset_after_a_second() -> None:
    """An older throttle says nothing about the shard now."""
    before = Hold(10.0, 0.2)

    assert (0.02, 0.2) == (held(before, 11.0, 0.0).length_s, held(before, 10.99, 0.0).length_s)
