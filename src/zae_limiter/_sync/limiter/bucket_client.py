"""What every client of a bucket does: evaluate views, report levels, and take in more than one step.

``core.acquire`` decides the next step. ``ShardAttempt`` carries several steps out on one shard, and ``ShardClient``
takes from several shards. The hot paths are in ``direct`` and ``networked``.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Iterator, Sequence

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.caches import BucketId, Remembered
from zae_limiter._sync.limiter.availability import chosen
from zae_limiter._sync.limiter.pair import ChildTaken, FirstTouch, Paired, PlannedTake
from zae_limiter._sync.limiter.request import AcquireRequest, Rejected, about
from zae_limiter._sync.limiter.resolve import NoLimitsInForceError, OwnLimits, Resolver
from zae_limiter._sync.limiter.settle import Owed, Settler
from zae_limiter._sync.limiter.shard_attempt import AttemptContext, ShardAttempt
from zae_limiter._sync.limiter.shard_attempt import AttemptResult as ShardVerdict
from zae_limiter._sync.limiter.shards import ShardClient
from zae_limiter._sync.limiter.top_ups import TopUps
from zae_limiter._sync.store.buckets import BucketStore, check_bucket
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.acquire import (
    LevelOfLimit,
    Progress,
    covers,
    is_fresh,
    is_known_short,
    limit_levels,
    statuses,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.outcome import Throttled
from zae_limiter.core.status import LimitStatus, OnUnavailable
from zae_limiter.core.view import EffectiveLimits, Grant
from zae_limiter.process import renew_in_copies

_UNKNOWN = Remembered()
"""What is remembered of a bucket that was never used. Nothing is ever kept in it."""

_TO_GIVE_BACK = 1 / 8
"""The part of a deadline that is kept for giving back to one bucket where another then gives nothing."""


class BucketClient:
    """The part that clients of embedded and of networked tables share."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        self._scope = scope
        self.buckets = BucketStore(scope)
        self.resolver = Resolver(scope)
        self.now = scope.table.now
        self.nonces: Iterator[int] = scope.client.nonces.current
        self.monotonic_s = scope.client.clock.monotonic_s
        self._deadline_s = scope.settings.deadline_s
        self._configs = ConfigStore(scope)
        self.parallel = scope.client.parallel
        self._write = scope.table.write
        self._remembered = scope.caches.buckets
        self.caches = scope.caches
        self._first = Progress(trust_ms=scope.settings.reject_locally_ms, look_first=not speculative)
        self._top_ups = TopUps(scope.table, self.monotonic_s)
        self._means = AttemptContext(scope.table, self.buckets, self.resolver, scope.client.nonces, self._top_ups)
        self.shards = ShardClient(scope, self._means, self._first)
        self.settler = Settler(scope, self._means, self.shards)
        self._splits = self.buckets.splits
        self.lease_mutex = runtime.Mutex()
        self._first_touch = FirstTouch(self._means, self._configs, self._first)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Become the client of a copy of the process: threads that held a lock or led a group are not in it."""
        nonces = self._scope.client.nonces
        nonces.renew(restored=restored)
        self.nonces = nonces.current
        self.lease_mutex = runtime.Mutex()
        self.shards.renew()
        self._top_ups.pending.clear()

    def cascading_limits(self, bucket: BucketId) -> EffectiveLimits | None:
        """Return the limits of a bucket that is taken from together with its parent; None: one after the other."""
        raise NotImplementedError

    def take(self, request: AcquireRequest) -> Grant | Paired | ChildTaken | Rejected:
        """Take from a bucket and return what admitted it, or the rejection.

        The rejection may be that of the parent, if its view shows that it would reject.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        raise NotImplementedError

    def carry_out(self, planned: PlannedTake) -> Grant | Rejected:
        """Take from a parent as it was planned when its child was taken, and return what admitted it.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        raise NotImplementedError

    def settle(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits, until_s: float) -> None:
        """Charge debits and give credits back.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may have been given all the same.
        """
        raise NotImplementedError

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with several buckets; each is tried though another fails."""
        raise NotImplementedError

    def rejected_above(
        self, terms: EffectiveLimits, resource: str, consume: dict[str, int], now: TimeBounds | None = None
    ) -> Rejected | None:
        """Return the rejection that a fresh view of the parent's bucket shows to come; None if it may admit.

        Before the child is written: a child that is taken from in vain costs two writes.

        Raises:
            ValidationError: The parent can never admit the request.
        """
        bucket = (terms.parent_id or "", resource)
        view = self.buckets.remembered(bucket)
        if view is None or covers(view, consume, (now or self.now())[0]):
            return None
        return self.rejected_by_view(AcquireRequest(bucket, consume, None, 0.0, partly=True))

    def rejected_by_view(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection that a fresh view of the bucket shows to come, without a call; None if it may admit.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket = request.bucket
        memory = self._remembered.get(bucket)
        if memory is None or memory.view is None:
            return None
        terms = self.resolver.known_terms(bucket, request.own)
        if terms is None:
            return None
        amounts, now = request.amounts(terms), self.now()
        if memory.sharded:
            return self.shards.rejected_by_memory(memory, bucket, terms, amounts)
        if not is_known_short(memory.view, terms, amounts, now, self._first.trust_ms):
            return None
        return Rejected(bucket, terms, limit_levels(memory.view, terms, now), amounts, now, now)

    def statuses_of(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return how a bucket compares with a request that another bucket rejects; a view that is not fresh is read.

        Nothing if no limits are in force, or if the table does not answer and the bucket was never seen.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket, until_s = request.bucket, request.until_s
        memory = self.caches.of(bucket)
        try:
            terms = self.resolver.terms(bucket, request.own, until_s)
        except (NoLimitsInForceError, RateLimiterUnavailable):
            return []
        amounts = request.amounts(terms)
        try:
            stands = self._stands_in_memory(memory, terms) or self._stands_now(bucket, terms, until_s)
        except RateLimiterUnavailable:
            if memory.view is None:
                return []
            stands = combined(list(memory.views().values()), terms, self.now())
        return statuses(bucket, stands, amounts, self.now(), self.now())

    def _stands_in_memory(self, memory: Remembered, terms: EffectiveLimits) -> Sequence[LevelOfLimit] | None:
        """Return how the limits of a bucket stand by fresh views; None if it must be read."""
        now = self.now()
        if memory.sharded:
            views = self.shards.fresh_views(memory, terms)
            return None if views is None else combined(views, terms, now)
        view = memory.view
        if view is None or not is_fresh(view, terms, now[1], self._first.trust_ms):
            return None
        return limit_levels(view, terms, now)

    def _run(
        self, shard_attempt: ShardAttempt, request: AcquireRequest, verdict: ShardVerdict | None = None
    ) -> Grant | Rejected:
        """Run an attempt on shard 0 to its end, and continue on the other shards if there are any."""
        while True:
            verdict = shard_attempt.run() if verdict is None else verdict
            sharded = shard_attempt.view is not None and shard_attempt.view.layout.shard_count > 1
            if isinstance(verdict, Grant):
                if self._splits:
                    self.shards.watch((request.bucket, 0), shard_attempt.view, request.until_s)
                return verdict
            if isinstance(verdict, Rejected) and not sharded:
                return verdict
            if isinstance(verdict, Throttled):
                self.shards.relieve_and_wait((request.bucket, 0), shard_attempt.terms, request.until_s, verdict)
                sharded = self.caches.of(request.bucket).sharded
            if sharded:
                return self.shards.take(request, shard_attempt.terms)
            shard_attempt, verdict = ShardAttempt(self._means, request, shard_attempt.terms, self._first), None

    def _take_cold(self, request: AcquireRequest) -> Grant | Rejected:
        """Take from a bucket whose limits are not cached; if its view is not cached either, read both in one call."""
        bucket, own, until_s = request.bucket, request.own, request.until_s
        check_bucket(bucket)
        first = self._first
        if self.buckets.remembered(bucket) is not None or self.resolver.is_known(bucket):
            terms = self.resolver.terms(bucket, own, until_s)
        else:
            terms, first = (self._first_touch.meet(request)).terms, first.after_look()
        rejected = self._evaluate_ancestors(request, terms)
        if rejected is not None:
            return rejected
        if self.caches.of(bucket).sharded:
            return self.shards.take(request, terms)
        return self._run(ShardAttempt(self._means, request, terms, first), request)

    def _evaluate_ancestors(self, request: AcquireRequest, terms: EffectiveLimits) -> Rejected | None:
        """Return the rejection by an ancestor that is evaluated with this bucket; None if it may be admitted.

        Here None: the cascade evaluates all views before it takes from any bucket.
        """
        return None

    def choice(self, asked: object) -> OnUnavailable:
        """Return what to do while the store is unavailable."""
        return chosen(asked, self._scope)

    def see_through(self, settling: Callable[[], None]) -> None:
        """Settle once, to the end, even if the caller is cancelled."""
        runtime.finish_in_place(settling)

    def until_s(self) -> float:
        """Return when the store must have answered what is begun now, by the clock that never goes back."""
        return self.monotonic_s() + self._deadline_s

    def with_time_to_give_back(self, request: AcquireRequest) -> AcquireRequest:
        """Return the same request, to be answered early enough to be undone by the time it is to be answered."""
        return request._replace(until_s=request.until_s - self._deadline_s * _TO_GIVE_BACK)

    def limit_levels(self, bucket: BucketId, own: OwnLimits) -> tuple[Sequence[LevelOfLimit], EffectiveLimits]:
        """Look at a bucket and return how its limits stand, and the terms."""
        until_s = self.until_s()
        try:
            terms = self.resolver.terms(bucket, own, until_s)
            return self._stands_now(bucket, terms, until_s), terms
        except RateLimiterUnavailable as away:
            raise about(away, bucket) from away.cause

    def limit_levels_above(
        self, terms: EffectiveLimits, resource: str
    ) -> tuple[Sequence[LevelOfLimit], EffectiveLimits] | None:
        """Look at the parent's bucket as ``limit_levels`` does; None if an acquire would not take from it."""
        if not terms.cascade or terms.parent_id is None:
            return None
        try:
            return self.limit_levels((terms.parent_id, resource), None)
        except NoLimitsInForceError:
            return None

    def _stands_now(self, bucket: BucketId, terms: EffectiveLimits, until_s: float) -> Sequence[LevelOfLimit]:
        """Read a bucket and return how its limits stand."""
        view = self.buckets.look((bucket, 0), terms, until_s)
        if view is not None and view.layout.shard_count > 1:
            shards = self.shards.read_all(bucket, terms, until_s) or {0: view}
            return combined(list(shards.values()), terms, self.now())
        return limit_levels(view, terms, self.now())
