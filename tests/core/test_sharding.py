"""A shard's share of a whole, the shard of a number, and when shards split and merge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.sharding import (
    MOST_SHARDS,
    Calm,
    Gauge,
    ancestor,
    is_calm,
    is_complete,
    least_whole,
    pair_to_merge,
    route,
    share,
    wants_split,
    write_rate,
)

COUNTS = [1, 2, 4, 8, 16, 32, 64]
wholes = st.integers(-(10**25), 10**25)
positions = st.sampled_from(COUNTS).flatmap(lambda count: st.tuples(st.integers(0, count - 1), st.just(count)))


@pytest.mark.parametrize("count", COUNTS)
@given(whole=wholes)
def test_shares_of_all_shards_add_up_to_the_whole(count: int, whole: int) -> None:
    """Sharding creates and loses no millitoken."""
    assert whole == sum(share(whole, shard, count) for shard in range(count))


@given(whole=wholes, place=positions)
def test_share_of_a_shard_is_the_sum_of_its_two_halves(whole: int, place: tuple[int, int]) -> None:
    """Shard k of N becomes k, with the larger half, and k + N of 2N."""
    shard, count = place
    larger, smaller = share(whole, shard, 2 * count), share(whole, shard + count, 2 * count)

    assert share(whole, shard, count) == larger + smaller
    assert 0 <= larger - smaller <= 1


@given(one=wholes, other=wholes, place=positions)
def test_share_never_decreases_with_the_whole(one: int, other: int, place: tuple[int, int]) -> None:
    """The refill of a shard never decreases over time."""
    low, high = sorted((one, other))

    assert share(low, *place) <= share(high, *place)


@given(part=wholes, place=positions)
def test_least_whole_is_the_smallest_whole_with_that_share(part: int, place: tuple[int, int]) -> None:
    """One less does not reach it."""
    whole = least_whole(part, *place)

    assert share(whole, *place) >= part
    assert share(whole - 1, *place) < part


def test_shares_of_ten_on_four_shards_are_3_3_2_2() -> None:
    """The lower shard keeps the larger half, at every doubling."""
    assert [3, 3, 2, 2] == [share(10, shard, 4) for shard in range(4)]


trees = st.lists(st.integers(0, 63), max_size=40)
"""Splits, in order."""


def grown(order: list[int]) -> dict[int, int]:
    """Return the shard counts after these splits."""
    counts = {0: 1}
    for number in order:
        shards = [shard for shard in sorted(counts) if counts[shard] < MOST_SHARDS]
        shard = shards[number % len(shards)]
        count = counts[shard]
        counts |= {shard: 2 * count, shard + count: 2 * count}
    return counts


@given(order=trees, number=st.integers(0, 63))
def test_route_returns_the_one_shard_that_contains_the_number(order: list[int], number: int) -> None:
    """With all shards known there is exactly one."""
    counts = grown(order)

    assert [route(number, counts)] == [shard for shard, count in counts.items() if number % count == shard]


@given(order=trees, number=st.integers(0, 63), known=st.sets(st.integers(0, 63)))
def test_route_with_some_known_shards_converges_in_at_most_six_reads(
    order: list[int], number: int, known: set[int]
) -> None:
    """Each read shows where the number leads next."""
    true = grown(order)
    counts = {shard: count for shard, count in true.items() if shard in known or shard == 0}
    reads = 0
    while (shard := route(number, counts)) not in counts:
        counts[shard] = true.get(shard, 0)
        reads += 1

    assert true[shard]
    assert number % true[shard] == shard
    assert reads <= 6


@given(number=st.integers(0, 63))
def test_route_finds_a_known_half_of_a_shard_that_cannot_be_read(number: int) -> None:
    """Shard 0 may be throttled, and unknown or cached as undivided."""
    assert number % 2 == route(number, {0: 0, 1: 2}) == route(number, {0: 1, 1: 2})


@given(number=st.integers(0, 63))
def test_route_without_known_shards_returns_shard_0(number: int) -> None:
    """It always exists, and contains the shard count."""
    assert 0 == route(number, {})


@given(counts=st.dictionaries(st.integers(0, 63), st.sampled_from([0, *COUNTS])), number=st.integers(0, 63))
def test_route_returns_a_valid_shard_for_contradictory_counts(counts: dict[int, int], number: int) -> None:
    """Counts cached at different times may contradict each other."""
    assert 0 <= route(number, counts) <= number


@given(old=trees, new=trees, known=st.sets(st.integers(0, 63)), number=st.integers(0, 63))
def test_route_with_outdated_counts_converges_to_an_existing_shard(
    old: list[int], new: list[int], known: set[int], number: int
) -> None:
    """If a shard is missing, its nearest ancestor is read, which leads to an existing one."""
    true = grown(new)
    counts = {shard: count for shard, count in grown(old).items() if shard in known or shard == 0}
    for _ in range(200):
        shard = route(number, counts)
        if shard in true:
            counts[shard] = true[shard]
            if number % true[shard] == shard:
                break
        else:
            counts[shard] = 0
            nearest = ancestor(shard, {one for one, count in counts.items() if count})
            counts[nearest] = true.get(nearest, 0)

    assert number % true[shard] == shard


@given(order=trees)
def test_is_complete_is_true_for_all_shards(order: list[int]) -> None:
    """However unevenly the bucket was split; absent shards make no difference."""
    counts = grown(order)

    assert is_complete(counts)
    assert is_complete({**dict.fromkeys(range(64), 0), **counts})


@given(order=trees, gone=st.integers(0, 63))
def test_is_complete_is_false_if_one_shard_is_missing(order: list[int], gone: int) -> None:
    """Its tokens are missing."""
    counts = grown(order)
    del counts[sorted(counts)[gone % len(counts)]]

    assert not is_complete(counts)


def test_is_complete_is_false_for_shards_read_at_different_times() -> None:
    """0 and 2 were merged and 1 was split: 2 is missing, though the shares add up to one."""
    assert not is_complete({0: 4, 1: 2, 3: 4})


@given(shard=st.integers(1, 63), seen=st.sets(st.integers(0, 63)))
def test_ancestor_is_the_nearest_one_that_was_seen(shard: int, seen: set[int]) -> None:
    """An ancestor has the last bits of the shard's number; 0 is an ancestor of all."""
    line = [shard % (1 << bits) for bits in reversed(range(shard.bit_length()))]

    assert next((one for one in line if one in seen), 0) == ancestor(shard, seen)


