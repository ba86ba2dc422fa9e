"""The levels of quotas, soft limits and slots, and the statuses that are made of them."""

import pytest

from tests.one_bucket import NOON, Client, at, created, stored, view
from tests.quota_buckets import (
    AT_RPM,
    AT_SOFT,
    AT_SPEND,
    AT_TRIAL,
    DAY_S,
    RPM,
    SPEND,
    TERMS,
    TODAY_S,
    TOMORROW,
    TOMORROW_S,
)
from tests.slot_buckets import SLOTS
from zae_limiter.core.acquire import amounts_of
from zae_limiter.core.errors import AmountExceedsCapacityError
from zae_limiter.core.levels import LevelOfLimit, held_statuses_of, lacks, limit_levels
from zae_limiter.core.reserve import Reserve


def levels_of(spent: dict[str, int], now_ms: int = NOON) -> list[LevelOfLimit]:
    """Return the levels of a bucket that had this much taken from it at NOON."""
    return limit_levels(view(created(TERMS, spent)), TERMS, at(now_ms))


class TestLevel:
    """The level of one limit."""

    def test_quota_that_was_spent_from_is_full_at_its_next_edge(self) -> None:
        """A quota that is full was so since its period began."""
        spent, full = levels_of({"spend": 40})[AT_SPEND], levels_of({})[AT_SPEND]

        assert (TOMORROW, TODAY_S * 1000) == (spent.full_ms(), full.full_ms())

    def test_quota_is_full_again_after_its_edge(self) -> None:
        """It then shows the next one."""
        spend = levels_of({"spend": 40})[AT_SPEND]

        assert [60_000, 100_000] == [spend.available_milli(at(now_ms)) for now_ms in (TOMORROW - 1, TOMORROW)]
        assert [TOMORROW_S, TOMORROW_S + DAY_S] == [spend.resets_s(at(now_ms)) for now_ms in (NOON, TOMORROW)]

    def test_wait_for_a_quota_ends_at_its_edge(self) -> None:
        """A request that it has enough for waits for nothing, and so does a request of 0 on a quota in debt."""
        spend = levels_of({"spend": 40})[AT_SPEND]
        owing = levels_of({"trial": 40})[AT_TRIAL]

        assert [0, 0, 6_400_000] == [spend.wait_ms(milli, at(NOON)) for milli in (0, 60_000, 61_000)]
        assert (-30_000, 0) == (owing.available_milli(at(NOON)), owing.wait_ms(0, at(NOON)))

    def test_level_after_a_take_is_less(self) -> None:
        """A take after the edge is one of the new period."""
        spend = levels_of({"spend": 40})[AT_SPEND]

        assert 35_000 == spend.less(25_000, at(NOON)).available_milli(at(NOON))
        assert 75_000 == spend.less(25_000, at(TOMORROW)).available_milli(at(TOMORROW))

    def test_bucket_that_does_not_exist_has_full_limits(self) -> None:
        """A quota is then created in the period of the latest time."""
        levels = limit_levels(None, TERMS, (TOMORROW - 1, TOMORROW))

        assert [100_000, 10_000, 100_000, 10_000] == [level.available_milli(at(TOMORROW)) for level in levels]
        assert TOMORROW_S + DAY_S == levels[AT_SPEND].resets_s(at(NOON))

    @pytest.mark.parametrize(
        ("position", "milli", "found"),
        [(AT_RPM, 61_000, True), (AT_RPM, 60_000, False), (AT_SPEND, 61_000, True), (AT_SPEND, 0, False)],
    )
    def test_enforced_limit_with_too_little_lacks_the_amount(self, position: int, milli: int, found: bool) -> None:
        """A request of 0 is never too much."""
        levels = levels_of({"rpm": 40, "spend": 40})

        assert found == lacks(levels[position], milli, at(NOON))

    @pytest.mark.parametrize("position", [AT_SOFT, AT_TRIAL])
    def test_soft_limit_lacks_no_amount(self, position: int) -> None:
        """It never rejects."""
        assert not lacks(levels_of({"soft": 10, "trial": 40})[position], 1_000, at(NOON))

    def test_level_above_a_reserve_is_less_by_its_floor(self) -> None:
        """Of 100 and of 4, a quarter is reserved. A soft limit keeps nothing."""
        terms, quarter = stored(RPM, SLOTS, SPEND), Reserve(1, 4)
        mixed = limit_levels(view(created(terms, {"rpm": 40, "slots": 1, "spend": 40})), terms, at(NOON))
        soft = levels_of({"soft": 4})[AT_SOFT]

        assert [35_000, 2_000, 35_000] == [level.above(quarter).available_milli(at(NOON)) for level in mixed]
        assert 6_000 == soft.above(quarter).available_milli(at(NOON))


class TestStatus:
    """The statuses of requests."""

    def test_soft_limit_that_is_exceeded_has_no_wait(self) -> None:
        """Only the limit that rejects has one: 6 tokens per 3.6 s."""
        client = Client(TERMS, created(TERMS, {"rpm": 100, "soft": 10, "trial": 40}))
        client.look(at(NOON))
        found = client.request({"rpm": 6, "soft": 1, "trial": 1}, at(NOON))

        assert [("rpm", True, 3.6), ("soft", True, 0.0), ("spend", False, 0.0), ("trial", True, 0.0)] == [
            (status.limit_name, status.exceeded, status.retry_after_seconds) for status in found
        ]

    def test_status_of_an_admitted_request_shows_quotas_with_their_edge(self) -> None:
        """A soft limit in debt is exceeded. What was taken and is not written yet counts as taken."""
        seen = view(created(TERMS, {"spend": 40, "trial": 40}))
        found = held_statuses_of(("user-1", "gpt-4"), seen, TERMS, {"spend": 7}, {"spend": 2}, at(NOON))

        assert [("rpm", 100, 0, False), ("soft", 10, 0, False), ("spend", 58, 7, False), ("trial", -30, 0, True)] == [
            (status.limit_name, status.available, status.requested, status.exceeded) for status in found
        ]
        assert [None, None, TOMORROW_S, TOMORROW_S] == [status.resets_at for status in found]

    def test_amount_above_the_capacity_is_an_error_only_for_an_enforced_limit(self) -> None:
        """A soft limit counts it."""
        with pytest.raises(AmountExceedsCapacityError, match="more than the capacity of limit 'spend'"):
            amounts_of({"spend": 101}, TERMS)

        assert [(AT_SOFT, 11_000), (AT_TRIAL, 12_000)] == amounts_of({"soft": 11, "trial": 12}, TERMS)
