"""Child and parent: what follows from the two outcomes."""

import pytest

from zae_limiter.core.cascade import Admitted, Denied, SideFailed, SideTaken, verdict
from zae_limiter.core.errors import RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import LimitStatus

RPM = Limit.per_minute("rpm", 10)


def too_much(entity_id: str) -> RateLimitExceeded:
    return RateLimitExceeded([LimitStatus(entity_id, "gpt-4", "rpm", RPM, 0, 1, True, 6.0)])


AWAY = RateLimiterUnavailable(TimeoutError())
WRONG = ValidationError("consume", "x", "is wrong")


def test_both_taken_is_admitted() -> None:
    """Together."""
    assert Admitted() == verdict(SideTaken("child"), SideTaken("parent"))


@pytest.mark.parametrize(("child", "parent"), [(SideTaken(1), SideFailed(AWAY)), (SideFailed(AWAY), SideTaken(1))])
def test_one_failure_denies_both(child: SideTaken[int] | SideFailed, parent: SideTaken[int] | SideFailed) -> None:
    """Or not at all."""
    assert Denied(AWAY) == verdict(child, parent)


def test_two_rejections_are_told_as_one() -> None:
    """The error holds the statuses of both."""
    denied = verdict(SideFailed(too_much("key")), SideFailed(too_much("project")))

    assert isinstance(denied, Denied)
    assert isinstance(denied.error, RateLimitExceeded)
    assert ["key", "project"] == [status.entity_id for status in denied.error.statuses]


@pytest.mark.parametrize("other", [AWAY, WRONG])
def test_a_wrong_request_outranks_one_that_is_too_much_and_that_a_store_that_is_away(other: Exception) -> None:
    """A caller mends first what only the caller can mend."""
    denied = verdict(SideFailed(other), SideFailed(too_much("project")))

    assert isinstance(denied, Denied)
    assert (WRONG if other is WRONG else "project") == (
        denied.error if other is WRONG else denied.error.statuses[0].entity_id
    )


def test_two_stores_away_are_told_as_the_first() -> None:
    """One is enough to know."""
    assert Denied(AWAY) == verdict(SideFailed(AWAY), SideFailed(RateLimiterUnavailable(OSError())))
