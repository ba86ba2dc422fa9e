"""Raise a limit while the demo runs, and measure the effect."""

import asyncio
from typing import NamedTuple

from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.scenario import Raise
from zae_limiter.cli.demo.steps import Say
from zae_limiter.cli.demo.stored import store_raise
from zae_limiter.cli.demo.tally import Book
from zae_limiter.clock import Clock

_LOOK_EVERY_S = 0.05
_SHORTEST_SPAN_S = 1.0


class Stopwatch:
    """The time since the demo began, and how long it takes at least."""

    def __init__(self, clock: Clock, total_s: float) -> None:
        self.clock = clock
        self.total_s = total_s
        self._start_s = clock.monotonic_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return self.clock.monotonic_s() - self._start_s

    async def sleep_until(self, elapsed_s: float) -> None:
        """Sleep until this many seconds after the beginning."""
        await asyncio.sleep(max(0.0, elapsed_s - self.elapsed_s))


class Mark(NamedTuple):
    """The tokens taken up to a moment."""

    elapsed_s: float
    tokens: int


class Raising:
    """Raise a limit as an operator would, and wait until the processes of the project use it."""

    def __init__(self, change: Raise, operator: Repository, book: Book, watch: Stopwatch) -> None:
        self._change = change
        self._operator = operator
        self._book = book
        self._watch = watch
        self._marks: list[Mark] = []

    def mark(self) -> None:
        """Note the tokens taken so far. The first mark is the start of the time before the raise."""
        self._marks.append(Mark(self._watch.elapsed_s, self._book[self._change.entity_id].taken_tokens))

    async def run(self, say: Say) -> str:
        """Store the higher limit, and wait for its effect. Return what happened."""
        change, book = self._change, self._book
        self.mark()
        book.raise_limit(change.entity_id, change.after, self._watch.clock.now_ms())
        await store_raise(self._operator, change)
        stored_s = self._watch.elapsed_s
        say(f"{_described(change)} stored, not yet in force")
        keys = book.keys_of(change.entity_id)
        while not all(  # noqa: ASYNC110 - the book is pure, so it has no event to wait for
            key.refill_in_force == change.after.refill_amount for key in keys
        ):
            await asyncio.sleep(_LOOK_EVERY_S)
        self.mark()
        return f"{_described(change)}, in force in {self._watch.elapsed_s - stored_s:.1f} s"

    def effect(self) -> str:
        """Return the tokens taken per second before and after the raise, empty if either time is too short."""
        self.mark()
        if len(self._marks) < 4:
            return ""
        before, after = _per_s(*self._marks[:2]), _per_s(*self._marks[2:4])
        return "" if before is None or after is None else f"; {before:,.0f} -> {after:,.0f} tokens/s"


def _described(change: Raise) -> str:
    return f"{change.before.refill_amount:,} -> {change.after.refill_amount:,} {change.after.name}"


def _per_s(start: Mark, end: Mark) -> float | None:
    span_s = end.elapsed_s - start.elapsed_s
    return None if span_s < _SHORTEST_SPAN_S else (end.tokens - start.tokens) / span_s
