"""Quotas and soft limits of buckets with several shards: splits, merges, takes, debits and refunds."""

import pytest

from tests.many_shards import Items, after_merge, after_split, applied, looks, merging
from tests.one_bucket import NOON, at, created, stored, view
from tests.quota_buckets import (
    AT_RPM,
    AT_SOFT,
    AT_SPEND,
    DAY_S,
    MOST_SPENT,
    RPM,
    TERMS,
    TODAY_EPOCH,
    TOMORROW,
    TOMORROW_EPOCH,
    TOMORROW_S,
    numbers,
    qk,
    tokens,
)
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.levels import limit_levels
from zae_limiter.core.multi_shard import combined, debit_across, given_back_across, take_across
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.splitting import split
from zae_limiter.core.tracked import Refund, refunds_fit
from zae_limiter.schema import bucket_writes


def shards_of(spent: dict[str, int], now_ms: int = NOON) -> Items:
    """Return two shards of a bucket that had this much taken from it before the split."""
    return after_split({0: created(TERMS, spent)}, 0, at(now_ms))


def spent(items: Items) -> list[int]:
    """Return the stored numbers of the quota, by shard."""
    return [numbers(item)[0] for _, item in sorted(items.items())]


def with_spent(items: Items, *found: int) -> Items:
    """Return the shards with other stored numbers of the quota."""
    return {shard: {**items[shard], "b_spend_qk": number} for shard, number in enumerate(found)}


def taken(
    items: Items, amounts: list[tuple[int, int]], refusals: int = 0, reserve: Reserve | None = None
) -> Items | None:
    """Return the shards after a take from all of them, None if they have too little."""
    views = looks(items)
    takes = take_across(views, amounts, at(NOON), refusals, reserve)
    if takes is None:
        return None
    writes = {shard: bucket_writes.take(views[shard], step, 5) for shard, step in takes.items()}
    return items | {shard: applied(write, items[shard]) for shard, write in writes.items()}


class TestSplit:
    """Splits of a quota."""

    def test_split_halves_what_is_left(self) -> None:
        """Each shard has 20 left of its 50."""
        assert [qk(TODAY_EPOCH, 30), qk(TODAY_EPOCH, 30)] == spent(shards_of({"spend": 60}))

    def test_split_of_an_odd_rest_loses_no_unit(self) -> None:
        """Of 41 the new shard gets 20 and the old one keeps 21."""
        assert [qk(TODAY_EPOCH, 29), qk(TODAY_EPOCH, 30)] == spent(shards_of({"spend": 59}))

    def test_split_leaves_the_debt_to_the_old_shard(self) -> None:
        """The new shard starts empty."""
        items = after_split(with_spent({0: created(TERMS)}, qk(TODAY_EPOCH, 120)), 0, at(NOON))

        assert [qk(TODAY_EPOCH, 70), qk(TODAY_EPOCH, 50)] == spent(items)

    def test_split_after_the_edge_begins_the_period_on_both_shards(self) -> None:
        """What was spent before has ended."""
        assert [qk(TOMORROW_EPOCH), qk(TOMORROW_EPOCH)] == spent(shards_of({"spend": 60}, TOMORROW))

    def test_saturated_quota_is_not_split(self) -> None:
        """It has lost count, so there are no halves."""
        item = {**created(TERMS), "b_spend_qk": qk(TODAY_EPOCH, MOST_SPENT)}

        assert split(view(item), at(NOON)) is None


class TestMerge:
    """Merges of a quota."""

    def test_merge_adds_what_both_shards_have_spent(self) -> None:
        """The shard that stays has all that is left."""
        assert [qk(TODAY_EPOCH, 70)] == spent(
            after_merge(with_spent(shards_of({}), qk(TODAY_EPOCH, 45), qk(TODAY_EPOCH, 25)), 0, 1, at(NOON))
        )

    @pytest.mark.parametrize(
        ("epochs", "kept"), [((TODAY_EPOCH, TOMORROW_EPOCH), 25), ((TOMORROW_EPOCH, TODAY_EPOCH), 45)]
    )
    def test_merge_keeps_what_was_spent_in_the_later_period(self, epochs: tuple[int, int], kept: int) -> None:
        """One shard proves that the period has begun, even to a client whose clock is behind."""
        items = with_spent(shards_of({}), qk(epochs[0], 45), qk(epochs[1], 25))

        assert [qk(TOMORROW_EPOCH, kept)] == spent(after_merge(items, 0, 1, at(NOON)))

    def test_merge_that_would_saturate_a_quota_is_none(self) -> None:
        """What both have spent must fit one number."""
        items = with_spent(shards_of({}), qk(TODAY_EPOCH, 3 * 10**17), qk(TODAY_EPOCH, 3 * 10**17))

        assert merging(items, 0, 1, at(NOON)) is None


