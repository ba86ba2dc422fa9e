"""Group commit: while writes to a bucket are in flight, later takes and settlements queue and are sent as one write.

A bucket that no other caller of this process writes to is written at once.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence

from zae_limiter._sync.caches import Bounded, BucketId
from zae_limiter._sync.limiter import cascade
from zae_limiter._sync.limiter.batch_writes import SettlementBatcher, Share, TakeBatcher
from zae_limiter._sync.limiter.networked import NetworkedClient, TakeResult
from zae_limiter._sync.limiter.request import AcquireRequest, Rejected
from zae_limiter._sync.limiter.settle import Owed
from zae_limiter._sync.store.buckets import check_bucket
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.batch import are_amounts
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.view import EffectiveLimits

_BATCHERS = 4096
"""Buckets whose queues are kept, idle or not; one that is forgotten while it is busy ends by itself."""


class BatchedClient(NetworkedClient):
    """Takes from buckets of a networked table and settles with them, together with other callers of the process."""

    def __init__(self, scope: Scope, *, speculative: bool, together: bool) -> None:
        super().__init__(scope, speculative=speculative)
        self._server_time = scope.table.server_time
        self._takes: Bounded[tuple[BucketId, bool], TakeBatcher] = Bounded(_BATCHERS)
        self._settlements: Bounded[tuple[BucketId, str, int | None], SettlementBatcher] = Bounded(_BATCHERS)
        self._together = together

    def renew(self, *, restored: bool) -> None:
        """Wait for nothing, in a copy of the process, that the original has in flight."""
        super().renew(restored=restored)
        self._takes.clear()
        self._settlements.clear()

    def take(self, request: AcquireRequest) -> TakeResult:
        """Take from a bucket, together with others if there are any, and return what admitted it.

        The result includes the parent's if that was taken from too. The rejection may be that of the parent, if its
        view shows that it would reject.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        taken = self._batcher(request).join(request)
        if isinstance(taken, Rejected) and self._server_time is not None and taken.depends_on_the_clock():
            self._server_time.narrow()
        return taken

    def _batcher(self, request: AcquireRequest) -> TakeBatcher:
        """Return the queue of a request. An invalid request gets a queue of its own, so that it fails alone."""
        together = self._together and request.own is None and are_amounts(request.consume)
        key = (request.bucket, request.partly)
        try:
            batcher = self._takes.get(key)
        except TypeError:
            # A name that cannot be hashed is invalid.
            check_bucket(request.bucket)
            raise
        if batcher is None or not together:
            batcher = TakeBatcher(self, together=together)
            if together:
                self._takes.keep(key, batcher)
        elif not batcher.idle:
            self._check(request)
        return batcher

    def settle(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits, until_s: float) -> None:
        """Charge debits and give credits back, together with others if there are any.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may have been given all the same.
        """
        # A bucket that is gone is created again by the limits of the settlement, so a caller's own limits stay apart.
        # Credits of another birth number are for another bucket under the same name.
        key = (bucket, terms.digest, settlement.birth)
        batcher = self._settlements.get(key) if self._together else None
        if batcher is None:
            batcher = SettlementBatcher(self, bucket, together=self._together)
            if self._together:
                self._settlements.keep(key, batcher)
        batcher.join(Share(settlement, terms, until_s))

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with all buckets at the same time; each is tried though another fails."""
        return cascade.settle_in_parallel(self, owed)

    def _check(self, request: AcquireRequest) -> None:
        """Refuse what can never be admitted before it joins a batch; limits that must be read again refuse nothing."""
        known = self.caches.limits(request.bucket)
        if known is not None and known.terms is not None and known.is_fresh(self.now()[0]):
            request.amounts(known.terms)
