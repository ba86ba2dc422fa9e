"""What errors, states and sums of usage say about slots and about requests that have waited."""

import pickle
from math import inf

import pytest

from zae_limiter.core.errors import RateLimitExceeded
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import BucketState, LimitStatus
from zae_limiter.core.usage import UsageSnapshot, UsageTotals

RPM, SLOTS = Limit("rpm", 100, 100, 60), Limit.concurrent("slots", 4, hold_seconds=10)


def of(limit: Limit, wait_s: float) -> LimitStatus:
    """Return the status of a limit that was exceeded."""
    return LimitStatus("user-1", "gpt-4", limit.name, limit, 0, 1, True, wait_s, not limit.is_concurrent)


class TestWaited:
    """A rejection after a wait."""

    def test_waited_error_keeps_its_place_when_it_is_pickled(self) -> None:
        """Other processes get it as it is."""
        error = RateLimitExceeded([of(RPM, 2.0)]).after_wait(1.5, 3, 4.0)
        found = pickle.loads(pickle.dumps(error))

        assert (1.5, 3, 4.0) == (found.waited, found.position, found.estimate)
        assert {"waited": 1.5, "position": 3, "estimate": 4.0}.items() <= error.as_dict().items()

    def test_requests_that_wait_before_it_count_for_the_wait(self) -> None:
        """Nothing is known of a wait without an end."""
        error = RateLimitExceeded([of(RPM, 2.0)])

        assert 4.0 == error.after_wait(0.0, 3, 4.0).retry_after_seconds == error.next_try_seconds
        assert 2.0 == error.after_wait(0.0, 3, inf).retry_after_seconds == error.next_try_seconds

    def test_request_that_is_only_behind_others_says_so(self) -> None:
        """No limit lacks anything yet."""
        error = RateLimitExceeded([]).after_wait(0.0, 3, 1.0)

        assert "Rate limit exceeded: 2 requests wait for the same tokens before this one." == str(error)
        assert "Rate limit exceeded." == str(RateLimitExceeded([]))


class TestSlots:
    """A rejection for lack of slots."""

    @pytest.mark.parametrize(
        ("limits", "next_s"), [([(SLOTS, 60.0)], 1.0), ([(SLOTS, 0.5)], 0.5), ([(SLOTS, 60.0), (RPM, 3.0)], 3.0)]
    )
    def test_next_try_for_slots_is_at_most_a_second_away(
        self, limits: list[tuple[Limit, float]], next_s: float
    ) -> None:
        """Slots are returned at any time. Tokens come at an exact time."""
        error = RateLimitExceeded([of(*one) for one in limits])

        assert (next_s, False) == (error.next_try_seconds, error.exact)
        assert next_s == error.as_dict()["next_try_seconds"]

    def test_estimate_of_a_wait_for_slots_is_at_most_a_second(self) -> None:
        """It is not exact either."""
        assert 1.0 == RateLimitExceeded([of(SLOTS, 0.5)]).after_wait(0.0, 2, 9.0).next_try_seconds

    def test_state_has_its_limit(self) -> None:
        """It is made from the numbers that are stored."""
        slots = BucketState("user-1", "gpt-4", "slots", 1_000, 0, 4_000, 0, 0, 0, 10)
        rpm = BucketState("user-1", "gpt-4", "rpm", 1_000, 0, 100_000, 100_000, 60_000)

        assert (SLOTS, RPM) == (slots.limit, rpm.limit)

    def test_sum_of_usage_has_the_highest_number_of_any_window(self) -> None:
        """Numbers of different times do not add up."""
        totals = UsageTotals()
        for slots in (2, 5, 3):
            window = "2024-01-01T14:00:00Z", "2024-01-01T15:00:00Z", "hourly"
            totals.add([UsageSnapshot("user-1", "gpt-4", *window, {"slots": 1}, 1, {"slots": slots})])

        assert {"slots": 5} == totals.summary().highest_in_use
