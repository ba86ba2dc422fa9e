"""The queues of requests that wait for a bucket: who may ask the store next, and who is woken. Nothing here waits.

All limiters of a namespace in this process share the queues, also those of several event loops or threads. Only the
first request of a queue asks the store. It is woken when its tokens are expected, or when the bucket has changed.
"""

import threading
from collections.abc import Callable
from itertools import count
from math import inf
from typing import NamedTuple, Protocol

from zae_limiter.caches.buckets import BucketId
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.core.waiting import Demand, Queue, Standing, Supply, cost_of, exceeds_capacity, supply_after, wait_s
from zae_limiter.core.waiting_line import WaitingLine, WaitingRequest
from zae_limiter.process import renew_in_copies

LATE_S = 0.05
"""A turn that comes at most this many seconds after the end of the wait still counts: timers fire late."""

_LOST_AFTER_S = 1.0
"""A request that has not used its turn for this many seconds is passed over: its loop or thread does not run."""


NOT_ENTERED = -1
"""The number of a request that has not arrived."""

_NOTHING: Demand = {}


class Wakes(Protocol):
    """The wait of a request, which other requests may end."""

    def wake_in(self, seconds: float) -> None:
        """End the wait after this many seconds."""


class Waiter(WaitingRequest):
    """A request that waits, or is about to. ``queue`` is the queue that it waits in, None if there is none.

    ``waited_for`` is the bucket that it waits for or has waited for last, None if it never did.
    ``yields`` is True while it may leave its turn to requests that wait longer for another of its buckets.
    """

    __slots__ = ("queue", "waited_for", "wakeup", "yields")

    def __init__(self, priority: int, reserve: Reserve | None, wakeup: Wakes) -> None:
        super().__init__(NOT_ENTERED, priority, 0.0, 0.0, _NOTHING, reserve)
        self.wakeup = wakeup
        self.waited_for: BucketId | None = None
        self.queue: BucketQueue | None = None
        self.yields = True


class SupplyShown(NamedTuple):
    """What the rejection of a request has shown of the bucket: its supply, and the seconds until it may be admitted."""

    supply: Supply
    retry_after_s: float


class BucketQueue:
    """The requests that wait for one bucket.

    ``asking`` asks the store, since ``since_s``; None if no request does. Then the first is due at ``since_s``.
    ``has_changed`` is True if the bucket has changed since a request asked, and ``stale`` if it has changed since
    ``supply`` was seen. ``ready`` is the request that was rejected last, and when it is admitted.
    """

    __slots__ = ("asking", "bucket", "has_changed", "line", "ready", "since_s", "stale", "supply")

    def __init__(self, bucket: BucketId) -> None:
        self.bucket = bucket
        self.line: WaitingLine[Waiter] = WaitingLine()
        self.supply: Supply = {}
        self.asking: Waiter | None = None
        self.has_changed = self.stale = False
        self.ready: tuple[Waiter, float] | None = None
        self.since_s = 0.0

    def ready_in(self, waiter: Waiter, now_s: float) -> float:
        """Return the seconds until the first request is expected to be admitted."""
        if self.has_changed:
            return 0.0
        if self.ready is not None and self.ready[0] is waiter:
            return max(0.0, self.ready[1] - now_s)
        return wait_s(self.supply, {}, waiter.consume, now_s, waiter.reserve)

    def standing(self, waiter: Waiter, now_s: float) -> Standing:
        """Return the place of a request, and the estimate of its wait."""
        requests, demand = self.line.ahead(waiter)
        if not requests:
            return Standing(1, self.ready_in(waiter, now_s))
        return Standing(requests + 1, wait_s(self.supply, demand, waiter.consume, now_s, waiter.reserve))

    def ends_in(self, left_s: float, waiter: Waiter, now_s: float) -> bool:
        """Return whether a request can be admitted within ``left_s`` seconds, by the estimate of its wait."""
        if left_s == inf:
            return True
        total = self.line.total()
        if total is not None and self.line.first() is not waiter:
            # What all requests ask for is no less than what is ahead of this one, and known without a look at them.
            longest = 0.0
            for name, amount in waiter.consume.items():
                limit = self.supply.get(name)
                if limit is not None and amount:
                    floor_milli = 0 if waiter.reserve is None else limit.floor_milli(waiter.reserve)
                    longest = max(longest, limit.wait_s(total[name] * 1000 + floor_milli, now_s))
            if longest <= left_s:
                return True
        return self.standing(waiter, now_s).estimate_s <= left_s


