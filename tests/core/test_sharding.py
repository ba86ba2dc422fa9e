"""A shard's share of a whole, the shard a number falls to, and when shards split and merge."""

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
places = st.sampled_from(COUNTS).flatmap(lambda count: st.tuples(st.integers(0, count - 1), st.just(count)))


@pytest.mark.parametrize("count", COUNTS)
@given(whole=wholes)
def test_shares_add_up_exactly(count: int, whole: int) -> None:
    """No millitoken is made or lost by sharding."""
    assert whole == sum(share(whole, shard, count) for shard in range(count))


@given(whole=wholes, place=places)
def test_a_share_halves_into_the_shares_of_its_two_children(whole: int, place: tuple[int, int]) -> None:
    """Shard k of N becomes k, with the larger half, and k + N of 2N."""
    shard, count = place
    larger, smaller = share(whole, shard, 2 * count), share(whole, shard + count, 2 * count)

    assert share(whole, shard, count) == larger + smaller
    assert 0 <= larger - smaller <= 1


@given(one=wholes, other=wholes, place=places)
def test_a_larger_whole_has_no_smaller_share(one: int, other: int, place: tuple[int, int]) -> None:
    """So a shard's grid never falls as time goes by."""
    low, high = sorted((one, other))

    assert share(low, *place) <= share(high, *place)


@given(part=wholes, place=places)
def test_the_least_whole_is_the_first_whose_share_reaches_the_part(part: int, place: tuple[int, int]) -> None:
    """It reaches it, and one less does not."""
    whole = least_whole(part, *place)

    assert share(whole, *place) >= part
    assert share(whole - 1, *place) < part


def test_the_parts_of_ten_on_four_shards() -> None:
    """The larger half stays with the lower shard, at every doubling."""
    assert [3, 3, 2, 2] == [share(10, shard, 4) for shard in range(4)]


trees = st.lists(st.integers(0, 63), max_size=40)
"""Splits, in their order."""


def grown(order: list[int]) -> dict[int, int]:
    """The counts of the shards after these splits."""
    counts = {0: 1}
    for number in order:
        shards = [shard for shard in sorted(counts) if counts[shard] < MOST_SHARDS]
        shard = shards[number % len(shards)]
        count = counts[shard]
        counts |= {shard: 2 * count, shard + count: 2 * count}
    return counts


@given(order=trees, number=st.integers(0, 63))
def test_a_number_falls_to_the_one_shard_that_has_it(order: list[int], number: int) -> None:
    """Once all shards are known there is exactly one, and it exists."""
    counts = grown(order)

    assert [route(number, counts)] == [shard for shard, count in counts.items() if number % count == shard]


@given(order=trees, number=st.integers(0, 63), known=st.sets(st.integers(0, 63)))
def test_a_number_is_found_by_looking_at_what_it_falls_to(order: list[int], number: int, known: set[int]) -> None:
    """Who knows but some of the shards looks at where the number leads, and is there after a few looks."""
    true = grown(order)
    counts = {shard: count for shard, count in true.items() if shard in known or shard == 0}
    looks = 0
    while (shard := route(number, counts)) not in counts:
        counts[shard] = true.get(shard, 0)
        looks += 1

    assert true[shard]
    assert number % true[shard] == shard
    assert looks <= 6


@given(number=st.integers(0, 63))
def test_a_half_that_is_known_is_found_past_a_shard_that_cannot_be_read(number: int) -> None:
    """Shard 0 may take neither reads nor writes, and is not known or remembered undivided; its half serves."""
    assert number % 2 == route(number, {0: 0, 1: 2}) == route(number, {0: 1, 1: 2})


@given(number=st.integers(0, 63))
def test_who_knows_nothing_asks_shard_0(number: int) -> None:
    """It is the one that is always there, and tells how many there may be."""
    assert 0 == route(number, {})


@given(counts=st.dictionaries(st.integers(0, 63), st.sampled_from([0, *COUNTS])), number=st.integers(0, 63))
def test_a_number_falls_to_some_shard_whatever_is_remembered(counts: dict[int, int], number: int) -> None:
    """Memories of different times may contradict each other, and still lead somewhere."""
    assert 0 <= route(number, counts) <= number


