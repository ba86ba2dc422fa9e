"""When a client does something about a shard that takes no writes for now."""

import pytest

from zae_limiter.core.sharding import MOST_SHARDS, Hold, held, may_relieve, splits_for_throttle


@pytest.mark.parametrize(("last_ms", "may"), [(None, True), (1_000, False), (981, False), (980, True), (1_001, True)])
def test_a_client_looks_at_a_throttled_shard_now_and_then(last_ms: int | None, may: bool) -> None:
    """Of all the requests that a throttle hits at once one looks; a clock that was set back holds nobody up."""
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
    """Where the store gives a reason it decides; where it gives none, the shard's write rate does."""
    assert splits == splits_for_throttle(partition, rate, 1_000, 1)


@pytest.mark.parametrize("partition", [True, None])
def test_shard_as_small_as_it_gets_is_not_split(partition: bool | None) -> None:
    """Whatever it is asked for."""
    assert not splits_for_throttle(partition, 990.0, 1_000, MOST_SHARDS)


def test_a_shard_that_takes_no_write_is_left_alone_for_a_while() -> None:
    """Clients that were refused at once come again at different times."""
    assert Hold(10.01, 0.02) == held(None, 10.0, 0.0)
    assert Hold(pytest.approx(10.015), 0.02) == held(None, 10.0, 0.5)


def test_refusals_of_what_was_sent_before_prolong_nothing() -> None:
    """Many may be under way when the first is refused; at its end a hold is over."""
    hold = held(None, 10.0, 0.0)

    assert hold == held(hold, 10.009, 0.9)
    assert held(hold, hold.until_s, 0.0).until_s > hold.until_s


def test_a_shard_that_is_found_full_again_is_left_alone_for_longer() -> None:
    """Each time about twice as long, up to a fifth of a second."""
    hold = held(None, 10.0, 0.0)
    lengths_s = [hold.length_s]
    for _ in range(5):
        hold = held(hold, hold.until_s + 0.9, 0.0)
        lengths_s.append(hold.length_s)

    assert [0.02, 0.04, 0.08, 0.16, 0.2, 0.2] == lengths_s


def test_what_was_a_second_ago_is_forgotten() -> None:
    """It tells nothing of how full the shard is now."""
    before = Hold(10.0, 0.2)

    assert (0.02, 0.2) == (held(before, 11.0, 0.0).length_s, held(before, 10.99, 0.0).length_s)
