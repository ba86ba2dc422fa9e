"""Rules of waiting that are broken on purpose: the simulation has to notice each of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from zae_limiter._async.limiter.waiting import WaitingLease
from zae_limiter.caches import waiting as caches_waiting
from zae_limiter.caches.waiting import BucketQueue, WaitingQueues
from zae_limiter.core import waiting_line


class Patch(NamedTuple):
    """An attribute and what replaces it."""

    owner: Any
    name: str
    value: Any


def _keeps_turn(original: Callable[..., None]) -> Callable[..., None]:
    """Return a leave that does not wake the next request."""

    def left(self: WaitingQueues, queue: BucketQueue, waiter: Any, now_s: float) -> None:
        waiter.queue = None
        self._end_turn(queue, waiter)
        queue.ready = None
        if not queue.line.count and self._queues.get(queue.bucket) is queue:
            del self._queues[queue.bucket]

    return left


def _nothing(*_: object, **__: object) -> None:
    return None


async def _never_occupied(*_: object) -> None:
    return None


_asked: set[int] = set()


def _all_ask(self: WaitingQueues, waiter: Any) -> Any:
    """Let each request ask once, when its own tokens are expected."""
    queue = waiter.queue
    if queue is not None and not queue.ready_in(waiter, self._now_s()) and id(waiter) not in _asked:
        _asked.add(id(waiter))
        return 0.0
    return _turn_in(self, waiter)


def _newest_first(self: Any) -> Any:
    return max(self._blocks[-1].requests, key=lambda one: one.number)


def _without_supply(supply: Any, taken: Any, now_s: float) -> Any:
    return supply


def _reserved_first(self: Any) -> Any:
    """Let a request go first that has waited longest, whatever it must leave."""
    best = _next(self)
    late = [] if best is None else [one.oldest() for one in self._classes.values()]
    return min([one for one in late if one.since_s < best.since_s], key=lambda one: -one.reserved, default=best)


_next = waiting_line.WaitingLine._next

_turn_in = WaitingQueues.turn_in

MUTATIONS: dict[str, tuple[Patch, ...]] = {
    "request that leaves does not wake the next": (Patch(WaitingQueues, "_left", _keeps_turn(WaitingQueues._left)),),
    "cancelled request stays in its queue": (Patch(WaitingQueues, "leave", _nothing),),
    "every request asks": (Patch(WaitingQueues, "turn_in", _all_ask),),
    "newest request goes first": (Patch(waiting_line._Class, "first", _newest_first),),
    "newcomer overtakes": (Patch(WaitingLease, "_occupied", _never_occupied),),
    "admission leaves the supply": (Patch(caches_waiting, "supply_after", _without_supply),),
    "request with a reserve blocks the others": (Patch(waiting_line.WaitingLine, "_next", _reserved_first),),
    "wait has no end": (Patch(waiting_line.WaitingRequest, "ends_s", property(lambda _: 1e9, _nothing)),),
}
"""The mutations by name."""


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Break a rule inside the block."""
    patches = [patch.object(*one) for one in MUTATIONS[name]]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()
