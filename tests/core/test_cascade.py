"""Several buckets in one request: which error it fails with."""

import pytest

from zae_limiter.core.cascade import error_of
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError, ZAELimiterError

AWAY = RateLimiterUnavailable(TimeoutError())
WRONG = ValidationError("consume", "x", "is wrong")


def test_a_request_without_failures_has_no_error() -> None:
    """It is admitted, or its rejections say why not."""
    assert (None, None) == (error_of([], rejected=False), error_of([], rejected=True))


@pytest.mark.parametrize("failures", [[AWAY], [AWAY, RateLimiterUnavailable(OSError())]])
def test_unavailable_buckets_without_a_rejection_give_the_first_error(failures: list[ZAELimiterError]) -> None:
    """One is enough to know."""
    assert AWAY is error_of(failures, rejected=False)


def test_a_rejection_beside_an_unavailable_bucket_gives_no_error() -> None:
    """The rejection tells the caller more: when to come again."""
    assert error_of([AWAY], rejected=True) is None


@pytest.mark.parametrize("failures", [[WRONG], [WRONG, AWAY], [AWAY, WRONG]])
@pytest.mark.parametrize("rejected", [True, False])
def test_an_invalid_request_comes_before_all_else(failures: list[ZAELimiterError], rejected: bool) -> None:
    """Only the caller can correct it."""
    assert WRONG is error_of(failures, rejected=rejected)
