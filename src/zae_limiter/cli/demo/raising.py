"""Raise a limit while the demo runs, and measure the effect."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.progress import Effect, RaiseProgress
from zae_limiter.cli.demo.scenario import RESOURCE, Raise
from zae_limiter.cli.demo.stored import store_raise
from zae_limiter.cli.demo.tally import Book
from zae_limiter.clock import Clock

_LOOK_EVERY_S = 0.05
_SHORTEST_SPAN_S = 1.0


class Stopwatch:
    """The time since the demo began, and its total duration."""

    def __init__(self, clock: Clock, total_s: float) -> None:
        self.clock = clock
        self.total_s = total_s
        self._start_s = clock.monotonic_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return self.clock.monotonic_s() - self._start_s

    async def sleep(self, wanted_s: float) -> None:
        """Sleep for this many seconds, but not beyond the end."""
        await asyncio.sleep(max(0.0, min(wanted_s, self.total_s - self.elapsed_s)))


class Raising:
    """Raise a limit halfway, as an operator with another client would, and wait until the callers' client uses it."""

    def __init__(self, change: Raise, operator: Repository, book: Book, watch: Stopwatch) -> None:
        self.progress = RaiseProgress(change, watch.total_s / 2)
        self._operator = operator
        self._book = book
        self._watch = watch
        self._marks: list[tuple[float, int]] = []

    async def run(self, limiter: RateLimiter, tell: Callable[[str, str], None]) -> None:
        """Raise the limit when it is due; report when it is stored and when it is in force."""
        change, due_s = self.progress.change, self.progress.due_s
        # During the first half of this time, the callers use up what the buckets held.
        await self._watch.sleep(due_s / 2)
        self._mark()
        await self._watch.sleep(due_s - self._watch.elapsed_s)
        self._mark()
        self._book.raise_limit(change.entity_id, change.after, self._watch.clock.now_ms())
        await store_raise(self._operator, change)
        self.progress = replace(self.progress, made_s=self._watch.elapsed_s)
        tell(change.entity_id, f"{change.after.name} raised to {change.after.refill_amount:,} per minute")
        await self._await_effect(limiter)
        if self.progress.seen_s is not None:
            tell(change.entity_id, f"{change.after.name} of {change.after.refill_amount:,} per minute is in force")

    async def _await_effect(self, limiter: RateLimiter) -> None:
        change, watch = self.progress.change, self._watch
        while watch.elapsed_s < watch.total_s:
            if change.after in ((await limiter.resolve_limits(change.entity_id, RESOURCE)).limits or ()):
                self.progress = replace(self.progress, seen_s=watch.elapsed_s)
                return self._mark()
            await watch.sleep(_LOOK_EVERY_S)
        return None

    async def notice_others(self) -> None:
        """Detect a raise by another demo on the same table; it counts from the last check on."""
        change, watch = self.progress.change, self._watch
        looked_ms = watch.clock.now_ms()
        while watch.elapsed_s < watch.total_s:
            now_ms = watch.clock.now_ms()
            for limit in await self._operator.get_limits(change.entity_id, change.resource):
                if limit.name == change.after.name:
                    self._book.raise_limit(change.entity_id, limit, looked_ms)
            looked_ms = now_ms
            await watch.sleep(_LOOK_EVERY_S)

    def effect(self) -> Effect:
        """Return the tokens admitted per second, before and after. Call it when no more calls begin."""
        self._mark()
        before = _per_s(self._marks[0], self._marks[1]) if self.progress.made_s is not None else None
        after = _per_s(self._marks[2], self._marks[3]) if self.progress.seen_s is not None else None
        return Effect(self.progress, before, after)

    def _mark(self) -> None:
        self._marks.append((self._watch.elapsed_s, self._book[self.progress.change.entity_id].taken_tokens))


def _per_s(start: tuple[float, int], end: tuple[float, int]) -> float | None:
    span_s = end[0] - start[0]
    return None if span_s < _SHORTEST_SPAN_S else (end[1] - start[1]) / span_s
