"""Decide about requests to several buckets, of which all or none are taken from.

An acquire takes from the buckets of an entity and of the entities above it, as far as each of them
cascades. ``_async/limiter/cascade.py`` takes and gives back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter.core.config import Links
from zae_limiter.core.errors import EntityBlockedError, RateLimiterUnavailable, TooManyBucketsError, ZAELimiterError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.timestamp import utc_from_ms

MOST_LEVELS = 8
"""The most entities that one acquire takes from by cascade: itself and seven above it."""

MOST_BUCKETS = 16
"""The most buckets that one acquire takes from."""


class Also(NamedTuple):
    """Another entity and resource to take from in the same acquire."""

    entity_id: str
    resource: str
    consume: dict[str, int]


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


def check_levels(entity_id: str, levels: int) -> None:
    """Require that an acquire of an entity takes from at most ``MOST_LEVELS`` levels.

    Raises:
        TooManyBucketsError: There are more.
    """
    if levels > MOST_LEVELS:
        reason = f"it has more than {MOST_LEVELS - 1} entities above it to cascade to; move it, or end a cascade"
        raise TooManyBucketsError("entity_id", entity_id, reason)


def check_buckets(entity_id: str, buckets: int) -> None:
    """Require that an acquire of an entity takes from at most ``MOST_BUCKETS`` buckets.

    Raises:
        TooManyBucketsError: There are more.
    """
    if buckets > MOST_BUCKETS:
        reason = f"the request would take from {buckets} buckets; at most {MOST_BUCKETS} are possible"
        raise TooManyBucketsError("entity_id", entity_id, reason)


def check_not_blocked(entity_id: str, links: Links | None, resource: str, now_ms: int) -> None:
    """Require that no block of an entity refuses a request at the earliest time that it may be now.

    Raises:
        EntityBlockedError: A block refuses it.
    """
    for block in () if links is None else links.blocks:
        if block.refuses(resource, now_ms):
            until = None if block.until_ms is None else utc_from_ms(block.until_ms)
            raise EntityBlockedError(entity_id, block.resource, block.reason, until)


def entities_to_read(missing: str, hint: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the entities to read in one call, the first entity of a chain that is missing first.

    ``hint`` are the entities that are expected above the last known one, nearest first. They are read too if the hint
    begins with the missing entity. ``known`` need not be read again.
    """
    if not hint or hint[0] != missing:
        return [missing]
    return [missing, *(one for one in dict.fromkeys(hint[1:MOST_LEVELS]) if one != missing and one not in known)]
