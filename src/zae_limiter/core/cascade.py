"""Child and parent taken together: what follows from the two outcomes, and who is owed tokens.

Taking and giving back is done elsewhere.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from zae_limiter.core.errors import RateLimiterUnavailable, RateLimitExceeded, ZAELimiterError

H = TypeVar("H")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class SideTaken(Generic[H]):
    """One side was taken from; ``holding`` says what."""

    holding: H


@dataclass(frozen=True, slots=True)
class SideFailed:
    """One side was not taken from."""

    error: ZAELimiterError


@dataclass(frozen=True, slots=True)
class Admitted:
    """Both sides were taken from."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The request fails with ``error``; what was taken on either side is to be given back."""

    error: ZAELimiterError


def verdict(child: SideTaken[H] | SideFailed, parent: SideTaken[G] | SideFailed) -> Admitted | Denied:
    """Return what follows: both or none."""
    failures = [side.error for side in (child, parent) if isinstance(side, SideFailed)]
    return Denied(_combined(failures)) if failures else Admitted()


def _combined(failures: list[ZAELimiterError]) -> ZAELimiterError:
    """Return the one error that tells of all: a request that is wrong, else one that is too much, else a store away."""
    exceeded = [failure for failure in failures if isinstance(failure, RateLimitExceeded)]
    for failure in failures:
        if not isinstance(failure, RateLimitExceeded | RateLimiterUnavailable):
            return failure
    if exceeded:
        return RateLimitExceeded([status for failure in exceeded for status in failure.statuses])
    return failures[0]
