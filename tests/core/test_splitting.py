"""Splitting one shard and merging two: no token is created or lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import (
    Items,
    after_merge,
    after_split,
    applied,
    grown,
    level,
    looks,
    merging,
    offered,
    part_of,
    shaken,
    splitting,
    total,
)
from tests.one_bucket import NOON, after, apply, at, created, stored, taking, view
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied
from zae_limiter.core.splitting import split
from zae_limiter.schema import bucket_writes

RPM = Limit("rpm", 7, 11, 13)
TPM = Limit("tpm", 90, 1, 7)
TERMS = stored(RPM, TPM)
NAMES = ("rpm", "tpm")

orders = st.lists(st.integers(0, 63), max_size=7)
seeds = st.integers(0, 2**32)
later = st.integers(-1_000, 200_000)
shard_numbers = st.integers(0, 63)


def some_shards(order: list[int], seed: int) -> Items:
    """Return a bucket of shards with random balances."""
    return shaken(grown(TERMS, order), NAMES, seed)


def one_of(items: Items, number: int) -> int:
    """Return one of the shards that may be split."""
    shards = [shard for shard in sorted(items) if items[shard]["shard_count"] < 64]
    return shards[number % len(shards)]


def offers(items: Items, now_ms: int) -> list[int]:
    """Return what all shards together hold of every limit, cut at their shares."""
    return [sum(level(item, name, now_ms) for item in items.values()) for name in NAMES]


class TestSplit:
    """One shard split in two."""

    @given(order=orders, seed=seeds, which=shard_numbers, gap=later, wait_ms=st.integers(0, 500_000))
    def test_split_creates_and_loses_no_token(
        self, order: list[int], seed: int, which: int, gap: int, wait_ms: int
    ) -> None:
        """Neither at the split nor later, up to the shares."""
        items, now_ms = some_shards(order, seed), NOON + gap
        shard = one_of(items, which)
        split_up = after_split(items, shard, at(now_ms))
        then_ms = max(NOON, now_ms) + wait_ms

        assert offers(items, now_ms) == offers(split_up, now_ms)
        for name in NAMES:
            if offered(items[shard], name, now_ms) <= level(items[shard], name, now_ms):
                assert total(items, name, then_ms) == total(split_up, name, then_ms)

    @given(order=orders, seed=seeds, which=shard_numbers, gap=later)
    def test_split_halves_the_level(self, order: list[int], seed: int, which: int, gap: int) -> None:
        """The old shard keeps the larger half."""
        items, now_ms = some_shards(order, seed), NOON + gap
        shard = one_of(items, which)
        split_up = after_split(items, shard, at(now_ms))
        new = shard + items[shard]["shard_count"]

        for name in NAMES:
            had = level(items[shard], name, now_ms)
            if had >= 0:
                assert (-(-had // 2), had // 2) == tuple(level(split_up[one], name, now_ms) for one in (shard, new))

    @given(order=orders, seed=seeds, which=shard_numbers, gap=later)
    def test_split_leaves_a_debt_on_the_old_shard(self, order: list[int], seed: int, which: int, gap: int) -> None:
        """The new shard starts with a level of zero."""
        items, now_ms = some_shards(order, seed), NOON + gap
        shard = one_of(items, which)
        split_up = after_split(items, shard, at(now_ms))

        for name in NAMES:
            had = level(items[shard], name, now_ms)
            if had < 0:
                new = split_up[shard + items[shard]["shard_count"]]
                assert (had, 0) == (level(split_up[shard], name, now_ms), level(new, name, now_ms))

    @given(order=orders, seed=seeds, which=shard_numbers, low=later, width=st.integers(0, 5_000))
    def test_split_at_an_uncertain_time_creates_no_token(
        self, order: list[int], seed: int, which: int, low: int, width: int
    ) -> None:
        """At every time within the bounds, no more can be taken after it than before."""
        items = some_shards(order, seed)
        split_up = after_split(items, one_of(items, which), (NOON + low, NOON + low + width))

        for true_ms in (NOON + low, NOON + low + width):
            for had, has in zip(offers(items, true_ms), offers(split_up, true_ms), strict=True):
                assert has <= had

    def test_split_of_a_full_shard_leaves_both_halves_full(self) -> None:
        """To the last millitoken, even after a long overflow."""
        items = grown(TERMS, [0, 1, 0, 5, 2], at(NOON))
        split_up = after_split(items, 1, at(NOON + 10**7))

        assert [7_000, 90_000] == offers(split_up, NOON + 10**7)

    @pytest.mark.parametrize("over", [1, 2, 700])
    def test_split_cuts_an_overflow_before_it_halves(self, over: int) -> None:
        """If there is no overflow after all, the write is refused."""
        now, items = at(NOON + 1_000), grown(TERMS, [])
        full = 7_000 - offered({**items[0], "b_rpm_tk": 0}, "rpm", now[0])
        items[0]["b_rpm_tk"] = full + over
        write, _ = bucket_writes.split(view(items[0]), splitting(items, 0, now), 1)

        assert 7_000 == total(after_split(items, 0, now), "rpm", now[0])
        assert [False, False, True, True] == [
            isinstance(apply(write, {**items[0], "b_rpm_tk": full + found}), Applied) for found in (-1, 0, 1, 900)
        ]

    def test_split_of_an_empty_shard_accepts_a_later_credit(self) -> None:
        """Only a debt must be unchanged; a credit stays on the old shard."""
        items = grown(TERMS, [])
        items[0]["b_rpm_tk"] = 0
        write, _ = bucket_writes.split(view(items[0]), splitting(items, 0, at(NOON)), 1)

        assert 500 == applied(write, {**items[0], "b_rpm_tk": 500})["b_rpm_tk"]

    def test_split_at_an_uncertain_time_uses_the_early_bound(self) -> None:
        """Only tokens that are certainly there are halved."""
        items = grown(TERMS, [])
        items[0]["b_rpm_tk"] = 1_000
        early, uncertain = (splitting(items, 0, now) for now in (at(NOON), (NOON, NOON + 2_000)))

        assert 500 == early.new_balances[0]
        assert early == uncertain

    def test_split_beyond_64_shards_is_none(self) -> None:
        """The smallest share cannot be split again."""
        items = grown(TERMS, [0] * 6)

        assert 64 == items[0]["shard_count"]
        assert split(view(items[0]), at(NOON)) is None

    def test_new_shard_number_is_the_old_number_plus_the_old_count(self) -> None:
        """Shard 1 of 4 splits into 1 and 5 of 8."""
        decided = splitting(grown(TERMS, [0, 0, 1]), 1, at(NOON))

        assert (8, 5) == (decided.shard_count, decided.new_shard)


class TestMerge:
    """Two shards merged into one."""

    @given(order=orders, seed=seeds, which=shard_numbers, gaps=st.tuples(later, later), wait_ms=st.integers(0, 500_000))
    def test_merge_after_a_split_restores_the_level(
        self, order: list[int], seed: int, which: int, gaps: tuple[int, int], wait_ms: int
    ) -> None:
        """Up to what the halves could not hold in between."""
        items = some_shards(order, seed)
        shard = one_of(items, which)
        halves = after_split(items, shard, at(NOON + gaps[0]))
        merged_ms = max(NOON, NOON + gaps[1])
        merged = after_merge(halves, shard, shard + items[shard]["shard_count"], at(NOON + gaps[1]))

        assert set(items) == set(merged)
        assert items[shard]["shard_count"] == merged[shard]["shard_count"]
        assert offers(halves, merged_ms) == offers(merged, merged_ms)
        for had, has in zip(offers(halves, merged_ms + wait_ms), offers(merged, merged_ms + wait_ms), strict=True):
            # Together they hold tokens that one alone would have lost to overflow.
            assert has >= had

    @given(seed=seeds, low=later, width=st.integers(0, 5_000))
    def test_merge_at_an_uncertain_time_creates_no_token(self, seed: int, low: int, width: int) -> None:
        """At every time within the bounds, no more can be taken after it than before."""
        items = shaken(grown(TERMS, [0]), NAMES, seed)
        merged = after_merge(items, 0, 1, (NOON + low, NOON + low + width))

        for name in NAMES:
            for true_ms in (max(NOON, NOON + low), max(NOON, NOON + low + width)):
                assert total(merged, name, true_ms) <= total(items, name, true_ms)

    @given(seeds=st.tuples(seeds, seeds), gap=st.integers(0, 5_000), newer=st.sampled_from((0, 1)))
    def test_merge_of_halves_on_different_baselines_uses_the_newer(
        self, seeds: tuple[int, int], gap: int, newer: int
    ) -> None:
        """A baseline never moves back, even if the clock of the merging client is behind."""
        items = shaken(grown(TERMS, [0]), NAMES, seeds[0])
        ahead = shaken(grown(TERMS, [0], at(NOON + gap)), NAMES, seeds[1])
        mixed = {**items, newer: ahead[newer]}
        merged = after_merge(mixed, 0, 1, at(NOON - 5))

        assert NOON + gap == merged[0]["rf"]
        assert offers(mixed, NOON + gap) == offers(merged, NOON + gap)

    def test_merge_of_full_halves_is_full(self) -> None:
        """Nothing overflows at exactly full."""
        assert [7_000, 90_000] == offers(after_merge(grown(TERMS, [0]), 0, 1, at(NOON)), NOON)

    @pytest.mark.parametrize("over", [1, 2, 700])
    def test_merge_of_an_overflowing_shard_requires_that_it_still_overflows(self, over: int) -> None:
        """It contributes exactly its full share, however much is above it."""
        assert [False, False, True, True, True] == self.is_merged(over, (-1, 0, 1, 2, 900))

    @pytest.mark.parametrize("over", [0, -1, -5_000])
    def test_merge_of_a_shard_without_overflow_requires_its_exact_balance(self, over: int) -> None:
        """Its balance is added to the other half."""
        assert [False, True, False] == self.is_merged(over, (over - 1, over, over + 1))

    @staticmethod
    def is_merged(seen: int, found: tuple[int, ...]) -> list[bool]:
        """Return whether shard 1, seen this far above full, is merged at each of these distances above full."""
        now, items = at(NOON + 1_000), grown(TERMS, [0])
        full = 3_500 - offered({**items[1], "b_rpm_tk": 0}, "rpm", now[0])
        items[1]["b_rpm_tk"] = full + seen
        decided = merging(items, 0, 1, now)
        assert decided is not None
        _, goes = bucket_writes.merge(view(items[0]), view(items[1]), decided, 1)
        return [isinstance(apply(goes, {**items[1], "b_rpm_tk": full + over}), Applied) for over in found]

    @given(order=orders, seed=seeds)
    def test_merging_all_shards_restores_one_bucket_with_the_total_level(self, order: list[int], seed: int) -> None:
        """The order of the splits makes no difference."""
        items = some_shards(order, seed)
        before = offers(items, NOON)
        while len(items) > 1:
            leaving = max(one for one in items if items[one]["shard_count"] == _widest(items) and one >= _half(items))
            items = after_merge(items, leaving - _half(items), leaving, at(NOON))

        assert 1 == items[0]["shard_count"]
        assert before == offers(items, NOON)

    @pytest.mark.parametrize("either", [0, 1])
    def test_merge_keeps_the_highest_capacity_and_the_longest_fill_time(self, either: int) -> None:
        """Either half may have them."""
        items = grown(TERMS, [0])
        items[either] |= {"b_rpm_hc": 50_000, "tf": items[either]["tf"] + 99}
        decided = merging(items, 0, 1, at(NOON))

        assert decided is not None
        assert ([50_000, 90_000], items[either]["tf"]) == (decided.highest, decided.fill_time_ms)

    def test_merge_of_shards_that_are_not_halves_of_one_is_none(self) -> None:
        """Different counts, other numbers, the wrong order, or a single shard."""
        items = grown(TERMS, [0, 0, 1])

        assert {0: 4, 1: 4, 2: 4, 3: 4} == {shard: item["shard_count"] for shard, item in items.items()}
        assert merging(items, 0, 1, at(NOON)) is None
        assert merging(items, 2, 0, at(NOON)) is None
        assert merging({**items, 2: after_split(items, 2, at(NOON))[2]}, 0, 2, at(NOON)) is None
        assert merging({0: created(TERMS)}, 0, 0, at(NOON)) is None

    @pytest.mark.parametrize("other", [{"cv": 2}, {"ld": "x"}, {"b_rpm_cp": 8_000}])
    def test_merge_of_halves_on_different_limits_is_none(self, other: dict[str, object]) -> None:
        """They are rebased to the same limits first."""
        items = grown(TERMS, [0])
        known = [name for name in other if name in items[1]]

        assert known == list(other)
        assert merging({0: items[0], 1: {**items[1], **other}}, 0, 1, at(NOON)) is None

    def test_merge_of_halves_with_different_dormant_limits_is_none(self) -> None:
        """One half has no balance for the dormant limit of the other."""
        items = grown(TERMS, [0])
        fewer = stored(TPM, stamp=2)
        spent = after(taking(view(items[0]), TERMS, {"rpm": 1}, at(NOON)), items[0])
        moved = {0: spent, 1: items[1]}
        for shard, item in moved.items():
            moved[shard] = after(taking(looks(moved)[shard], fewer, {"tpm": 0}, at(NOON)), item)

        assert "b_rpm_dm" in moved[0]
        assert "b_rpm_tk" not in moved[1]
        assert merging(moved, 0, 1, at(NOON)) is None


def _widest(items: Items) -> int:
    return max(int(item["shard_count"]) for item in items.values())


def _half(items: Items) -> int:
    return _widest(items) // 2


@given(whole=st.integers(0, 10**9), shard=st.integers(0, 63))
def test_part_of_gives_the_larger_half_to_the_lower_shard(whole: int, shard: int) -> None:
    """The helper of these tests: ten on four are 3, 3, 2 and 2."""
    assert [3, 3, 2, 2] == [part_of(10, one, 4) for one in range(4)]
    assert part_of(whole, shard, 64) in (whole // 64, whole // 64 + 1)
