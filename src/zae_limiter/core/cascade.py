"""Choose the error of a request to several buckets, of which all or none are taken from.

``_async/limiter/cascade.py`` takes and gives back.
"""

from collections.abc import Sequence

from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BucketFailed:
    """A call for one of several buckets failed for another reason than a lack of tokens."""

    error: ZAELimiterError


def error_of(failures: Sequence[ZAELimiterError], *, rejected: bool) -> ZAELimiterError | None:
    """Return the error of a request, None if all buckets admit it or if only a rejection is to be reported.

    The order is: an invalid request, which only the caller can correct; a rejection; an unavailable
    store.
    """
    for failure in failures:
        if not isinstance(failure, RateLimiterUnavailable):
            return failure
    return failures[0] if failures and not rejected else None
