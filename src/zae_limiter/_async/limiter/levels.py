"""The levels of buckets without a take: for reports, for the statuses of a rejection, and to reject in advance."""

from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter._async.limiter.shard_attempt import AttemptContext
from zae_limiter._async.limiter.shards import ShardClient
from zae_limiter._async.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, Remembered
from zae_limiter.caches.request import AcquireRequest, OwnLimits, Rejected, about
from zae_limiter.core.acquire import LevelOfLimit, is_fresh, is_known_short, limit_levels, statuses
from zae_limiter.core.errors import NoLimitsInForceError, RateLimiterUnavailable
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.view import EffectiveLimits


class BucketLevel(NamedTuple):
    """The limits that a bucket is judged by, and the level of each."""

    terms: EffectiveLimits
    levels: Sequence[LevelOfLimit]


class BucketLevels:
    """Reads levels from the cache while they are fresh, else from the table."""

    def __init__(self, scope: Scope, context: AttemptContext, shards: ShardClient) -> None:
        self._caches = scope.caches
        self._table = scope.table
        self._resolver = context.resolver
        self._buckets = context.buckets
        self._trust_ms = context.first.trust_ms
        self._shards = shards

    def known_rejection(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection that a fresh view of the bucket shows to come, without a call; None if it may admit.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket = request.bucket
        memory = self._caches.buckets.get(bucket)
        if memory is None or memory.view is None:
            return None
        terms = self._resolver.known_terms(bucket, request.own)
        if terms is None:
            return None
        amounts, now = request.amounts(terms), self._table.now()
        if memory.sharded:
            return self._shards.rejected_by_memory(memory, bucket, terms, amounts)
        if not is_known_short(memory.view, terms, amounts, now, self._trust_ms):
            return None
        return Rejected(bucket, terms, limit_levels(memory.view, terms, now), amounts, now, now)

    async def statuses_of(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return the statuses of a bucket for a request that another bucket rejects; a view that is not fresh is read.

        The list is empty if no limits are in force, or if the table does not answer and the bucket was never seen.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket, until_s = request.bucket, request.until_s
        memory = self._caches.of(bucket)
        try:
            terms = await self._resolver.terms(bucket, request.own, until_s)
        except (NoLimitsInForceError, RateLimiterUnavailable):
            return []
        amounts = request.amounts(terms)
        try:
            levels = self._cached_levels(memory, terms) or await self._read_levels(bucket, terms, until_s)
        except RateLimiterUnavailable:
            if memory.view is None:
                return []
            levels = combined(list(memory.views().values()), terms, self._table.now())
        return statuses(bucket, levels, amounts, self._table.now(), self._table.now())

    async def all_levels(self, bucket: BucketId, own: OwnLimits, until_s: float) -> list[BucketLevel]:
        """Read the levels of every bucket that an acquire would take from: the entity's own, then its ancestors'.

        Raises:
            ValidationError: A name or a limit is invalid, or no limits are in force.
            RateLimiterUnavailable: The table did not answer.
        """
        try:
            found = [await self._level_of(bucket, own, until_s)]
        except RateLimiterUnavailable as unavailable:
            raise about(unavailable, bucket) from unavailable.cause
        for above in AcquireRequest(bucket, {}, own, until_s).ancestors(found[0].terms):
            try:
                found.append(await self._level_of(above.bucket, None, until_s))
            except NoLimitsInForceError:
                continue
            except RateLimiterUnavailable as unavailable:
                raise about(unavailable, above.bucket) from unavailable.cause
        return found

    async def _level_of(self, bucket: BucketId, own: OwnLimits, until_s: float) -> BucketLevel:
        terms = await self._resolver.terms(bucket, own, until_s)
        return BucketLevel(terms, await self._read_levels(bucket, terms, until_s))

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

    async def _read_levels(self, bucket: BucketId, terms: EffectiveLimits, until_s: float) -> Sequence[LevelOfLimit]:
        """Read a bucket and return the level of each limit."""
        view = await self._buckets.look((bucket, 0), terms, until_s)
        if view is not None and view.layout.shard_count > 1:
            shards = await self._shards.read_all(bucket, terms, until_s) or {0: view}
            return combined(list(shards.values()), terms, self._table.now())
        return limit_levels(view, terms, self._table.now())
