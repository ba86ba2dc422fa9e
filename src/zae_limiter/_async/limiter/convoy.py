"""Requests that travel together: while some are under way, others queue, and go out as one when there is room.

Whoever comes to an idle convoy sets out at once; the first of those who wait leads the next. It knows nothing of
buckets: what is carried, and how many fit together, is told by its owner.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from zae_limiter._async import runtime
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError

R = TypeVar("R")
Came = TypeVar("Came")

Carry = Callable[[Sequence[R]], Awaitable[Sequence[Came | ZAELimiterError]]]
"""Carries requests and returns what came of each, in their order."""

Room = Callable[[Sequence[R], int], int]
"""Says how many requests, from the first, may set out now, with so many under way; at least one where none is."""


class _Waiter(Generic[R, Came]):
    """One request, where it waits for its turn, and what came of it."""

    __slots__ = ("begun", "left", "outcome", "request", "turn", "undo")

    def __init__(self, request: R, undo: Callable[[Came], Awaitable[None]]) -> None:
        self.request = request
        self.undo = undo
        self.turn: runtime.Slot[list[_Waiter[R, Came]]] | None = None
        self.outcome: Came | ZAELimiterError | None = None
        self.begun = False
        self.left = False


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

        A caller that is cancelled leaves the queue; if its request was carried all the same, ``undo`` undoes it.

        Raises:
            ZAELimiterError: What came of it.
        """
        waiter = _Waiter(request, undo)
        with self._mutex:
            leads = not self._departing and not self._queue and self._room((request,), self._under_way) > 0
            if leads:
                self._under_way += 1
                self._departing = True
            else:
                waiter.turn = runtime.Slot()
                self._queue.append(waiter)
        try:
            batch = [waiter] if waiter.turn is None else await waiter.turn.wait()
            if batch is not None:
                waiter.begun = True
                await runtime.finish(lambda: self._set_out(batch))
        except BaseException:
            await runtime.finish(lambda: self._leave(waiter))
            raise
        outcome = waiter.outcome
        if isinstance(outcome, ZAELimiterError):
            raise outcome
        assert outcome is not None, "who was carried has an outcome"
        return outcome

    async def _set_out(self, batch: list[_Waiter[R, Came]]) -> None:
        """Carry requests, tell their callers, and send the next on their way."""
        self._take_along(batch)
        outcomes: Sequence[Came | ZAELimiterError] = ()
        try:
            outcomes = await self._carried(batch)
        finally:
            unheard = RateLimiterUnavailable(InterruptedError("whoever carried the request was interrupted"))
            with self._mutex:
                self._under_way -= 1
                for number, waiter in enumerate(batch):
                    waiter.outcome = outcomes[number] if outcomes else unheard
            for waiter in batch:
                if waiter.turn is not None and not waiter.begun:
                    waiter.turn.set(None)
            self._send_next()
        for waiter in batch:
            if waiter.left:
                await self._undo(waiter)

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

    async def _carried(self, batch: list[_Waiter[R, Came]]) -> Sequence[Came | ZAELimiterError]:
        try:
            return await self._carry([waiter.request for waiter in batch])
        except ZAELimiterError as error:
            return [error] * len(batch)

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
        _lead(batch)

    async def _leave(self, waiter: _Waiter[R, Came]) -> None:
        """Take a request out, or undo it."""
        batch = None
        with self._mutex:
            if waiter in self._queue:
                self._queue.remove(waiter)
                return
            waiter.left = True
            if waiter.turn is not None and not waiter.begun:
                batch = waiter.turn.value
        if batch is None:
            await self._undo(waiter)
            return
        # It was to lead, and did not set out: the next of them does.
        batch.remove(waiter)
        if batch:
            _lead(batch)
            return
        with self._mutex:
            self._under_way -= 1
            self._departing = False
        self._send_next()

    async def _undo(self, waiter: _Waiter[R, Came]) -> None:
        """Undo, once, what was carried for a caller who has left; if it is still under way, that is done at its end."""
        with self._mutex:
            outcome = waiter.outcome if waiter.left else None
            waiter.left = waiter.left and waiter.outcome is None
        if outcome is not None and not isinstance(outcome, ZAELimiterError):
            await waiter.undo(outcome)


def _lead(batch: list[_Waiter[R, Came]]) -> None:
    leader = batch[0]
    assert leader.turn is not None, "who waits has a turn"
    leader.turn.set(batch)
