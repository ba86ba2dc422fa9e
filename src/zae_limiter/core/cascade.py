"""Several buckets taken together or not at all: the error of a request of which some buckets failed.

Taking and giving back is done elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError


@dataclass(frozen=True, slots=True)
class BucketFailed:
    """A call for one of several buckets failed; it did not reject the request for lack of tokens."""

    error: ZAELimiterError


def error_of(failures: Sequence[ZAELimiterError], *, rejected: bool) -> ZAELimiterError | None:
    """Return the error of a request; None if all buckets admit it, or if a rejection is all there is to report.

    An invalid request comes first, because only the caller can correct it. Then a rejection, then an unavailable store.
    """
    for failure in failures:
        if not isinstance(failure, RateLimiterUnavailable):
            return failure
    return failures[0] if failures and not rejected else None
