"""Several buckets in one request: which error the request fails with."""

import pytest

from zae_limiter.core.cascade import error_of
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError, ZAELimiterError

UNAVAILABLE = RateLimiterUnavailable(TimeoutError())
WRONG = ValidationError("consume", "x", "is wrong")


def test_a_request_without_failures_has_no_error() -> None:
    """It is admitted, or its rejections give the reason."""
    assert (None, None) == (error_of([], rejected=False), error_of([], rejected=True))


@pytest.mark.parametrize("failures", [[UNAVAILABLE], [UNAVAILABLE, RateLimiterUnavailable(OSError())]])
def test_unavailable_buckets_without_a_rejection_give_the_first_error(failures: list[ZAELimiterError]) -> None:
    """One error is enough."""
    assert UNAVAILABLE is error_of(failures, rejected=False)


def test_rejection_takes_precedence_over_an_unavailable_bucket() -> None:
    """The rejection is more useful to the caller: it contains the wait."""
    assert error_of([UNAVAILABLE], rejected=True) is None


@pytest.mark.parametrize("failures", [[WRONG], [WRONG, UNAVAILABLE], [UNAVAILABLE, WRONG]])
@pytest.mark.parametrize("rejected", [True, False])
def test_validation_error_takes_precedence_over_all_other_failures(
    failures: list[ZAELimiterError], rejected: bool
) -> None:
    """Only the caller can correct it."""
    assert WRONG is error_of(failures, rejected=rejected)