class TestTake:
    """Takes from several shards."""

    @pytest.mark.parametrize(("refusals", "found"), [(0, (50, 35)), (1, (43, 42))])
    def test_quota_is_taken_from_several_shards_in_whole_units(self, refusals: int, found: tuple[int, int]) -> None:
        """Each has 20 left: the first gives all of it, or both give their part, rounded up."""
        items = taken(shards_of({"spend": 60}), [(AT_SPEND, 25_000)], refusals)
        assert items is not None

        assert [qk(TODAY_EPOCH, one) for one in found] == spent(items)

    def test_quota_that_all_shards_together_lack_is_none(self) -> None:
        """They have 40."""
        assert taken(shards_of({"spend": 60}), [(AT_SPEND, 41_000)]) is None

    def test_soft_limit_is_taken_from_one_shard_that_has_it_or_counts(self) -> None:
        """Each shard has 5 tokens. A soft limit never rejects, so no other shard is needed."""
        items = taken(shards_of({}), [(AT_SOFT, 4_000)])
        assert items is not None
        above = taken(items, [(AT_SOFT, 20_000)])
        assert above is not None

        assert [(1_000, 4_000), (5_000, 0)] == [tokens(items[shard]) for shard in (0, 1)]
        assert [(1_000, 4_000), (5_000, 20_000)] == [tokens(above[shard]) for shard in (0, 1)]

    def test_take_from_several_shards_leaves_the_reserve_on_each(self) -> None:
        """Of 100, 30 are reserved, 15 on each shard. They have 20 each, so 10 may be taken together."""
        items, reserve = shards_of({"spend": 60}), Reserve(3, 10)
        found = taken(items, [(AT_SPEND, 10_000), (AT_SOFT, 2_000)], 0, reserve)
        assert found is not None

        assert [qk(TODAY_EPOCH, 35), qk(TODAY_EPOCH, 35)] == spent(found)
        assert taken(items, [(AT_SPEND, 11_000)], 0, reserve) is None
        assert sum(tokens(item)[1] for item in found.values()) == 2_000

    def test_reserve_of_enforced_rate_limits_is_left_on_each_shard(self) -> None:
        """Of 100, 30 are reserved, so 35 may be taken from each of two full shards."""
        items = after_split({0: created(stored(RPM))}, 0, at(NOON))
        found = taken(items, [(0, 70_000)], 0, Reserve(3, 10))
        assert found is not None

        assert [(15_000, 35_000), (15_000, 35_000)] == [tokens(item, "rpm") for item in found.values()]
        assert taken(items, [(0, 70_001)], 0, Reserve(3, 10)) is None


