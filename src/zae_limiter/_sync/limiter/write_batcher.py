"""Requests that travel together: while some are in flight, others queue, and are sent as one when there is room.

A request that finds nothing in flight is sent at once; the first of those that wait leads the next batch. The batcher
knows nothing of buckets: a subclass says what is carried, and how many requests fit together.

A signal handler or a kill may interrupt a caller between any two steps. So every wait ends with the deadline of its
request, and a batch whose leader vanished is dropped once its deadline has passed.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import zae_limiter.runtime.threads as runtime
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError

_log = logging.getLogger("zae_limiter")

_GRACE_S = 0.5
"""How long after a deadline the answer to a call that was sent in time may be late."""


class Batchable(Protocol):
    """What a batcher carries."""

    @property
    def until_s(self) -> float:
        """When it must be answered, on the monotonic clock."""


R = TypeVar("R", bound=Batchable)
Came = TypeVar("Came")


class _Waiter(Generic[R, Came]):
    """One request, and what came of it. Its turn is the batch that it leads, or None once another has carried it."""

    __slots__ = ("outcome", "request", "turn")

    def __init__(self, request: R) -> None:
        self.request = request
        self.turn: runtime.Slot[_Batch[R, Came]] = runtime.Slot()
        self.outcome: Came | ZAELimiterError | None = None


class _Batch(Generic[R, Came]):
    """Requests that are sent as one, led by the first. ``begun``: they may have been sent, and are not sent again."""

    __slots__ = ("begun", "until_s", "waiters")

    def __init__(self, waiters: list[_Waiter[R, Came]]) -> None:
        self.waiters = waiters
        self.begun = False
        self.note_deadline()

    def note_deadline(self) -> None:
        """Set ``until_s`` to the latest deadline."""
        self.until_s = max(waiter.request.until_s for waiter in self.waiters)


class WriteBatcher(Generic[R, Came]):
    """The requests to one place. A subclass says how they are carried, how many fit together, and how to undo one."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._queue: deque[_Waiter[R, Came]] = deque()
        self._in_flight: dict[_Batch[R, Came], None] = {}
        # The batch that is about to be sent. Requests that come until then join it.
        self._departing: _Batch[R, Came] | None = None
        self._mutex = runtime.Mutex()

    @property
    def busy(self) -> bool:
        """Whether requests are in flight or wait."""
        return bool(self._in_flight or self._queue)

    def room(self, requests: Sequence[R], in_flight: int) -> int:
        """Return how many requests, from the first, may be sent now, with this many batches in flight.

        It is 1 or more if none is in flight.
        """
        raise NotImplementedError

    def carry(self, requests: Sequence[R]) -> Sequence[Came | ZAELimiterError]:
        """Carry requests and return what came of each, in their order."""
        raise NotImplementedError

    def undo(self, request: R, outcome: Came) -> None:
        """Undo a request whose caller has left."""
        raise NotImplementedError

    def join(self, request: R) -> Came:
        """Send a request, alone or with others, and return what came of it.

        A caller that is cancelled or interrupted leaves the queue. If its request is in flight already, it waits for
        the answer and undoes it.

        Raises:
            ZAELimiterError: What came of it. RateLimiterUnavailable: its turn did not come in time.
        """
        waiter: _Waiter[R, Came] = _Waiter(request)
        try:
            self._enter(waiter)
            self._wait_for_turn(waiter)
            batch = waiter.turn.value
            if batch is not None:
                runtime.finish(self._set_out, batch)
        except GeneratorExit:
            # The loop ended with the request in flight: nothing can be awaited any more.
            raise
        except BaseException:
            runtime.finish(self._leave, waiter)
            raise
        outcome = waiter.outcome
        if outcome is None:
            self._give_up(waiter)
            raise RateLimiterUnavailable(TimeoutError("the request waited for its turn until its deadline"))
        if not isinstance(outcome, ZAELimiterError):
            return outcome
        # The error is shared with the other requests of the batch; the traceback of its leader says nothing here.
        raise outcome if batch is not None else outcome.with_traceback(None)

    def _enter(self, waiter: _Waiter[R, Came]) -> None:
        """Give a request its turn if nothing is in its way, else let it queue."""
        with self._mutex:
            idle = self._departing is None and not self._queue
            if idle and self.room((waiter.request,), len(self._in_flight)) > 0:
                batch = _Batch([waiter])
                waiter.turn.set(batch)
                self._in_flight[batch] = None
                self._departing = batch
                return
            self._queue.append(waiter)
            # As a rule an answer lets the next batch go. After an interrupt there may be none to come.
            stalled = self._drop_lost() or not self._in_flight
        if stalled:
            self._send_next()

    def _drop_lost(self) -> bool:
        """Drop batches that were not reported back until after their deadline; return whether there were any."""
        latest_s = self._monotonic_s() - _GRACE_S
        lost = [batch for batch in self._in_flight if batch.until_s < latest_s]
        for batch in lost:
            del self._in_flight[batch]
            if self._departing is batch:
                self._departing = None
        return bool(lost)

    def _wait_for_turn(self, waiter: _Waiter[R, Came]) -> None:
        """Wait for a turn, up to the deadline of the request and a little longer."""
        turn = waiter.turn
        if not turn.filled:
            turn.wait(waiter.request.until_s - self._monotonic_s() + _GRACE_S)

    def _set_out(self, batch: _Batch[R, Came]) -> None:
        """Carry requests, hand out the answers, and let the next batch go."""
        outcomes: Sequence[Came | ZAELimiterError] | None = None
        try:
            self._take_along(batch)
            batch.begun = True
            outcomes = self.carry([waiter.request for waiter in batch.waiters])
        except ZAELimiterError as error:
            outcomes = [error] * len(batch.waiters)
        finally:
            if batch.begun:
                self._deliver(batch, outcomes)

    def _take_along(self, batch: _Batch[R, Came]) -> None:
        """Add the requests that came while a batch was about to be sent, as far as there is room for them."""
        with self._mutex:
            if self._departing is batch:
                self._departing = None
            if self._queue:
                requests = [waiter.request for waiter in (*batch.waiters, *self._queue)]
                for _ in range(self.room(requests, len(self._in_flight) - 1) - len(batch.waiters)):
                    batch.waiters.append(self._queue.popleft())
                batch.note_deadline()
        if self._queue:
            self._send_next()

    def _deliver(self, batch: _Batch[R, Came], outcomes: Sequence[Came | ZAELimiterError] | None) -> None:
        """Hand out the answers, or an error if the leader was interrupted; doing it again changes nothing."""
        leader = batch.waiters[0]
        for waiter, outcome in zip(batch.waiters, outcomes or _unheard(batch.waiters), strict=True):
            if waiter.outcome is None:
                waiter.outcome = outcome
            if waiter is not leader:
                waiter.turn.set(None)
        self._in_flight.pop(batch, None)
        self._send_next()

    def _send_next(self) -> None:
        """Let the requests that wait and have room go, led by the first of them."""
        with self._mutex:
            if self._departing is not None or not self._queue:
                return
            count = self.room([waiter.request for waiter in self._queue], len(self._in_flight))
            if not count:
                return
            waiters: list[_Waiter[R, Came]] = []
            try:
                # One by one: an interrupt must not lose all of them.
                for _ in range(count):
                    waiters.append(self._queue.popleft())
                batch = _Batch(waiters)
                self._in_flight[batch] = None
                self._departing = batch
                waiters[0].turn.set(batch)
            except BaseException:
                self._put_back(waiters)
                raise

    def _put_back(self, waiters: list[_Waiter[R, Came]]) -> None:
        """Put requests that did not get their turn back to the head of the queue."""
        if waiters and not waiters[0].turn.filled:
            self._departing = None
            for batch in [batch for batch in self._in_flight if batch.waiters is waiters]:
                del self._in_flight[batch]
            self._queue.extendleft(reversed(waiters))

    def _leave(self, waiter: _Waiter[R, Came]) -> None:
        """Take a request out, or wait for its end and undo it."""
        if self._removed(waiter):
            return
        self._wait_for_turn(waiter)
        self._give_up(waiter)
        if waiter.outcome is not None and not isinstance(waiter.outcome, ZAELimiterError):
            try:
                self.undo(waiter.request, waiter.outcome)
            except ZAELimiterError as error:
                # The caller gets the exception that made it leave.
                _log.warning("A request whose caller left was not undone: %s: %s", waiter.request, error)

    def _removed(self, waiter: _Waiter[R, Came]) -> bool:
        """Remove a request from the queue; False if it is not there any more."""
        with self._mutex:
            if waiter in self._queue:
                self._queue.remove(waiter)
                return True
        return False

    def _give_up(self, waiter: _Waiter[R, Came]) -> None:
        """Let others go on where a caller leaves: the rest of the batch that it leads, or those behind it."""
        batch = None if self._removed(waiter) else waiter.turn.value
        if batch is not None and not batch.begun:
            self._hand_on(batch)
        elif batch is not None and batch in self._in_flight:
            # The leader was interrupted while it handed out the answers.
            self._deliver(batch, None)
        with self._mutex:
            self._drop_lost()
        self._send_next()

    def _hand_on(self, batch: _Batch[R, Came]) -> None:
        """Let the next of a batch lead that was not sent; one that leaves too hands it on in turn."""
        if len(batch.waiters) > 1:
            del batch.waiters[0]
            batch.waiters[0].turn.set(batch)
            return
        with self._mutex:
            if self._departing is batch:
                self._departing = None
            self._in_flight.pop(batch, None)


def _unheard(batch: Sequence[object]) -> list[RateLimiterUnavailable]:
    """Return the errors of requests whose leader was interrupted."""
    return [RateLimiterUnavailable(InterruptedError("the caller that sent the request was interrupted"))] * len(batch)
