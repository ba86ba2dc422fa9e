"""Leases that wait for their tokens, in a fair queue for each bucket.

A request whose tokens are not available waits in the queue of the bucket that refused it. Only the first request of a
queue asks the store, when its tokens are expected. So each admission costs one call, however many requests wait.
``caches.waiting`` decides whose turn it is, and ``core.waiting`` in which order.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import NamedTuple

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.limiter import cascade
from zae_limiter._sync.limiter.lease import BatchedLease, DirectLease, SyncLease
from zae_limiter._sync.limiter.lease_also import BatchedSeveralLease, DirectSeveralLease, SeveralLease
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import AcquireRequest
from zae_limiter.caches.waiting import Shown, Waiter, WaitingQueues
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import AmountExceedsCapacityError, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.waiting import Demand, Queue, Standing, Supply, check_wait, next_ask_s, primary_bucket


class WaitOptions(NamedTuple):
    """For how many seconds a request may wait, with which priority, and in which queue."""

    max_wait_s: float
    priority: int
    queue: Queue


class _Wait:
    """How a lease waits: its place in the queues, None before it is entered, and how long it has waited.

    ``parts`` are the requests to all its buckets, empty while they are not needed. ``refusal`` is the last rejection.
    """

    __slots__ = ("options", "parts", "refusal", "waited_s", "waiter")

    def __init__(self, options: WaitOptions) -> None:
        self.options = options
        self.parts: Sequence[AcquireRequest] = ()
        self.refusal: RateLimitExceeded | None = None
        self.waited_s = 0.0
        self.waiter: Waiter | None = None


class WaitingLease(SyncLease):
    """A lease that waits for its tokens when it is entered."""

    __slots__ = ()

    _wait: _Wait

    def wait(self, options: WaitOptions) -> "SyncLease":
        """Choose how the lease waits, before it is entered, and return it."""
        self._wait = _Wait(options)
        return self

    @property
    def waited(self) -> float:
        """The seconds that the lease has waited for its tokens."""
        return self._wait.waited_s

    @property
    def waiting(self) -> Standing | None:
        """The place of the request among those that wait, and the estimated seconds left; None if it does not wait."""
        return None if self._wait.waiter is None else self._client.queues().standing(self._wait.waiter)

    def __enter__(self) -> "SyncLease":
        """Take, and wait for the tokens if necessary; or raise."""
        if self._wait.waiter is not None:
            raise RuntimeError("a lease can be entered only once; call acquire() again")
        self._check_entry()
        check_wait(self._wait.options.max_wait_s, self._wait.options.priority)
        queues, now_s = self._client.queues(), self._client.monotonic_s()
        self._wait.waiter = waiter = self._new_waiter(queues, now_s)
        try:
            self._take_in_turn(queues, waiter)
        except BaseException:
            queues.leave(waiter)
            raise
        queues.admitted(waiter, self._supply)
        if waiter.bucket is not None:
            self._wait.waited_s = self._client.monotonic_s() - now_s
        return self

    def _new_waiter(self, queues: WaitingQueues, now_s: float) -> Waiter:
        max_wait_s, priority, queue = self._wait.options
        waiter = queues.waiter(runtime.Wakeup(), priority, now_s, now_s + max_wait_s)
        waiter.flow, waiter.weight = queue.flow_of(self._bucket[0]), queue.weight_of(self._bucket[0])
        return waiter

    def _take_in_turn(self, queues: WaitingQueues, waiter: Waiter) -> None:
        """Take now if no request waits for the same buckets, and wait as often as a bucket refuses.

        Raises:
            RateLimitExceeded: The wait cannot end in time, or has ended.
        """
        bucket = self._occupied(queues, waiter) if queues else None
        while True:
            if bucket is not None:
                if waiter.queue is None or waiter.queue.bucket != bucket:
                    self._join(queues, waiter, bucket)
                self._wait_for_turn(queues, waiter)
                if len(queues) > 1:
                    bucket = self._occupied(queues, waiter)
                    if bucket is not None:
                        continue
            try:
                super().__enter__()
            except AmountExceedsCapacityError:
                raise
            except RateLimitExceeded as error:
                bucket = self._refused(queues, waiter, error)
                self._taken = None
            else:
                return

    def _refused(self, queues: WaitingQueues, waiter: Waiter, error: RateLimitExceeded) -> BucketId:
        """Wait for the bucket that has refused the request, and return it.

        Raises:
            RateLimitExceeded: The wait cannot end in time.
        """
        bucket = primary_bucket(error.statuses)
        if bucket is None:
            raise error
        self._wait.refusal = error
        if not self._wait.parts and (bucket != self._bucket or len(self._requests()) > 1):
            # The chain was just read by the take.
            self._wait.parts = self._find_parts()
        shown = Shown(self._supply(bucket), next_ask_s(error))
        self._join(queues, waiter, bucket, shown)
        return bucket

    def _join(self, queues: WaitingQueues, waiter: Waiter, bucket: BucketId, shown: Shown | None = None) -> None:
        standing = queues.join(waiter, bucket, self._demand_of(bucket), self._wait.options.queue, shown)
        if waiter.queue is None:
            raise self._rejected(waiter, standing, self._wait.refusal if shown is not None else None)

    def _wait_for_turn(self, queues: WaitingQueues, waiter: Waiter) -> None:
        wakeup = waiter.wakeup
        assert isinstance(wakeup, runtime.Wakeup), "it was made for this lease"
        while True:
            wait_s = queues.turn_in(waiter)
            if wait_s is None:
                standing = queues.standing(waiter) or Standing(1, 0.0)
                raise self._rejected(waiter, standing, None)
            if wait_s <= 0:
                return
            wakeup.wait(wait_s)

    def _rejected(self, waiter: Waiter, standing: Standing, refusal: RateLimitExceeded | None) -> RateLimitExceeded:
        """Return the error of a request that cannot wait, or has waited in vain, without a call."""
        if refusal is None:
            found = [status for part in self._wait.parts for status in self._client.levels.cached_statuses(part)]
            known = () if self._wait.refusal is None else self._wait.refusal.statuses
            refusal = RateLimitExceeded(found or known)
        waited_s = max(0.0, self._client.monotonic_s() - waiter.since_s)
        return refusal.after_wait(waited_s, standing.position, standing.estimate_s)

    def _supply(self, bucket: BucketId) -> Supply:
        return self._client.levels.supply(bucket, self._client.monotonic_s())

    def _demand_of(self, bucket: BucketId) -> Demand:
        """Return what the request takes from a bucket."""
        for part in self._wait.parts:
            if part.bucket == bucket:
                return part.consume
        return self._consume

    def _occupied(self, queues: WaitingQueues, waiter: Waiter) -> BucketId | None:
        """Return a bucket of the request for which others wait that go before it; None if there is none.

        Raises:
            ValidationError: The request can never be admitted.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
        """
        try:
            self._wait.parts = self._find_parts()
        except RateLimiterUnavailable:
            # The take finds out whether the request is allowed without limiting.
            return None
        for part in self._wait.parts:
            if queues.goes_before(part.bucket, waiter):
                self._check_amounts()
                return part.bucket
        return None

    def _check_amounts(self) -> None:
        """Refuse a request that can never be admitted before it waits, if the limits are cached."""
        for part in self._wait.parts:
            terms = self._client.resolver.known_terms(part.bucket, part.own)
            if terms is not None:
                try:
                    part.amounts(terms)
                except AmountExceedsCapacityError as error:
                    raise cascade.never_admitted(self._client, self._requests(), error) from None

    def _find_parts(self) -> Sequence[AcquireRequest]:
        """Return the requests to all buckets that may refuse this one."""
        requests = self._requests()
        client = self._client
        if len(requests) == 1 and self._own is None and client.caches.is_alone(self._bucket, client.now()[0]):
            return requests
        return cascade.limited_parts(client, requests)

    def _requests(self) -> Sequence[AcquireRequest]:
        return [self._request(self._consume)]


class SeveralWaitingLease(WaitingLease, SeveralLease):
    """A lease of several requests that waits for its tokens when it is entered."""

    __slots__ = ()

    _asked: Sequence[Also]

    def _requests(self) -> Sequence[AcquireRequest]:
        until_s = self._client.until_s()
        others = [AcquireRequest((one.entity_id, one.resource), one.consume, None, until_s) for one in self._asked]
        return [self._request(self._consume), *others]


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


KINDS: dict[type[SyncLease], type[WaitingLease]] = {
    DirectLease: WaitingDirectLease,
    BatchedLease: WaitingBatchedLease,
    DirectSeveralLease: WaitingDirectSeveralLease,
    BatchedSeveralLease: WaitingBatchedSeveralLease,
}
"""The kind of lease that waits, by the kind that does not."""
