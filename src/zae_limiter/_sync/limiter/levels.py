"""The levels of buckets without a take: for reports, for the statuses of a rejection, and to reject in advance."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter._sync.limiter.chains import ChainReader
from zae_limiter._sync.limiter.shard_attempt import AttemptContext
from zae_limiter._sync.limiter.shards import ShardClient
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, Remembered
from zae_limiter.caches.request import AcquireRequest, OwnLimits, Rejected, about
from zae_limiter.core.acquire import amounts_of, is_fresh, is_known_short, requested_amounts
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    NoLimitsInForceError,
    RateLimiterUnavailable,
)
from zae_limiter.core.levels import LevelOfLimit, held_statuses, held_statuses_of, lacks, limit_levels, statuses
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import with_floors
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
        waits = [self.levels[at].wait_ms(milli, now) for at, milli in amounts if lacks(self.levels[at], milli, now)]
        return max(waits, default=0)


class AllLevels(NamedTuple):
    """The levels of all buckets of an acquire, and the error if the entity is blocked, None if it is not."""

    levels: Sequence[BucketLevel]
    blocked: EntityBlockedError | None


class _Asked(NamedTuple):
    """A bucket, the limits that it is judged by, what is asked of it, until when, and what the request must leave."""

    bucket: BucketId
    terms: EffectiveLimits
    amounts: Amounts
    until_s: float
    reserve: Reserve | None


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
            return self._shards.rejected_by_memory(memory, request, terms, amounts)
        decided = with_floors(memory.view, terms, amounts, request.reserve)
        if not is_known_short(memory.view, terms, decided, now, self._trust_ms):
            return None
        return Rejected(bucket, terms, memory.view, amounts, now, now, None, request.reserve)

    def statuses_of(self, requests: Sequence[AcquireRequest]) -> list[list[LimitStatus]]:
        """Return the statuses of buckets for a request that others reject; views that are not fresh are read.

        The list of a bucket is empty if no limits are in force, or if they are unknown because the table does not
        answer.

        Raises:
            ValidationError: A bucket can never admit the request.
        """
        asked = []
        for request in requests:
            asked.append(self._asked(request, request.amounts))
        return self._statuses(asked)

    def statuses_of_too_much(self, requests: Sequence[AcquireRequest]) -> list[list[LimitStatus]]:
        """Return the statuses of buckets for a request that one can never admit; views that are not fresh are read.

        The list of a bucket is empty if no limits are in force, or if they are unknown because the table does not
        answer.
        """
        asked = []
        for request in requests:
            asked.append(self._asked(request, request.requested))
        known = self._statuses(asked)
        return [found or self._statuses_of_full(request) for request, found in zip(requests, known, strict=True)]

    def _statuses_of_full(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return the statuses of a bucket that was never seen, and counts as full: the table does not answer."""
        terms = self._resolver.known_terms(request.bucket, request.own)
        if terms is None:
            return []
        now = self._table.now()
        levels = limit_levels(None, terms, now)
        return statuses(request.bucket, levels, request.requested(terms), now, now, request.reserve)

    def _asked(self, request: AcquireRequest, amounts_by: Callable[[EffectiveLimits], Amounts]) -> _Asked | None:
        """Return what a request asks of a bucket, None if no limits are in force or if they are unknown."""
        bucket, until_s, known = request.bucket, request.until_s, request.known
        try:
            terms = known.terms if known is not None else self._resolver.terms(bucket, request.own, until_s)
        except (NoLimitsInForceError, RateLimiterUnavailable):
            return None
        return _Asked(bucket, terms, amounts_by(terms), until_s, request.reserve)

    def _statuses(self, asked: Sequence[_Asked | None]) -> list[list[LimitStatus]]:
        """Return the statuses of each bucket, an empty list for None; views that are not fresh are read in one call."""
        levels = {one.bucket: self._cached_levels(one.bucket, one.terms) for one in asked if one is not None}
        stale = [one for one in asked if one is not None and levels[one.bucket] is None]
        if stale:
            try:
                buckets = [(one.bucket, one.terms) for one in stale]
                read: Sequence[Sequence[LevelOfLimit] | None] = self._read_levels(buckets, stale[0].until_s)
            except RateLimiterUnavailable:
                read = [self._last_levels(one.bucket, one.terms) for one in stale]
            levels.update(zip((one.bucket for one in stale), read, strict=True))
        found: list[list[LimitStatus]] = []
        for one in asked:
            known = None if one is None else levels[one.bucket]
            now = self._table.now()
            found.append(
                [] if one is None or known is None else statuses(one.bucket, known, one.amounts, now, now, one.reserve)
            )
        return found

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
        now, terms = self._table.now(), memory.view.layout.seen_terms
        levels = _levels_by_memory(memory, now)
        return statuses(request.bucket, levels, request.requested(terms), now, now, request.reserve)

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
        found: list[tuple[BucketId, EffectiveLimits]] = []
        bucket = requests[0].bucket
        try:
            for one in requests:
                bucket = one.bucket
                try:
                    known = one.known
                    terms = known.terms if known is not None else self._resolver.terms(bucket, one.own, until_s)
                except NoLimitsInForceError:
                    if not one.partly:
                        raise
                    continue
                found.append((bucket, terms))
            levels = self._read_levels(found, until_s)
        except RateLimiterUnavailable as unavailable:
            raise about(unavailable, bucket, self._stack_name) from unavailable.cause
        return [BucketLevel(*one, read) for one, read in zip(found, levels, strict=True)]

    def _cached_levels(self, bucket: BucketId, terms: EffectiveLimits) -> Sequence[LevelOfLimit] | None:
        """Return the levels of a bucket by fresh views; None if it must be read."""
        memory, now = self._caches.of(bucket), self._table.now()
        if memory.sharded:
            views = self._shards.fresh_views(memory, terms)
            return None if views is None else combined(views, terms, now)
        view = memory.view
        if view is None or not is_fresh(view, terms, now[1], self._trust_ms):
            return None
        return limit_levels(view, terms, now)

    def _last_levels(self, bucket: BucketId, terms: EffectiveLimits) -> Sequence[LevelOfLimit] | None:
        """Return the levels of a bucket by its views, however old; None if there are none."""
        views = list(self._caches.of(bucket).views().values())
        return combined(views, terms, self._table.now()) if views else None

    def _read_levels(
        self, buckets: Sequence[tuple[BucketId, EffectiveLimits]], until_s: float
    ) -> list[Sequence[LevelOfLimit]]:
        """Read buckets in one call, and return the level of each limit. The shards of one are read in a further call.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        found: list[Sequence[LevelOfLimit]] = []
        views = self._buckets.look_at_all(buckets, until_s)
        for (bucket, terms), view in zip(buckets, views, strict=True):
            if view is not None and view.layout.shard_count > 1:
                shards = self._shards.read_all(bucket, terms, until_s) or {0: view}
                found.append(combined(list(shards.values()), terms, self._table.now()))
            else:
                found.append(limit_levels(view, terms, self._table.now()))
        return found


def _levels_by_memory(memory: Remembered, now: TimeBounds) -> Sequence[LevelOfLimit]:
    """Return the levels of a bucket by the limits that it was seen to follow."""
    assert memory.view is not None, "the bucket is cached"
    terms = memory.view.layout.seen_terms
    return (
        combined(list(memory.views().values()), terms, now) if memory.sharded else limit_levels(memory.view, terms, now)
    )
