"""The statuses of requests that can never be admitted, and of those that were."""

from typing import Any

import pytest

from tests.one_bucket import NOON, OWNER, at, stored
from zae_limiter.core.acquire import requested_amounts
from zae_limiter.core.levels import held_statuses, held_statuses_of, limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.bucket_writes import Signature

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS)


class TestNeverAdmitted:
    """A request for more than a capacity."""

    def test_wait_for_more_than_the_capacity_is_the_time_until_the_bucket_is_full(self) -> None:
        """A full bucket has no wait."""
        levels = limit_levels(None, TERMS, at(NOON))
        (full,) = statuses(("user-1", "gpt-4"), levels, [(0, 11_000)], at(NOON), at(NOON))
        (drawn,) = statuses(("user-1", "gpt-4"), [levels[0].less(4_000, at(NOON))], [(0, 11_000)], at(NOON), at(NOON))

        assert (True, 0.0) == (full.exceeded, full.retry_after_seconds)
        assert drawn.retry_after_seconds == levels[0].less(4_000, at(NOON)).wait_ms(10_000, at(NOON)) / 1000 > 0

    def test_requested_amounts_leave_out_what_is_no_amount_or_no_limit(self) -> None:
        """The rest may exceed a capacity."""
        consume: dict[str, Any] = {"rps": 11, "rpm": "many", "other": 1}

        assert [(1, 11_000)] == list(requested_amounts(consume, stored(RPS, RPM)))
        assert [] == list(requested_amounts({"rps": 10**18 + 1, "rpm": -1}, stored(RPS, RPM)))


class TestHeld:
    """The statuses of a request that was admitted."""

    def test_held_statuses_have_what_is_left_and_what_is_held(self) -> None:
        """None of them is exceeded, although less is left than is held."""
        levels = [limit_levels(None, TERMS, at(NOON))[0].less(8_000, at(NOON))]
        (status,) = held_statuses(("user-1", "gpt-4"), levels, {"rps": 8}, {}, at(NOON))

        assert (2, 8, False, 0.0) == (
            status.available,
            status.requested,
            status.exceeded,
            status.retry_after_seconds,
        )

    @pytest.mark.parametrize(("pending", "left"), [(3, -1), (-1, 3), (-100, 10)])
    def test_held_statuses_count_pending_adjustments_up_to_the_capacity(self, pending: int, left: int) -> None:
        """They are written when the lease ends."""
        levels = [limit_levels(None, TERMS, at(NOON))[0].less(8_000, at(NOON))]
        (status,) = held_statuses(("user-1", "gpt-4"), levels, {"rps": 8}, {"rps": pending}, at(NOON))

        assert left == status.available

    @pytest.mark.parametrize("terms", [stored(RPS, RPM), stored(RPS, stamp=2), stored(Limit("rps", 5, 5, 1), stamp=2)])
    @pytest.mark.parametrize("later_ms", [-1, 0, 700, 60_000])
    @pytest.mark.parametrize("pending", [{}, {"rps": -2, "rpm": 3}])
    def test_held_statuses_of_a_view_are_those_of_its_levels(
        self, terms: EffectiveLimits, later_ms: int, pending: dict[str, int]
    ) -> None:
        """Also before its baseline, when it is full, and when the lease was admitted by other limits."""
        item = bucket_writes.create(OWNER, stored(RPS, RPM), {"rps": 8_000, "rpm": 70_500}, NOON, Signature(1, 2)).item
        view = view_of(item, NOON, None, stored(RPS, RPM))
        bucket, held, now = ("user-1", "gpt-4"), {"rps": 8}, at(NOON + later_ms)

        expected = held_statuses(bucket, limit_levels(view, terms, now), held, pending, now)
        actual = held_statuses_of(bucket, view, terms, held, pending, now)

        assert expected == actual
        assert [limit.name for limit in terms.limits] == [status.limit_name for status in actual]
