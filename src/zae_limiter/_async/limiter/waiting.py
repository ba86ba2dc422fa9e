"""Leases that wait for their tokens, in a fair queue for each bucket.

A request whose tokens are not available waits in the queue of the bucket that refused it. Only the first request of a
queue asks the store, when its tokens are expected. So each admission costs one call, however many requests wait.
``caches.waiting`` decides whose turn it is, and ``core.waiting`` in which order.
"""

from collections.abc import Coroutine, Sequence
from contextlib import suppress

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter import cascade
from zae_limiter._async.limiter.lease import BatchedLease, DirectLease, Lease
from zae_limiter._async.limiter.lease_also import BatchedSeveralLease, DirectSeveralLease, SeveralLease
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import AcquireRequest
from zae_limiter.caches.waiting import NOT_ENTERED, SupplyShown, Waiter, WaitingQueues
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import AmountExceedsCapacityError, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.core.waiting import Demand, Queue, Standing, Supply, check_wait, next_ask_s, primary_bucket


class LeaseWaiter(Waiter):
    """How a lease waits: for how long at most, in which queue, and how long it has waited.

    ``bucket_requests`` are the requests to all its buckets, empty while they are not needed. ``refusal`` is the last
    rejection.
    """

    __slots__ = ("bucket_requests", "max_wait_s", "options", "refusal", "waited_s")

    wakeup: runtime.Wakeup

    def __init__(
        self, max_wait_s: float, priority: int, options: Queue, reserve: Reserve | None, wakeup: runtime.Wakeup
    ) -> None:
        super().__init__(priority, reserve, wakeup)
        self.max_wait_s = max_wait_s
        self.options = options
        self.bucket_requests: Sequence[AcquireRequest] = ()
        self.refusal: RateLimitExceeded | None = None
        self.waited_s = 0.0