class WaitingQueues:
    """The queues of one namespace, one for each bucket that has refused a request that waits now."""

    def __init__(self, monotonic_s: Callable[[], float], deadline_s: float) -> None:
        self._now_s = monotonic_s
        # An ask takes at most a deadline, and a part of it to give back what some buckets have given.
        self._ask_s = 2 * deadline_s + _LOST_AFTER_S
        self._queues: dict[BucketId, BucketQueue] = {}
        self._numbers = count()
        self._last_consume: dict[str, int] = {}
        # The amounts, limits and reserve that were checked last: requests in a row have the same.
        self._checked: tuple[object, object, object] = (None, None, None)
        # Reentrant: a thread that is interrupted while it holds the lock can still enter again.
        self._mutex = threading.RLock()
        self.closed = False
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Drop all queues in a forked child, whose parent has the waiting requests; wake them in a restored copy."""
        self._mutex = threading.RLock()
        if restored:
            self.changed_all()
        else:
            self._queues = {}

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    def waiting(self, bucket: BucketId) -> int:
        """Return how many requests wait for a bucket."""
        queue = self._queues.get(bucket)
        return 0 if queue is None else queue.line.count

    def enter(self, waiter: Waiter, since_s: float, ends_s: float) -> None:
        """Let a request arrive that may wait. It has its place in the order of arrival from now on."""
        waiter.number, waiter.since_s, waiter.ends_s = next(self._numbers), since_s, ends_s

    def kept(self, consume: dict[str, int]) -> dict[str, int]:
        """Return a copy of amounts, which is never changed. Requests in a row for equal amounts share it."""
        last = self._last_consume
        if consume == last:
            for amount in consume.values():
                # True equals 1, but is no amount.
                if type(amount) is not int:
                    break
            else:
                return last
        self._last_consume = last = consume.copy()
        return last

    def is_checked(self, consume: Demand, terms: EffectiveLimits, reserve: Reserve | None) -> bool:
        """Return whether a request is known to be valid, because the last one that was checked asked for the same."""
        amounts, limits, left = self._checked
        return amounts is consume and limits is terms and left is reserve

    def note_checked(self, consume: Demand, terms: EffectiveLimits, reserve: Reserve | None) -> None:
        """Note that a request for amounts from ``kept`` is valid."""
        self._checked = consume, terms, reserve

    def goes_before(self, bucket: BucketId, waiter: Waiter) -> bool:
        """Return whether requests wait for a bucket, of which another one is due before this request.

        A request that does not wait yet goes after all that do, except those that must leave a larger reserve. One that
        waits for another bucket goes after those that precede it.
        """
        with self._mutex:
            queue = self._queues.get(bucket)
            first = None if queue is None or queue is waiter.queue else queue.line.first()
            if first is None:
                return False
            if waiter.queue is None:
                return first.reserved <= waiter.reserved
            return waiter.yields and first.precedes(waiter)

    def join(
        self, waiter: Waiter, bucket: BucketId, consume: Demand, options: Queue, shown: SupplyShown | None = None
    ) -> Standing | None:
        """Let a request wait for a bucket. If it cannot wait, return what its standing would be; None if it waits.

        It keeps its place in the order of arrival. ``shown`` is what the rejection by this bucket has shown; None if
        the request waits only because others do.
        """
        with self._mutex:
            now_s = self._now_s()
            queue = self._queues.get(bucket)
            if queue is None:
                self._queues[bucket] = queue = BucketQueue(bucket)
            if shown is not None:
                queue.supply, queue.stale = shown.supply, False
            waiter.yields = shown is not None
            moves = waiter.queue is not queue
            if moves:
                if queue.line.count and now_s > queue.since_s + _LOST_AFTER_S:
                    self._pass_over_lost(queue, now_s)
                if waiter.queue is not None:
                    self._leave(waiter, now_s)
                waiter.consume = consume
                waiter.queue, waiter.waited_for = queue, bucket
                queue.line.join(waiter, cost_of(queue.supply, consume))
                fits = queue.line.count <= options.max_waiting
            else:
                self._end_turn(queue, waiter)
                fits = True
            if shown is not None and queue.line.first() is waiter:
                queue.ready = waiter, now_s + shown.retry_after_s
            fits = fits and queue.ends_in(waiter.ends_s - now_s, waiter, now_s)
            # The cost is the largest part of a capacity, as of the time when the request has joined.
            is_large = shown is not None or waiter.cost >= 1 or waiter.reserve is not None
            if not fits or self.closed or (is_large and exceeds_capacity(queue.supply, consume, waiter.reserve)):
                standing = queue.standing(waiter, now_s)
                self._leave(waiter, now_s)
                return standing
            if queue.line.first() is not waiter and (shown is not None or not moves):
                # The first request is due at another time, by what the rejection has shown.
                queue.ready = None
                self._wake_first(queue, now_s)
            return None

    def turn_in(self, waiter: Waiter) -> float | None:
        """Return the seconds that a request waits before it calls this again; 0 if it has to ask the store now.

        None if its wait has ended.
        """
        with self._mutex:
            now_s = self._now_s()
            if self.closed:
                # The store raises the error.
                return 0.0
            queue = waiter.queue or self._rejoined(waiter)
            first = queue.line.first()
            if first is not waiter or queue.asking is not None:
                if now_s > queue.since_s + _LOST_AFTER_S:
                    self._pass_over_lost(queue, now_s)
                    first = queue.line.first()
            elif self._takes_turn(queue, waiter, now_s):
                return 0.0
            left_s = waiter.ends_s - now_s
            if left_s <= 0:
                return None
            if first is waiter and queue.asking is None:
                wait = queue.ready_in(waiter, now_s)
                queue.since_s = now_s + wait
                # A queue that was passed on to this request may be ready now.
                return max(1e-6, min(left_s, wait))
            return left_s

    def _takes_turn(self, queue: BucketQueue, waiter: Waiter, now_s: float) -> bool:
        if queue.ready_in(waiter, now_s) > 0 or now_s > waiter.ends_s + LATE_S:
            return False
        queue.asking, queue.since_s, queue.has_changed, queue.ready = waiter, now_s, False, None
        return True

    def _rejoined(self, waiter: Waiter) -> BucketQueue:
        """Let a request wait again that was passed over, because its loop or thread did not run."""
        assert waiter.waited_for is not None, "it has waited before"
        queue = self._queues.get(waiter.waited_for)
        if queue is None:
            self._queues[waiter.waited_for] = queue = BucketQueue(waiter.waited_for)
            # Nothing is known of the bucket, so it asks.
            queue.has_changed = queue.stale = True
        waiter.queue = queue
        queue.line.join(waiter, cost_of(queue.supply, waiter.consume))
        return queue

    def admitted(self, waiter: Waiter, supply_of_bucket: Callable[[BucketId], Supply]) -> None:
        """Note that a request was admitted, and let the next one continue.

        ``supply_of_bucket`` returns what is cached of a bucket. It is called if the bucket has changed.
        """
        with self._mutex:
            queue = waiter.queue
            if queue is not None:
                now_s = self._now_s()
                if queue.stale:
                    queue.supply, queue.stale = supply_of_bucket(queue.bucket), False
                else:
                    queue.supply = supply_after(queue.supply, waiter.consume, now_s)
                queue.line.admit(waiter)
                self._left(queue, waiter, now_s)

    def leave(self, waiter: Waiter) -> None:
        """Remove a request that does not wait any more, and let the next one continue."""
        with self._mutex:
            self._leave(waiter, self._now_s())

    def standing(self, waiter: Waiter) -> Standing | None:
        """Return where a request waits, None if it does not."""
        with self._mutex:
            return None if waiter.queue is None else waiter.queue.standing(waiter, self._now_s())

    def changed(self, bucket: BucketId) -> None:
        """Let the first request for a bucket ask again, because its tokens or its limits have changed."""
        if bucket in self._queues:
            with self._mutex:
                queue = self._queues.get(bucket)
                if queue is not None:
                    queue.has_changed = queue.stale = True
                    self._wake_first(queue, self._now_s())

    def changed_all(self) -> None:
        """Let the first request of every queue ask again."""
        for bucket in list(self._queues):
            self.changed(bucket)

    def close(self) -> None:
        """Let every request ask now, because the table is closed and refuses them."""
        with self._mutex:
            self.closed = True
            for queue in self._queues.values():
                for one in queue.line:
                    one.wakeup.wake_in(0.0)

    def _leave(self, waiter: Waiter, now_s: float) -> None:
        queue = waiter.queue
        if queue is not None:
            queue.line.leave(waiter)
            self._left(queue, waiter, now_s)

    def _left(self, queue: BucketQueue, waiter: Waiter, now_s: float) -> None:
        waiter.queue = None
        if queue.asking is waiter and queue.stale:
            # It has not shown the bucket as it is since the change, so the next request asks.
            queue.has_changed = True
        self._end_turn(queue, waiter)
        # What was computed for the first request depends on those that were admitted since.
        queue.ready = None
        if queue.line.count:
            self._wake_first(queue, now_s)
        elif self._queues.get(queue.bucket) is queue:
            del self._queues[queue.bucket]

    def _end_turn(self, queue: BucketQueue, waiter: Waiter) -> None:
        if queue.asking is waiter:
            queue.asking = None

    def _wake_first(self, queue: BucketQueue, now_s: float) -> None:
        """Let the first request continue when its tokens are expected, unless a request asks already."""
        first = queue.line.first()
        if first is not None and queue.asking is None:
            wait = queue.ready_in(first, now_s)
            queue.since_s = now_s + wait
            first.wakeup.wake_in(wait)

    def _pass_over_lost(self, queue: BucketQueue, now_s: float) -> None:
        """Pass over a request that has the turn, but does not use it. If it runs again, it joins again."""
        lost = queue.asking or queue.line.first()
        within_s = self._ask_s if queue.asking is not None else _LOST_AFTER_S
        if lost is not None and now_s > queue.since_s + within_s:
            self._leave(lost, now_s)
