"""Requests that travel together: while some are under way, others queue, and go out as one when there is room.

Whoever comes to an idle convoy sets out at once; the first of those who wait leads the next. It knows nothing of
buckets: what is carried, and how many fit together, is told by its owner.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from zae_limiter._async import runtime
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError

_log = logging.getLogger("zae_limiter")

R = TypeVar("R")
Came = TypeVar("Came")

Carry = Callable[[Sequence[R]], Awaitable[Sequence[Came | ZAELimiterError]]]
"""Carries requests and returns what came of each, in their order."""

Room = Callable[[Sequence[R], int], int]
"""Says how many requests, from the first, may set out now, with so many under way; at least one where none is."""


class _Waiter(Generic[R, Came]):
    """One request, and what came of it. Its turn is the batch that it leads, or None once another has carried it."""

    __slots__ = ("outcome", "request", "turn")

    def __init__(self, request: R) -> None:
        self.request = request
        self.turn: runtime.Slot[list[_Waiter[R, Came]]] = runtime.Slot()
        self.outcome: Came | ZAELimiterError | None = None


class Convoy(Generic[R, Came]):
    """The requests to one place."""

    def __init__(self, carry: Carry[R, Came], room: Room[R]) -> None:
        self._carry = carry
        self._room = room
        self._queue: deque[_Waiter[R, Came]] = deque()
        self._under_way = 0
        # Somebody is about to set out, and takes along whoever comes until then.
        self._departing = False
        self._mutex = runtime.Mutex()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return not self._under_way and not self._queue

    async def join(self, request: R, undo: Callable[[Came], Awaitable[None]]) -> Came:
        """Send a request, alone or with others, and return what came of it.

        A caller that is cancelled leaves the queue; if its request is under way already, it waits for its end and
        undoes it.

        Raises:
            ZAELimiterError: What came of it.
        """
        waiter: _Waiter[R, Came] = _Waiter(request)
        with self._mutex:
            if not self._departing and not self._queue and self._room((request,), self._under_way) > 0:
                self._under_way += 1
                self._departing = True
                waiter.turn.set([waiter])
            else:
                self._queue.append(waiter)
        try:
            batch = await waiter.turn.wait()
            if batch is not None:
                await runtime.finish(lambda: self._set_out(batch))
        except BaseException:
            await runtime.finish(lambda: self._leave(waiter, undo))
            raise
        outcome = waiter.outcome
        assert outcome is not None, "who was carried has an outcome"
        if not isinstance(outcome, ZAELimiterError):
            return outcome
        # Who did not lead shares the error with others, and tells nothing of where they raised it.
        raise outcome if batch is not None else outcome.with_traceback(None)

    async def _set_out(self, batch: list[_Waiter[R, Came]]) -> None:
        """Carry requests, tell their callers, and send the next on their way."""
        leader = batch[0]
        outcomes: Sequence[Came | ZAELimiterError] | None = None
        try:
            self._take_along(batch)
            outcomes = await self._carry([waiter.request for waiter in batch])
        except ZAELimiterError as error:
            outcomes = [error] * len(batch)
        finally:
            for waiter, outcome in zip(batch, outcomes or _unheard(batch), strict=True):
                waiter.outcome = outcome
                if waiter is not leader:
                    waiter.turn.set(None)
            self._arrive()

    def _take_along(self, batch: list[_Waiter[R, Came]]) -> None:
        """Add those who came while a batch was about to set out, as far as there is room for them."""
        with self._mutex:
            self._departing = False
            if self._queue:
                requests = [waiter.request for waiter in (*batch, *self._queue)]
                more = self._room(requests, self._under_way - 1) - len(batch)
                batch += [self._queue.popleft() for _ in range(more)]
        if self._queue:
            self._send_next()

    def _arrive(self) -> None:
        """Make room for those who wait."""
        with self._mutex:
            self._under_way -= 1
        self._send_next()

    def _send_next(self) -> None:
        """Let those who wait and have room set out, led by the first of them."""
        with self._mutex:
            if self._departing or not self._queue:
                return
            count = self._room([waiter.request for waiter in self._queue], self._under_way)
            if not count:
                return
            batch = [self._queue.popleft() for _ in range(count)]
            self._under_way += 1
            self._departing = True
        batch[0].turn.set(batch)

    async def _leave(self, waiter: _Waiter[R, Came], undo: Callable[[Came], Awaitable[None]]) -> None:
        """Take a request out, or wait for its end and undo it."""
        with self._mutex:
            if waiter in self._queue:
                self._queue.remove(waiter)
                return
        batch = await waiter.turn.wait()
        if waiter.outcome is None and batch is not None:
            self._hand_on(batch)
        elif waiter.outcome is not None and not isinstance(waiter.outcome, ZAELimiterError):
            try:
                await undo(waiter.outcome)
            except ZAELimiterError as error:
                # What its caller is to hear is why it left.
                _log.warning("Not undone, though its caller has left: %s: %s", waiter.request, error)

    def _hand_on(self, batch: list[_Waiter[R, Came]]) -> None:
        """Let the next of a batch lead that has not set out; one that leaves too hands it on in turn."""
        rest = batch[1:]
        if rest:
            rest[0].turn.set(rest)
            return
        with self._mutex:
            self._departing = False
        self._arrive()


def _unheard(batch: Sequence[object]) -> list[RateLimiterUnavailable]:
    """Return what those are told whose carrier was interrupted."""
    return [RateLimiterUnavailable(InterruptedError("whoever carried the request was interrupted"))] * len(batch)
