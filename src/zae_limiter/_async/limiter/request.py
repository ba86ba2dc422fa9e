"""A request for tokens, and its rejection, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.resolve import OwnLimits
from zae_limiter.core.acquire import LevelOfLimit, amounts_of, statuses
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.view import Amounts, EffectiveLimits

_SURE_MS = 20
"""Bounds of the time that are this close are close enough."""


class AcquireRequest(NamedTuple):
    """What a caller asks for: so much of a bucket, by the stored limits or its own, and until when.

    ``partly``: what the bucket does not limit is not asked of it. ``with_parent``: where the entity cascades, its
    parent is to be taken from too, and may be at once.
    """

    bucket: BucketId
    consume: dict[str, int]
    own: OwnLimits
    until_s: float
    partly: bool = False
    with_parent: bool = False

    def amounts(self, terms: EffectiveLimits) -> Amounts:
        """Return the amounts by these terms.

        Raises:
            ValidationError: An amount is invalid, or can never be admitted.
        """
        if not self.partly:
            return amounts_of(self.consume, terms)
        return amounts_of({name: amount for name, amount in self.consume.items() if name in terms.positions}, terms)


@dataclass(slots=True)
class Rejected:
    """A request that a bucket lacks the tokens for: how its limits stood when it was judged, and the time now."""

    bucket: BucketId
    terms: EffectiveLimits
    stands: Sequence[LevelOfLimit]
    amounts: Amounts
    judged: TimeBounds
    now: TimeBounds

    def statuses(self) -> list[LimitStatus]:
        """Return the status of every limit of the bucket."""
        return statuses(self.bucket, self.stands, self.amounts, self.judged, self.now)

    def depends_on_the_clock(self) -> bool:
        """Say whether the request would have been admitted at the latest time that it may be."""
        early, late = self.now
        if late - early <= _SURE_MS:
            return False
        stands = self.stands
        return all(milli <= stands[position].available_milli((late, late)) for position, milli in self.amounts)


def about(away: RateLimiterUnavailable, bucket: BucketId) -> RateLimiterUnavailable:
    """Return the same error, saying which bucket could not be reached."""
    entity_id, resource = bucket
    return RateLimiterUnavailable(away.cause, away.stack_name, entity_id, resource)


def contended(bucket: BucketId) -> RateLimiterUnavailable:
    """Return the error of a bucket that others keep changing."""
    return about(RateLimiterUnavailable(TimeoutError("others kept changing the bucket")), bucket)
