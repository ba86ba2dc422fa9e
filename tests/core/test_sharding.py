"""A shard's share of a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.sharding import least_whole, share

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
