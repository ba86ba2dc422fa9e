"""Which thresholds a use has reached, and when it may be warned of again."""

from typing import Any

import pytest

from tests.one_bucket import NOON, created, stored, view
from zae_limiter.core.limit import Limit
from zae_limiter.core.warnings import (
    Crossing,
    LimitUse,
    WarningMark,
    crossings,
    is_all_marked,
    is_marked,
    parts_of,
    quiet_ms,
    quiet_until_ms,
    total_uses,
    uses_of,
    warning_of,
)

SPEND = Limit.quota("spend", 100, every="month", warn_at=(0.8, 1.0))
RPM = Limit.per_minute("rpm", 100, warn_at=(0.8, 1.0))
SLOTS = Limit.concurrent("slots", 4, hold_seconds=10, warn_at=(0.5,))
NOVEMBER_S = 1_698_796_800
DECEMBER_S = 1_701_388_800
NOVEMBER, DECEMBER = 2 * NOVEMBER_S, 2 * DECEMBER_S
"""The epochs of both edges: half seconds."""
AN_HOUR = 7_200
"""An hour in half seconds, which is less than a quarter of a month."""


def spent(amount: int, period: int = NOVEMBER, at_ms: int = NOON) -> LimitUse:
    """Return a use of the quota, in whole units."""
    return LimitUse(SPEND, amount * 1000, period, at_ms)


def taken(tokens: int, at_ms: int = NOON) -> LimitUse:
    """Return a use of the rate limit, in whole tokens."""
    return LimitUse(RPM, tokens * 1000, 0, at_ms)


def parts(uses: list[LimitUse], marks: dict[Any, WarningMark] | None = None) -> list[int]:
    """Return the thresholds that were reached and are not marked."""
    return [crossing.part for crossing in crossings(uses, marks or {})]


@pytest.mark.parametrize(("milli", "used"), [(0, 0), (1, 1), (80_000, 80), (80_001, 81)])
def test_used_amount_with_a_part_of_a_token_is_rounded_up(milli: int, used: int) -> None:
    """A warning never names less than was used."""
    assert used == LimitUse(RPM, milli, 0, NOON).used


class TestUses:
    """What is used of the limits of a shard."""

    def test_use_of_a_rate_limit_is_what_its_level_lacks(self) -> None:
        """80 of 100 tokens were taken."""
        seen = view(created(stored(RPM), {"rpm": 80}))

        assert [taken(80)] == uses_of(seen, NOON)

    def test_use_of_a_rate_limit_at_an_inexact_time_includes_the_refill(self) -> None:
        """50 tokens come back in 30 seconds; the time of the use stays."""
        seen = view(created(stored(RPM), {"rpm": 80}))

        assert [taken(30)] == uses_of(seen, NOON, NOON + 30_000)

    def test_use_of_a_quota_late_in_the_next_period_is_charged_to_its_own(self) -> None:
        """The stored number proves the period."""
        seen = view(created(stored(SPEND), {"spend": 85}))
        late_ms = DECEMBER_S * 1000 + 5

        assert [spent(85, at_ms=late_ms)] == uses_of(seen, late_ms)

    @pytest.mark.parametrize(("at_ms", "used"), [(1_700_000_009_999, 2_000), (1_700_000_010_000, 0)])
    def test_use_of_slots_is_the_slots_that_have_not_ended(self, at_ms: int, used: int) -> None:
        """Two slots are taken for ten seconds."""
        seen = view(created(stored(SLOTS), {"slots": 2}))

        assert [LimitUse(SLOTS, used, 0, at_ms)] == uses_of(seen, at_ms)

    def test_use_of_a_limit_without_thresholds_is_left_out(self) -> None:
        """It never warns."""
        seen = view(created(stored(RPM, Limit.per_minute("tpm", 9)), {"tpm": 9}))

        assert ["rpm"] == [use.limit.name for use in uses_of(seen, NOON)]


class TestTotals:
    """What is used on all shards."""

    def test_total_of_a_limit_is_the_sum_over_all_stored_shards(self) -> None:
        """The newest use of a shard counts, and a shard without a change counts as it is."""
        changed = {0: [taken(30, NOON), taken(35, NOON + 1)], 1: [taken(40, NOON + 2)]}
        now = {0: [taken(36, NOON + 3)], 1: [taken(40, NOON + 3)], 2: [taken(5, NOON + 3)]}

        assert [taken(36 + 40 + 5, NOON + 3)] == total_uses(changed, now)

    def test_total_of_a_limit_without_a_change_is_left_out(self) -> None:
        """It cannot have reached a threshold."""
        assert [taken(3)] == total_uses({0: [taken(2)]}, {0: [taken(3), spent(100)]})

    def test_change_of_a_shard_that_does_not_exist_any_more_is_left_out(self) -> None:
        """Its use is in another shard since the merge."""
        assert [] == total_uses({1: [taken(90)]}, {0: [taken(90)]})

    def test_total_of_an_ended_period_has_the_last_change_of_each_shard(self) -> None:
        """A shard that has begun the next period is counted as it was before."""
        changed = {0: [spent(80)]}
        now = {0: [spent(1, DECEMBER)], 1: [spent(10)]}

        assert [spent(90)] == total_uses(changed, now)

    def test_totals_of_two_periods_are_separate_and_in_order(self) -> None:
        """Each may reach its own thresholds."""
        changed = {0: [spent(80), spent(1, DECEMBER)]}
        now = {0: [spent(2, DECEMBER)], 1: [spent(3, DECEMBER)]}

        assert [spent(80), spent(5, DECEMBER)] == total_uses(changed, now)

    def test_epochs_of_one_edge_by_other_time_zone_data_are_one_period(self) -> None:
        """They differ by less than a quarter of the period, and the later one names the sum."""
        later = NOVEMBER + AN_HOUR

        assert [spent(50, later)] == total_uses({0: [spent(30)]}, {0: [spent(30)], 1: [spent(20, later)]})

    def test_epoch_of_an_action_is_a_period_of_its_own(self) -> None:
        """A reset makes the quota full, so what was spent before does not count."""
        reset = NOVEMBER + AN_HOUR + 1

        assert [spent(20, reset)] == total_uses({0: [spent(20, reset)]}, {0: [spent(20, reset)], 1: [spent(70)]})