class WaitingLease(Lease):
    """A lease that waits for its tokens when it is entered."""

    __slots__ = ()

    _is_single = True
    _wait: LeaseWaiter

    def wait(self, max_wait_s: float, priority: int, options: Queue, reserve: Reserve | None) -> "Lease":
        """Choose how the lease waits and what it must leave, None if nothing; before it is entered. Return it."""
        self._wait = LeaseWaiter(max_wait_s, priority, options, reserve, runtime.Wakeup())
        return self

    @property
    def waited(self) -> float:
        """The seconds that the lease has waited for its tokens."""
        return self._wait.waited_s

    @property
    def waiting(self) -> Standing | None:
        """The place of the request among those that wait, and the estimated seconds left; None if it does not wait."""
        return None if self._wait.number == NOT_ENTERED else self._client.queues().standing(self._wait)

    def __aenter__(self) -> Coroutine[object, object, "Lease"]:
        """Take, and wait for the tokens if necessary; or raise."""
        waiter = self._wait
        if waiter.number != NOT_ENTERED:
            raise RuntimeError("a lease can be entered only once; call acquire() again")
        self._check_entry()
        check_wait(waiter.max_wait_s, waiter.priority)
        queues, options, now_s = self._client.queues(), waiter.options, self._client.monotonic_s()
        # The caller's dictionary may change while the request waits.
        self._consume = queues.kept(self._consume)
        waiter.flow = options.flow_of(self._bucket[0])
        if options.weights:
            waiter.weight = options.weight_of(self._bucket[0])
        queues.enter(waiter, now_s, now_s + waiter.max_wait_s)
        # Not awaited here: each frame would be kept while the request waits.
        return self._take_in_turn(waiter, waiter.wakeup)

    async def _take_in_turn(self, waiter: Waiter, wakeup: runtime.Wakeup) -> "Lease":
        """Take now if no request waits for the same buckets, and wait as often as a bucket refuses.

        Raises:
            RateLimitExceeded: The wait cannot end in time, or has ended.
        """
        queues = self._client.queues()
        try:
            bucket = await self._occupied(queues, waiter) if queues else None
            while True:
                if bucket is not None:
                    self._join(queues, waiter, bucket)
                    while wait_s := self._turn_in(queues, waiter):
                        try:
                            await wakeup.wait(wait_s)
                        finally:
                            wakeup.end()
                    bucket = await self._occupied(queues, waiter) if len(queues) > 1 else None
                    if bucket is not None:
                        continue
                try:
                    await super().__aenter__()
                    break
                except RateLimitExceeded as error:
                    bucket = await self._refused(queues, waiter, error)
                    self._taken = None
        except BaseException:
            queues.leave(waiter)
            raise
        queues.admitted(waiter, self._supply)
        if waiter.waited_for is not None:
            self._wait.waited_s = self._client.monotonic_s() - waiter.since_s
        return self

    async def _refused(self, queues: WaitingQueues, waiter: Waiter, error: RateLimitExceeded) -> BucketId:
        """Wait for the bucket that has refused the request, and return it.

        Raises:
            RateLimitExceeded: The wait cannot end in time.
        """
        bucket = primary_bucket(error.statuses)
        if error.never or bucket is None:
            raise error
        self._wait.refusal = error
        if not self._wait.bucket_requests and not (self._is_single and bucket == self._bucket):
            # The take has just read the chain.
            await self._find_parts()
        self._join(queues, waiter, bucket, SupplyShown(self._supply(bucket), next_ask_s(error)))
        return bucket

    def _join(self, queues: WaitingQueues, waiter: Waiter, bucket: BucketId, shown: SupplyShown | None = None) -> None:
        if shown is None and waiter.queue is not None and waiter.queue.bucket == bucket:
            return
        standing = queues.join(waiter, bucket, self._demand_of(bucket), self._wait.options, shown)
        if standing is not None:
            raise self._rejected(waiter, standing, None if shown is None else self._wait.refusal)

    def _turn_in(self, queues: WaitingQueues, waiter: Waiter) -> float:
        """Return the seconds that the request waits before it looks again, 0 if it is its turn.

        Raises:
            RateLimitExceeded: The wait has ended.
        """
        wait_s = queues.turn_in(waiter)
        if wait_s is None:
            raise self._rejected(waiter, queues.standing(waiter) or Standing(1, 0.0), None)
        return wait_s

    def _rejected(self, waiter: Waiter, standing: Standing, refusal: RateLimitExceeded | None) -> RateLimitExceeded:
        """Return the error of a request that cannot wait, or has waited in vain, without a call."""
        if refusal is None:
            parts, levels = self._wait.bucket_requests or [self._request(self._consume)], self._client.levels
            found = [status for part in parts for status in levels.cached_statuses(part)]
            known = () if self._wait.refusal is None else self._wait.refusal.statuses
            refusal = RateLimitExceeded(found or known)
        waited_s = max(0.0, self._client.monotonic_s() - waiter.since_s)
        return refusal.after_wait(waited_s, standing.position, standing.estimate_s)

    def _supply(self, bucket: BucketId) -> Supply:
        return self._client.levels.supply(bucket, self._client.monotonic_s())

    def _demand_of(self, bucket: BucketId) -> Demand:
        """Return what the request takes from a bucket."""
        for part in self._wait.bucket_requests:
            if part.bucket == bucket:
                return part.consume
        return self._consume

    async def _occupied(self, queues: WaitingQueues, waiter: Waiter) -> BucketId | None:
        """Return a bucket of the request for which others wait that go before it; None if there is none.

        Raises:
            ValidationError: The request can never be admitted.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
        """
        known = self._client.caches.limits(self._bucket) if self._is_single and self._own is None else None
        if known is not None and known.links is None and known.is_fresh(self._client.now()[0]):
            # The bucket of the entity is the only one.
            if not queues.goes_before(self._bucket, waiter):
                return None
            terms = known.terms
            if terms is not None and not queues.is_checked(self._consume, terms, waiter.reserve):
                await self._check_amounts(self._requests(), terms)
                queues.note_checked(self._consume, terms, waiter.reserve)
            return self._bucket
        await self._find_parts()
        for part in self._wait.bucket_requests:
            if queues.goes_before(part.bucket, waiter):
                for one in self._wait.bucket_requests:
                    terms = self._client.resolver.known_terms(one.bucket, one.own)
                    if terms is not None:
                        await self._check_amounts([one], terms)
                return part.bucket
        return None

    async def _check_amounts(self, parts: Sequence[AcquireRequest], terms: EffectiveLimits) -> None:
        """Refuse a request that can never be admitted before it waits."""
        try:
            for part in parts:
                part.amounts(terms)
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(self._client, self._requests(), error) from None

    async def _find_parts(self) -> None:
        """Find the requests to all buckets that may refuse this one."""
        # Without the store, the take finds out whether the request is allowed without limiting.
        with suppress(RateLimiterUnavailable):
            self._wait.bucket_requests = await cascade.limited_parts(self._client, self._requests())

    def _requests(self) -> Sequence[AcquireRequest]:
        return [self._request(self._consume)]


class SeveralWaitingLease(WaitingLease, SeveralLease):
    """A lease of several requests that waits for its tokens when it is entered."""

    __slots__ = ()

    _is_single = False
    _asked: Sequence[Also]

    def _requests(self) -> Sequence[AcquireRequest]:
        until_s = self._client.until_s()
        others = [AcquireRequest((one.entity_id, one.resource), one.consume, None, until_s) for one in self._asked]
        return [self._request(self._consume), *(one._replace(reserve=self._reserve) for one in others)]


class WaitingDirectLease(WaitingLease, DirectLease):
    """A lease on an embedded table that waits for its tokens."""

    __slots__ = ()


class WaitingBatchedLease(WaitingLease, BatchedLease):
    """A lease on a networked table that waits for its tokens."""

    __slots__ = ()


class WaitingDirectSeveralLease(SeveralWaitingLease, DirectSeveralLease):
    """A lease of several requests on an embedded table that waits for its tokens."""

    __slots__ = ()


class WaitingBatchedSeveralLease(SeveralWaitingLease, BatchedSeveralLease):
    """A lease of several requests on a networked table that waits for its tokens."""

    __slots__ = ()


KINDS: dict[type[Lease], type[WaitingLease]] = {
    DirectLease: WaitingDirectLease,
    BatchedLease: WaitingBatchedLease,
    DirectSeveralLease: WaitingDirectSeveralLease,
    BatchedSeveralLease: WaitingBatchedSeveralLease,
}
"""The kind of lease that waits, by the kind that does not."""