@given(at_ms=st.integers(0, 10**13), elapsed_ms=st.integers(1_000, 10**6), writes=st.integers(0, 10**6))
def test_write_rate_is_the_difference_of_the_counter_over_time(at_ms: int, elapsed_ms: int, writes: int) -> None:
    """The counter contains the writes of all clients."""
    rate = write_rate(Gauge(at_ms, 17), Gauge(at_ms + elapsed_ms, 17 + writes))

    assert rate == pytest.approx(writes / (elapsed_ms / 1000))


@pytest.mark.parametrize("elapsed_ms", [-5, 0, 999])
def test_write_rate_within_less_than_a_second_is_none(elapsed_ms: int) -> None:
    """The same holds for a clock that was set back."""
    assert write_rate(Gauge(10**6, 0), Gauge(10**6 + elapsed_ms, 5_000)) is None


@pytest.mark.parametrize(
    ("rate", "count", "wanted"), [(799.9, 1, False), (800, 1, True), (800, 32, True), (5_000, 64, False)]
)
def test_shard_splits_at_four_fifths_of_the_partition_limit(rate: float, count: int, wanted: bool) -> None:
    """It does not split beyond the maximum shard count."""
    assert wanted == wants_split(rate, 1_000, count)


@pytest.mark.parametrize(("rate", "calm"), [(249.9, True), (250, False), (-3, True)])
def test_shard_is_calm_below_a_quarter_of_the_partition_limit(rate: float, calm: bool) -> None:
    """Two merged shards are then far from a split."""
    assert calm == is_calm(rate, 1_000)


@given(order=trees)
def test_merging_pair_by_pair_ends_with_one_shard(order: list[int]) -> None:
    """Each pair is the halves of one shard, the highest first, and shard 0 stays."""
    counts = grown(order)
    while len(counts) > 1:
        pair = pair_to_merge({shard: Calm(count, 180_000) for shard, count in counts.items()})
        assert pair is not None
        staying, leaving = pair

        halves = [
            one for one in counts if one >= counts[one] // 2 > 0 and counts[one - counts[one] // 2] == counts[one]
        ]
        assert leaving == max(halves)
        assert counts[staying] == counts[leaving] == 2 * (leaving - staying)

        del counts[leaving]
        counts[staying] //= 2

    assert {0: 1} == counts
    assert pair_to_merge({0: Calm(1, 10**9)}) is None


@pytest.mark.parametrize("calm_ms", [(179_999, 10**6), (10**6, 179_999)])
def test_shards_merge_only_if_both_have_been_calm_for_three_minutes(calm_ms: tuple[int, int]) -> None:
    """A shard that was just busy may be busy again."""
    assert pair_to_merge({0: Calm(2, calm_ms[0]), 1: Calm(2, calm_ms[1])}) is None


@pytest.mark.parametrize(
    "shards",
    [{0: Calm(2, 10**6), 1: Calm(4, 10**6)}, {1: Calm(2, 10**6)}, {0: Calm(4, 10**6), 1: Calm(4, 10**6)}],
)
def test_only_the_two_halves_of_one_shard_are_merged(shards: dict[int, Calm]) -> None:
    """Not shards of different counts, a half alone, or two that are no halves."""
    assert pair_to_merge(shards) is None
