"""A request waits for the limits that reject it, and never for a soft one."""

from zae_limiter.core.errors import RateLimitExceeded
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.waiting import next_ask_s, primary_bucket

HARD = Limit.concurrent("slots", 1, hold_seconds=30)
SOFT = Limit.concurrent("slots", 1, hold_seconds=30, enforce=False)


def used_up(entity_id: str, limit: Limit, wait_s: float) -> LimitStatus:
    """Return the status of a limit of slots that are all in use."""
    return LimitStatus(entity_id, "api", limit.name, limit, 0, 1, True, wait_s, False)


def test_soft_slots_that_are_in_use_do_not_make_a_request_ask_at_once() -> None:
    """Their wait is 0, so the request would ask again without a pause."""
    own, parent = used_up("user", HARD, 20.0), used_up("org", SOFT, 0.0)

    assert 0 < next_ask_s(RateLimitExceeded([own])) == next_ask_s(RateLimitExceeded([own, parent]))
    assert ("user", "api") == primary_bucket([parent, own])
    assert primary_bucket([parent]) is None