class TestSettle:
    """Debits and refunds of several shards."""

    def test_debit_is_charged_to_what_is_left_and_then_to_all_shards(self) -> None:
        """Each has 20 left, and the other 30 of 70 become a debt of 15 on each. Soft limits owe in the same way."""
        items = shards_of({"spend": 60})
        views = looks(items)
        charged = debit_across(views, [("spend", 70_000), ("soft", 14_000)], at(NOON))
        found = {
            shard: applied(bucket_writes.settle(views[shard], parts, 5), items[shard])
            for shard, parts in charged.items()
        }

        assert [qk(TODAY_EPOCH, 65), qk(TODAY_EPOCH, 65)] == spent(found)
        assert [(-2_000, 7_000), (-2_000, 7_000)] == [tokens(found[shard]) for shard in (0, 1)]

    def given_back(self, items: Items, *refunds: Refund) -> Items:
        """Return the shards after a lease of shard 0 has given back."""
        views = looks(items)
        settlement = Settlement((), (), 1, (), 0, refunds)
        parts = given_back_across(views, settlement, at(NOON))
        writes = {
            shard: bucket_writes.settle(views[shard], settle(views[shard], part, at(NOON), 0), 5)
            for shard, part in parts.items()
        }
        return items | {shard: applied(write, items[shard]) for shard, write in writes.items()}

    def refund(self, amount: int, epoch: int = TODAY_EPOCH, name: str = "spend") -> Refund:
        return Refund(name, epoch, amount * 1000, amount * 1000)

    def test_refund_that_a_split_has_moved_reaches_both_shards(self) -> None:
        """The shard that was charged has room for 30, and the other gets the rest."""
        found = self.given_back(shards_of({"spend": 60}), self.refund(50))

        assert [(qk(TODAY_EPOCH), 30_000), (qk(TODAY_EPOCH, 10), -20_000)] == [
            numbers(found[shard]) for shard in (0, 1)
        ]

    def test_refund_that_fits_nowhere_is_only_taken_off_the_count(self) -> None:
        """Both shards have spent 60, and the other 10 of 70 belong to no epoch that is left."""
        found = self.given_back(shards_of({"spend": 60}), self.refund(50), self.refund(20))

        assert [qk(TODAY_EPOCH), qk(TODAY_EPOCH)] == spent(found)
        assert 60_000 - 70_000 == sum(numbers(item)[1] for item in found.values())

    def test_refund_to_an_ended_epoch_is_only_taken_off_the_count_of_one_shard(self) -> None:
        """No shard is in that epoch any more."""
        found = self.given_back(shards_of({"spend": 60}), self.refund(10, TODAY_EPOCH - 2 * DAY_S))

        assert [(qk(TODAY_EPOCH, 30), 50_000), (qk(TODAY_EPOCH, 30), 0)] == [numbers(found[shard]) for shard in (0, 1)]

    def test_refund_of_a_limit_that_was_removed_reaches_no_shard(self) -> None:
        """There is no balance to give back to."""
        assert {} == given_back_across(
            looks(shards_of({})), Settlement(refunds=(self.refund(5, name="old"),)), at(NOON)
        )

    @pytest.mark.parametrize(
        ("refunds", "fit"),
        [
            ([("spend", TODAY_EPOCH, 60)], True),
            ([("spend", TODAY_EPOCH, 61)], False),
            ([("spend", TODAY_EPOCH, 40), ("spend", TODAY_EPOCH, 21)], False),
            ([("spend", TODAY_EPOCH - 2 * DAY_S, 90)], True),
            ([("spend", TOMORROW_EPOCH, 1)], False),
            ([("soft", 0, 90), ("old", TODAY_EPOCH, 90)], True),
        ],
        ids=["all", "too much", "too much together", "ended", "a later epoch", "others"],
    )
    def test_refund_fits_a_shard_that_has_spent_as_much_in_its_epoch(
        self, refunds: list[tuple[str, int, int]], fit: bool
    ) -> None:
        """A split or a merge may have moved what was spent. An ended epoch gets nothing back, so it always fits."""
        seen = view(created(TERMS, {"spend": 60}))

        assert fit == refunds_fit(seen, [self.refund(amount, epoch, name) for name, epoch, amount in refunds])

    @pytest.mark.parametrize(("lacking", "fit"), [(0, False), (1, True)])
    def test_refund_fits_no_saturated_quota(self, lacking: int, fit: bool) -> None:
        """It has lost count. One unit below it has not."""
        seen = view({**created(TERMS), "b_spend_qk": qk(TODAY_EPOCH, MOST_SPENT - lacking)})

        assert fit == refunds_fit(seen, [self.refund(1)])


class TestLevel:
    """The level of several shards together."""

    def test_level_of_a_quota_is_the_sum_of_its_shards_until_the_next_edge(self) -> None:
        """The edge is 6,400 s after NOON. A rate limit has none."""
        seen = list(looks(shards_of({"spend": 60})).values())
        levels = combined(seen, TERMS, at(NOON))
        spend = levels[AT_SPEND]

        assert (40_000, TOMORROW_S, 6_400_000) == (
            spend.available_milli(at(NOON)),
            spend.resets_s(at(NOON)),
            spend.wait_ms(41_000, at(NOON)),
        )
        assert levels[AT_RPM].resets_s(at(NOON)) is None
        assert (True, None) == (spend.is_exact, spend.in_use_milli(at(NOON)))

    def test_level_above_a_reserve_is_that_of_each_shard_above_its_part(self) -> None:
        """Of 40, 15 are reserved on each of two shards. Rate limits keep 15 of 50."""
        seen = list(looks(shards_of({"spend": 60})).values())
        levels = [level.above(Reserve(3, 10)).available_milli(at(NOON)) for level in combined(seen, TERMS, at(NOON))]

        assert [70_000, 10_000, 10_000] == [levels[one] for one in (AT_RPM, AT_SOFT, AT_SPEND)]

    def test_shard_that_proves_a_period_refills_all(self) -> None:
        """The other one has spent nothing of it, even for a client whose clock is behind."""
        items = with_spent(shards_of({}), qk(TODAY_EPOCH, 45), qk(TOMORROW_EPOCH, 5))
        found = taken(items, [(AT_SPEND, 95_000)])
        assert found is not None

        assert [qk(TOMORROW_EPOCH, 50), qk(TOMORROW_EPOCH, 50)] == spent(found)
        assert taken(items, [(AT_SPEND, 96_000)]) is None

    def test_request_takes_from_the_fullest_shards_first(self) -> None:
        """The level after a take of 25 from shards with 20 each is 15, and a take of nothing changes nothing."""
        seen = list(looks(shards_of({"spend": 60})).values())
        spend = combined(seen, TERMS, at(NOON))[AT_SPEND]
        alone = limit_levels(seen[0], TERMS, at(NOON))[AT_SPEND]

        assert 15_000 == spend.less(25_000, at(NOON)).available_milli(at(NOON))
        assert alone is alone.less(0, at(NOON))
