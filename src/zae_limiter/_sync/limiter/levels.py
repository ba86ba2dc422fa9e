"""The levels of buckets without a take: for reports, for the statuses of a rejection, and to reject in advance."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter._sync.limiter.chains import ChainReader
from zae_limiter._sync.limiter.shard_attempt import AttemptContext
from zae_limiter._sync.limiter.shards import ShardClient
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, Remembered
from zae_limiter.caches.request import AcquireRequest, OwnLimits, Rejected, about
from zae_limiter.core.acquire import (
    LevelOfLimit,
    amounts_of,
    held_statuses,
    held_statuses_of,
    is_fresh,
    is_known_short,
    limit_levels,
    requested_amounts,
    statuses,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    NoLimitsInForceError,
    RateLimiterUnavailable,
)
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.sharding import is_complete
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.view import Amounts, EffectiveLimits
from zae_limiter.core.waiting import Supply, supply_of


class BucketLevel(NamedTuple):
    """A bucket, the limits that it is judged by, and the level of each."""

    bucket: BucketId
    terms: EffectiveLimits
    levels: Sequence[LevelOfLimit]

    def wait_ms(self, needed: dict[str, int], now: TimeBounds) -> int:
        """Return the milliseconds until tokens are available.

        Raises:
            ValidationError: A limit is unknown, or an amount is not a whole number.
            AmountExceedsCapacityError: An amount can never be available. Its statuses are those of this bucket.
        """
        try:
            amounts = amounts_of(needed, self.terms, "needed")
        except AmountExceedsCapacityError as error:
            found = statuses(self.bucket, self.levels, requested_amounts(needed, self.terms), now, now)
            raise AmountExceedsCapacityError(found, error.field, error.value, error.reason) from None
        return max((self.levels[position].wait_ms(milli, now) for position, milli in amounts), default=0)


class AllLevels(NamedTuple):
    """The levels of all buckets of an acquire, and the error if the entity is blocked, None if it is not."""

    levels: Sequence[BucketLevel]
    blocked: EntityBlockedError | None


class BucketLevels:
    """Reads levels from the cache while they are fresh, else from the table."""

    def __init__(self, scope: Scope, context: AttemptContext, shards: ShardClient, chains: ChainReader) -> None:
        self._caches = scope.caches
        self._table = scope.table
        self._stack_name = scope.client.stack_name
        self._resolver = context.resolver
        self._buckets = context.buckets
        self._trust_ms = context.first.trust_ms
        self._shards = shards
        self._chains = chains

    def known_rejection(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection that a fresh view of the bucket shows to come, without a call; None if it may admit.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket = request.bucket
        memory = self._caches.buckets.get(bucket)
        if memory is None or memory.view is None:
            return None
        known = request.known
        terms = self._resolver.known_terms(bucket, request.own) if known is None else known.terms
        if terms is None:
            return None
        amounts, now = request.amounts(terms), self._table.now()
        if memory.sharded:
            return self._shards.rejected_by_memory(memory, bucket, terms, amounts)
        if not is_known_short(memory.view, terms, amounts, now, self._trust_ms):
            return None
        return Rejected(bucket, terms, memory.view, amounts, now, now)

    def statuses_of(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return the statuses of a bucket for a request that another bucket rejects; a view that is not fresh is read.

        The list is empty if no limits are in force, or if they are unknown because the table does not answer.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        return self._statuses(request, request.amounts)

    def statuses_of_too_much(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return the statuses of a bucket for a request that it can never admit; a view that is not fresh is read.

        The list is empty if no limits are in force, or if they are unknown because the table does not answer.
        """
        found = self._statuses(request, request.requested)
        terms = None if found else self._resolver.known_terms(request.bucket, request.own)
        if terms is None:
            return found
        # The table does not answer, and the bucket was never seen: it counts as full.
        now = self._table.now()
        return statuses(request.bucket, limit_levels(None, terms, now), request.requested(terms), now, now)

    def _statuses(
        self, request: AcquireRequest, amounts_by: Callable[[EffectiveLimits], Amounts]
    ) -> list[LimitStatus]:
        bucket, until_s = request.bucket, request.until_s
        memory = self._caches.of(bucket)
        try:
            terms = self._resolver.terms(bucket, request.own, until_s)
        except (NoLimitsInForceError, RateLimiterUnavailable):
            return []
        amounts = amounts_by(terms)
        try:
            levels = self._cached_levels(memory, terms) or self._read_levels(bucket, terms, until_s)
        except RateLimiterUnavailable:
            if memory.view is None:
                return []
            levels = combined(list(memory.views().values()), terms, self._table.now())
        return statuses(bucket, levels, amounts, self._table.now(), self._table.now())

    def held_statuses(
        self, bucket: BucketId, terms: EffectiveLimits, held: Mapping[str, int], pending: Mapping[str, int]
    ) -> list[LimitStatus]:
        """Return the statuses of a bucket for a lease that holds tokens of it, by the cached view, without a call.

        ``pending`` are adjustments that are not written yet. The list is empty if the bucket is no longer cached.
        """
        memory = self._caches.buckets.get(bucket)
        if memory is None or memory.view is None:
            return []
        now = self._table.now()
        if not memory.shards and memory.view.layout.shard_count == 1:
            return held_statuses_of(bucket, memory.view, terms, held, pending, now)
        if not is_complete(memory.counts()):
            return []
        return held_statuses(bucket, combined(list(memory.views().values()), terms, now), held, pending, now)

    def supply(self, bucket: BucketId, now_s: float) -> Supply:
        """Return the supply of a bucket by the cached views, without a call; empty if the bucket is not cached.

        ``now_s`` is the time on the monotonic clock.
        """
        memory, now = self._caches.buckets.get(bucket), self._table.now()
        return {} if memory is None or memory.view is None else supply_of(_levels_by_memory(memory, now), now, now_s)

    def cached_statuses(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return the statuses of a bucket for a request by the cached views, without a call, however old they are.

        The list is empty if the bucket is not cached.
        """
        memory = self._caches.buckets.get(request.bucket)
        if memory is None or memory.view is None:
            return []
        now, terms = self._table.now(), memory.view.layout.terms
        return statuses(request.bucket, _levels_by_memory(memory, now), request.requested(terms), now, now)

    def all_levels(self, bucket: BucketId, own: OwnLimits, until_s: float) -> AllLevels:
        """Read the levels of every bucket that an acquire would take from, those of the entity first.

        Raises:
            ValidationError: A name or a limit is invalid, or no limits are in force.
            RateLimiterUnavailable: The table did not answer.
        """
        request = AcquireRequest(bucket, {}, own, until_s)
        try:
            chain = self._chains.find(request)
        except RateLimiterUnavailable as unavailable:
            raise about(unavailable, bucket, self._stack_name) from unavailable.cause
        blocked = None
        try:
            self._chains.require_unblocked(chain, bucket[1])
        except EntityBlockedError as error:
            blocked = error
        return AllLevels(self._levels_of(self._chains.requests(chain, request), until_s), blocked)

    def _levels_of(self, requests: Sequence[AcquireRequest], until_s: float) -> list[BucketLevel]:
        found = []
        for one in requests:
            try:
                found.append(self._level_of(one.bucket, one.own, until_s))
            except NoLimitsInForceError:
                if not one.partly:
                    raise
            except RateLimiterUnavailable as unavailable:
                raise about(unavailable, one.bucket, self._stack_name) from unavailable.cause
        return found

    def _level_of(self, bucket: BucketId, own: OwnLimits, until_s: float) -> BucketLevel:
        terms = self._resolver.terms(bucket, own, until_s)
        return BucketLevel(bucket, terms, self._read_levels(bucket, terms, until_s))

    def _cached_levels(self, memory: Remembered, terms: EffectiveLimits) -> Sequence[LevelOfLimit] | None:
        """Return the levels of a bucket by fresh views; None if it must be read."""
        now = self._table.now()
        if memory.sharded:
            views = self._shards.fresh_views(memory, terms)
            return None if views is None else combined(views, terms, now)
        view = memory.view
        if view is None or not is_fresh(view, terms, now[1], self._trust_ms):
            return None
        return limit_levels(view, terms, now)

    def _read_levels(self, bucket: BucketId, terms: EffectiveLimits, until_s: float) -> Sequence[LevelOfLimit]:
        """Read a bucket and return the level of each limit."""
        view = self._buckets.look((bucket, 0), terms, until_s)
        if view is not None and view.layout.shard_count > 1:
            shards = self._shards.read_all(bucket, terms, until_s) or {0: view}
            return combined(list(shards.values()), terms, self._table.now())
        return limit_levels(view, terms, self._table.now())


def _levels_by_memory(memory: Remembered, now: TimeBounds) -> Sequence[LevelOfLimit]:
    """Return the levels of a bucket by the limits that it was seen to follow."""
    assert memory.view is not None, "the bucket is cached"
    terms = memory.view.layout.terms
    return (
        combined(list(memory.views().values()), terms, now) if memory.sharded else limit_levels(memory.view, terms, now)
    )