class TestCrossings:
    """Which thresholds were reached."""

    @pytest.mark.parametrize(("used", "reached"), [(79, []), (80, [800]), (99, [800]), (100, [800, 1000])])
    def test_threshold_is_reached_when_its_part_of_the_capacity_is_used(self, used: int, reached: list[int]) -> None:
        """The thresholds are 80 and 100 of 100."""
        assert reached == parts([taken(used)])

    def test_threshold_with_a_mark_of_the_period_is_not_reached_again(self) -> None:
        """Only the other one is new."""
        assert [1000] == parts([spent(100)], {("spend", 800): WarningMark(NOVEMBER, NOON)})

    def test_threshold_that_two_uses_reach_is_returned_for_the_first(self) -> None:
        """The first use is the one that has reached it."""
        assert [Crossing(taken(81), 800)] == crossings([taken(81), taken(90, NOON + 1)], {})

    def test_crossing_is_marked_by_limit_and_threshold_with_its_period_and_time(self) -> None:
        """The mark is what a later use is compared with."""
        crossing = Crossing(spent(80), 800)

        assert (("spend", 800), WarningMark(NOVEMBER, NOON)) == (crossing.key, crossing.mark)

    def test_uses_are_all_marked_only_if_every_threshold_is(self) -> None:
        """Thresholds that are not reached yet count as well."""
        first = {("rpm", 800): WarningMark(0, NOON)}
        both = {**first, ("rpm", 1000): WarningMark(0, NOON)}

        assert [False, True] == [is_all_marked([taken(0)], marks) for marks in (first, both)]

    def test_thresholds_are_whole_thousandths_in_rising_order(self) -> None:
        """1.001 * 1000 is less than 1001 in floating-point arithmetic."""
        assert [800, 1000, 1001] == parts_of(Limit.per_day("rpd", 10, warn_at=(0.8, 1.0, 1.001)))


class TestMarks:
    """How long a mark prevents another warning."""

    def test_use_without_a_mark_is_not_marked(self) -> None:
        """Its warning is the first one."""
        assert not is_marked(taken(80), None)

    @pytest.mark.parametrize(
        ("marked", "covers"),
        [
            (NOVEMBER, True),
            (DECEMBER, True),
            (NOVEMBER - AN_HOUR, True),
            (NOVEMBER - AN_HOUR - 1, False),
            (NOVEMBER - 1_296_000, False),
            (NOVEMBER - 31 * 86_400 * 2, False),
        ],
    )
    def test_mark_of_a_quota_covers_its_period_and_earlier_ones(self, marked: int, covers: bool) -> None:
        """The same edge, dated up to a quarter of a month earlier, is the same period; an action is not."""
        assert covers == is_marked(spent(80), WarningMark(marked, NOON))

    @pytest.mark.parametrize(("after_ms", "covers"), [(59_999, True), (60_000, False)])
    def test_mark_of_a_rate_limit_covers_the_time_that_it_takes_to_fill(self, after_ms: int, covers: bool) -> None:
        """100 tokens at 100 per minute."""
        assert covers == is_marked(taken(80, NOON + after_ms), WarningMark(0, NOON))

    @pytest.mark.parametrize(
        ("limit", "quiet"),
        [
            (Limit.per_second("rps", 10), 60_000),
            (Limit.per_hour("rph", 10), 3_600_000),
            (Limit.concurrent("slots", 4, hold_seconds=60), 90_000),
        ],
    )
    def test_quiet_time_is_the_fill_time_but_at_least_a_minute(self, limit: Limit, quiet: int) -> None:
        """A limit that fills in a second would warn every second."""
        assert quiet == quiet_ms(limit)

    def test_mark_of_a_rate_limit_is_needed_until_its_quiet_time_ends(self) -> None:
        """It covers nothing then."""
        assert NOON + 60_000 == quiet_until_ms(taken(80))

    def test_mark_of_a_quota_is_needed_a_quarter_of_a_period_past_the_next_edge(self) -> None:
        """7.5 days: the edge may be dated later by other time zone data."""
        assert (DECEMBER_S + 648_000) * 1000 == quiet_until_ms(spent(80))


class TestWarning:
    """The warning about a threshold that was reached."""

    def test_warning_of_a_quota_has_the_period_of_its_use(self) -> None:
        """Begin and end, whenever it is sent."""
        warning = warning_of(Crossing(spent(85, at_ms=NOON + 5), 800), "default", "user-1", "gpt-4")

        assert ("default", "user-1", "gpt-4", SPEND) == (
            warning.namespace,
            warning.entity_id,
            warning.resource,
            warning.limit,
        )
        assert (0.8, 85, NOON + 5, (NOVEMBER_S, DECEMBER_S)) == (
            warning.threshold,
            warning.used,
            warning.at_ms,
            warning.period,
        )

    def test_warning_of_a_rate_limit_has_no_period(self) -> None:
        """It is refilled all the time."""
        assert warning_of(Crossing(taken(80), 800), "default", "user-1", "gpt-4").period is None