@given(old=trees, new=trees, known=st.sets(st.integers(0, 63)), number=st.integers(0, 63))
def test_who_remembers_what_is_no_more_is_set_right(
    old: list[int], new: list[int], known: set[int], number: int
) -> None:
    """Where a shard is gone, the nearest that it was split off is looked at, which leads to one that is there."""
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
def test_all_shards_there_are_are_complete(order: list[int]) -> None:
    """However unevenly it was split; and those that are known to be absent change nothing."""
    counts = grown(order)

    assert is_complete(counts)
    assert is_complete({**dict.fromkeys(range(64), 0), **counts})


@given(order=trees, gone=st.integers(0, 63))
def test_one_shard_less_is_not_complete(order: list[int], gone: int) -> None:
    """What it has is missing."""
    counts = grown(order)
    del counts[sorted(counts)[gone % len(counts)]]

    assert not is_complete(counts)


def test_shards_of_two_moments_are_not_complete() -> None:
    """Read while 0 and 2 were merged and 1 was split: 2 is missing, though the parts add up to one."""
    assert not is_complete({0: 4, 1: 2, 3: 4})


@given(shard=st.integers(1, 63), seen=st.sets(st.integers(0, 63)))
def test_the_nearest_ancestor_is_the_first_that_was_seen(shard: int, seen: set[int]) -> None:
    """An ancestor is what the last bits of a shard's number say; 0 is everybody's."""
    line = [shard % (1 << bits) for bits in reversed(range(shard.bit_length()))]

    assert next((one for one in line if one in seen), 0) == ancestor(shard, seen)


@given(at_ms=st.integers(0, 10**13), elapsed_ms=st.integers(1_000, 10**6), writes=st.integers(0, 10**6))
def test_the_rate_is_read_off_the_counter(at_ms: int, elapsed_ms: int, writes: int) -> None:
    """Writes of all clients by the time between two looks."""
    rate = write_rate(Gauge(at_ms, 17), Gauge(at_ms + elapsed_ms, 17 + writes))

    assert rate == pytest.approx(writes / (elapsed_ms / 1000))


@pytest.mark.parametrize("elapsed_ms", [-5, 0, 999])
def test_two_looks_too_close_tell_nothing(elapsed_ms: int) -> None:
    """A second at least, also for a clock that was set back."""
    assert write_rate(Gauge(10**6, 0), Gauge(10**6 + elapsed_ms, 5_000)) is None


@pytest.mark.parametrize(
    ("rate", "count", "wanted"), [(799.9, 1, False), (800, 1, True), (800, 32, True), (5_000, 64, False)]
)
def test_a_shard_splits_at_four_fifths_of_what_a_partition_takes(rate: float, count: int, wanted: bool) -> None:
    """Unless there are as many as there may be."""
    assert wanted == wants_split(rate, 1_000, count)


@pytest.mark.parametrize(("rate", "calm"), [(249.9, True), (250, False), (-3, True)])
def test_a_shard_is_calm_under_a_quarter(rate: float, calm: bool) -> None:
    """So that two of them merged are far from a split."""
    assert calm == is_calm(rate, 1_000)


@given(order=trees)
def test_merged_pair_by_pair_all_come_back_to_one(order: list[int]) -> None:
    """Each pair is one shard's halves, the highest goes first, and shard 0 is the last to be merged into."""
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
def test_shards_merge_only_once_both_have_been_calm_for_minutes(calm_ms: tuple[int, int]) -> None:
    """One that was busy a moment ago may be so again."""
    assert pair_to_merge({0: Calm(2, calm_ms[0]), 1: Calm(2, calm_ms[1])}) is None


@pytest.mark.parametrize(
    "shards",
    [{0: Calm(2, 10**6), 1: Calm(4, 10**6)}, {1: Calm(2, 10**6)}, {0: Calm(4, 10**6), 1: Calm(4, 10**6)}],
)
def test_only_the_halves_of_one_shard_merge(shards: dict[int, Calm]) -> None:
    """Not shards of different counts, not one whose other half was not seen, not two that are no halves."""
    assert pair_to_merge(shards) is None
