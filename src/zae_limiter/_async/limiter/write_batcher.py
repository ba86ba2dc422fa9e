"""Batches of requests: while some are in flight, later ones queue, and are sent as one batch once there is room.

A request that finds nothing in flight is sent immediately. The first request of the queue leads the next batch: its
caller sends all of them and delivers the results to the other callers. There is no background task. The batcher knows
nothing of buckets: a subclass sends the requests, and decides how many of them fit together.

An exception (a signal handler, a cancellation) may interrupt a caller between any two steps. So every wait ends with
the deadline of its request, and a batch whose leader was interrupted is dropped once its deadline has passed.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import zae_limiter.runtime.aio as runtime
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError

_log = logging.getLogger("zae_limiter")

_GRACE_S = 0.5
"""A caller waits this many seconds longer than its deadline, for the result of a call that was sent in time."""


class Batchable(Protocol):
    """A request that a batcher can send."""

    @property
    def until_s(self) -> float:
        """The deadline on the monotonic clock."""


R = TypeVar("R", bound=Batchable)
ResultT = TypeVar("ResultT")


class _Waiter(Generic[R, ResultT]):
    """One request and its result, None until there is one.

    ``turn`` is set to the batch that this request leads, or to None once another leader has delivered the result.
    """

    __slots__ = ("outcome", "request", "turn")

    def __init__(self, request: R) -> None:
        self.request = request
        self.turn: runtime.Slot[_Batch[R, ResultT]] = runtime.Slot()
        self.outcome: ResultT | ZAELimiterError | None = None


class _Batch(Generic[R, ResultT]):
    """Requests that are sent as one, led by the first.

    Once ``begun`` is True the requests may have been sent. Then no other caller may send them again.
    """

    __slots__ = ("_batcher", "begun", "until_s", "waiters")

    def __init__(self, batcher: "WriteBatcher[R, ResultT]", waiters: list[_Waiter[R, ResultT]]) -> None:
        self._batcher = batcher
        self.waiters = waiters
        self.begun = False
        # Most batches have one request.
        self.until_s = waiters[0].request.until_s
        if len(waiters) > 1:
            self.note_deadline()

    def note_deadline(self) -> None:
        """Set ``until_s`` to the latest deadline."""
        self.until_s = max(waiter.request.until_s for waiter in self.waiters)

    async def complete(self) -> None:
        """Send the requests, deliver the results, and start the next batch."""
        outcomes: Sequence[ResultT | ZAELimiterError] | None = None
        try:
            self._batcher.add_queued(self)
            # From here on an interrupt may come after the write. Before, another request may lead the batch instead.
            self.begun = True
            outcomes = await self._batcher.send_all([waiter.request for waiter in self.waiters])
        except ZAELimiterError as error:
            outcomes = [error] * len(self.waiters)
        finally:
            if self.begun:
                self._batcher.deliver(self, outcomes)


class _Leaving(NamedTuple):
    """A request whose caller leaves."""

    batcher: "WriteBatcher[Any, Any]"
    waiter: _Waiter[Any, Any]

    async def complete(self) -> None:
        """Take the request out of the queue, or undo it."""
        await self.batcher.leave(self.waiter)


class WriteBatcher(Generic[R, ResultT]):
    """The queue of one bucket. A subclass sends requests, decides how many fit together, and undoes one."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._queue: deque[_Waiter[R, ResultT]] = deque()
        self._in_flight: dict[_Batch[R, ResultT], None] = {}
        # The batch whose leader is about to send it. Its leader adds the requests that have queued until then. So
        # requests of the same iteration of the loop are sent as one.
        self._collecting: _Batch[R, ResultT] | None = None
        self._mutex = runtime.Mutex()

    def room(self, requests: Sequence[R], in_flight: int) -> int:
        """Return how many requests, from the first, may be sent now, with this many batches in flight.

        It is 1 or more if none is in flight.
        """
        raise NotImplementedError

    async def send_all(self, requests: Sequence[R]) -> Sequence[ResultT | ZAELimiterError]:
        """Send requests as one and return the result of each, in their order."""
        raise NotImplementedError

    async def undo(self, request: R, outcome: ResultT) -> None:
        """Undo a request whose caller has left."""
        raise NotImplementedError

    async def join(self, request: R) -> ResultT:
        """Send a request, alone or with others, and return its result.

        A caller that is cancelled or interrupted leaves the queue. If its request is in flight already, it waits for
        the result and undoes it.

        Raises:
            ZAELimiterError: The request failed.
            RateLimiterUnavailable: The request was still queued at its deadline.
        """
        waiter: _Waiter[R, ResultT] = _Waiter(request)
        try:
            self._enter(waiter)
            await self._wait_for_turn(waiter)
            batch = waiter.turn.value
            if batch is not None:
                # A cancelled leader must not stop the batch: other callers wait for its results.
                await runtime.finish(batch)
        except GeneratorExit:
            # The loop has ended with the request in flight, so nothing can be awaited any more.
            raise
        except BaseException:
            # Not in place: a send that was started before an interrupt has to begin first. Otherwise another request
            # would lead the same batch, and it would be sent twice.
            await runtime.finish(_Leaving(self, waiter))
            raise
        outcome = waiter.outcome
        if outcome is None:
            self._unblock_others(waiter)
            raise RateLimiterUnavailable(TimeoutError("the request waited for its turn until its deadline"))
        if not isinstance(outcome, ZAELimiterError):
            return outcome
        # All requests of the batch share the error object. The traceback of the leader would mislead other callers.
        raise outcome if batch is not None else outcome.with_traceback(None)

    def _enter(self, waiter: _Waiter[R, ResultT]) -> None:
        """Let a request lead a batch if there is room and the queue is empty; queue it otherwise."""
        with self._mutex:
            idle = self._collecting is None and not self._queue
            if idle and self.room((waiter.request,), len(self._in_flight)) > 0:
                batch = _Batch(self, [waiter])
                waiter.turn.set(batch)
                self._in_flight[batch] = None
                self._collecting = batch
                return
            self._queue.append(waiter)
            # Usually the end of a batch starts the next one. After an interrupt there may be no batch that will end.
            stalled = self._drop_lost() or not self._in_flight
        if stalled:
            self._start_next()

    def _drop_lost(self) -> bool:
        """Drop batches that have not ended by their deadline; return whether there were any."""
        latest_s = self._monotonic_s() - _GRACE_S
        # A delivery in another thread removes its batch without the mutex, so the search is made in a copy.
        lost = [batch for batch in list(self._in_flight) if batch.until_s < latest_s]
        for batch in lost:
            self._in_flight.pop(batch, None)
            if self._collecting is batch:
                self._collecting = None
        return bool(lost)

    async def _wait_for_turn(self, waiter: _Waiter[R, ResultT]) -> None:
        """Wait until the request leads a batch or has a result, up to its deadline and the grace period."""
        turn = waiter.turn
        if not turn.filled:
            await turn.wait(waiter.request.until_s - self._monotonic_s() + _GRACE_S)

    def add_queued(self, batch: _Batch[R, ResultT]) -> None:
        """Add the requests that have queued since the batch was formed, as far as there is room for them."""
        with self._mutex:
            if self._collecting is batch:
                self._collecting = None
            if self._queue:
                requests = [waiter.request for waiter in (*batch.waiters, *self._queue)]
                # This batch is in flight already, and must not count against itself.
                for _ in range(self.room(requests, len(self._in_flight) - 1) - len(batch.waiters)):
                    batch.waiters.append(self._queue.popleft())
                batch.note_deadline()
        if self._queue:
            self._start_next()

    def deliver(self, batch: _Batch[R, ResultT], outcomes: Sequence[ResultT | ZAELimiterError] | None) -> None:
        """Set the result of each request, or an error if the leader was interrupted; a second call changes nothing."""
        leader = batch.waiters[0]
        for waiter, outcome in zip(batch.waiters, outcomes or _interrupted(batch.waiters), strict=True):
            if waiter.outcome is None:
                waiter.outcome = outcome
            # The leader does not wait: its turn is the batch itself.
            if waiter is not leader:
                waiter.turn.set(None)
        self._in_flight.pop(batch, None)
        self._start_next()

    def _start_next(self) -> None:
        """Form the next batch of the queued requests that there is room for, and let its first request lead it."""
        with self._mutex:
            if self._collecting is not None or not self._queue:
                return
            count = self.room([waiter.request for waiter in self._queue], len(self._in_flight))
            if not count:
                return
            waiters: list[_Waiter[R, ResultT]] = []
            try:
                # An interrupt may come between any two steps, and the list is then put back. So requests move one by
                # one: an interrupt loses at most one of them, and its caller stops waiting at its deadline.
                for _ in range(count):
                    waiters.append(self._queue.popleft())
                batch = _Batch(self, waiters)
                self._in_flight[batch] = None
                self._collecting = batch
                waiters[0].turn.set(batch)
            except BaseException:
                self._requeue(waiters)
                raise

    def _requeue(self, waiters: list[_Waiter[R, ResultT]]) -> None:
        """Put requests back to the head of the queue, unless the first of them already leads."""
        if waiters and not waiters[0].turn.filled:
            self._collecting = None
            for batch in list(self._in_flight):
                if batch.waiters is waiters:
                    self._in_flight.pop(batch, None)
            self._queue.extendleft(reversed(waiters))

    async def leave(self, waiter: _Waiter[R, ResultT]) -> None:
        """Remove a request whose caller leaves; if it is no longer queued, wait for its result and undo it."""
        if self._remove(waiter):
            return
        await self._wait_for_turn(waiter)
        self._unblock_others(waiter)
        if waiter.outcome is not None and not isinstance(waiter.outcome, ZAELimiterError):
            try:
                await self.undo(waiter.request, waiter.outcome)
            except ZAELimiterError as error:
                # The caller gets the exception that made it leave.
                _log.warning("Cancelled request not undone: %s: %s", waiter.request, error)

    def _remove(self, waiter: _Waiter[R, ResultT]) -> bool:
        """Remove a request from the queue; return False if it is no longer queued."""
        with self._mutex:
            if waiter in self._queue:
                self._queue.remove(waiter)
                return True
        return False

    def _unblock_others(self, waiter: _Waiter[R, ResultT]) -> None:
        """Let other requests continue after a caller has left: the rest of the batch that it leads, or the queue."""
        batch = None if self._remove(waiter) else waiter.turn.value
        if batch is not None and not batch.begun:
            self._pass_lead(batch)
        elif batch is not None and batch in self._in_flight:
            # The leader was interrupted while it delivered the results.
            self.deliver(batch, None)
        with self._mutex:
            self._drop_lost()
        self._start_next()

    def _pass_lead(self, batch: _Batch[R, ResultT]) -> None:
        """Let the next request lead a batch that was not sent. A caller that leaves as well passes it on again."""
        if len(batch.waiters) > 1:
            del batch.waiters[0]
            batch.waiters[0].turn.set(batch)
            return
        with self._mutex:
            if self._collecting is batch:
                self._collecting = None
            self._in_flight.pop(batch, None)


def _interrupted(batch: Sequence[object]) -> list[RateLimiterUnavailable]:
    """Return the errors of requests whose leader was interrupted."""
    return [RateLimiterUnavailable(InterruptedError("the caller that sent the request was interrupted"))] * len(batch)
