"""The demo's run: callers that estimate, call and adjust, all at once, and somebody who watches them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from random import Random

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter.cli._failures import in_seconds
from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.progress import Frame, Report, Standing, View
from zae_limiter.cli.demo.scenario import LIMITS, RESOURCE, Call, Project
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimitExceeded

EVENTS_KEPT = 20


class ModelDown(Exception):  # noqa: N818 - what the simulated model answers, no error a user meets
    """The model failed."""


class Tally:
    """What one project has done so far."""

    def __init__(self, project: Project, start_ms: int) -> None:
        self.project = project
        self.ledger = Ledger(LIMITS, start_ms)
        self.admitted = self.rejected = self.failed = self.estimated = self.used = 0
        self.retry_at_s = 0.0


class Show:
    """Some projects at work on one limiter."""

    def __init__(self, limiter: RateLimiter, projects: Sequence[Project], clock: Clock, random: Random) -> None:
        self._limiter = limiter
        self._clock = clock
        self._random = random
        self._start_s = clock.monotonic_s()
        self._tallies = [Tally(project, clock.now_ms()) for project in projects]
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)

    async def run(self, seconds: float, view: View, location: str) -> Report:
        """Let everybody call for so long, and return how it went."""
        try:
            async with asyncio.TaskGroup() as group:
                for tally in self._tallies:
                    for _ in range(tally.project.callers):
                        group.create_task(self._call_until(seconds, tally))
                await self._watch_until(seconds, view)
        except BaseExceptionGroup as several:
            # One reason is enough for the user, and the translation of errors knows only single ones.
            raise several.exceptions[0] from None
        view.show(await self._frame(seconds))
        return self._report(location)

    async def _call_until(self, end_s: float, tally: Tally) -> None:
        """One caller: calls, waits as long as it is told after a rejection, and calls again."""
        await asyncio.sleep(self._random.uniform(0, min(0.3, end_s / 2)))
        call = tally.project.call(self._random)
        while self._elapsed_s() < end_s:
            try:
                await self._call(call, tally)
            except RateLimitExceeded as error:
                self._note_rejection(tally, error)
                await self._pause(error.retry_after_seconds * self._random.uniform(1, 2), end_s)
                continue
            except ModelDown:
                tally.failed += 1
                self._note(tally, f"call failed, {call.estimated:,} tokens given back")
            await self._pause(call.pause_s, end_s)
            call = tally.project.call(self._random)

    async def _call(self, call: Call, tally: Tally) -> None:
        """Take the estimate, call the model, adjust to what it used; a failed call gives everything back."""
        taking = {"rps": 1, "tps": call.estimated}
        async with self._limiter.acquire(tally.project.entity_id, RESOURCE, taking, list(LIMITS)) as lease:
            tally.ledger.take(taking, self._clock.now_ms())
            tally.admitted += 1
            await asyncio.sleep(call.takes_s)
            if call.fails:
                tally.ledger.settle({name: -amount for name, amount in taking.items()})
                raise ModelDown
            await lease.adjust(tps=call.used - call.estimated)
            tally.ledger.settle({"tps": min(0, call.used - call.estimated)})
        # Down before it is written and up after, so that the ledger never holds what the table no longer does.
        tally.ledger.settle({"tps": max(0, call.used - call.estimated)})
        tally.estimated += call.estimated
        tally.used += call.used
        difference = call.used - call.estimated
        self._note(tally, f"estimated {call.estimated:,}, used {call.used:,}: adjusted by {difference:+,}")

    async def _watch_until(self, end_s: float, view: View) -> None:
        ticks = 0
        while (left_s := end_s - self._elapsed_s()) > 0:
            view.show(await self._frame(end_s))
            ticks += 1
            await asyncio.sleep(max(0.0, min(left_s, ticks * view.every_s - self._elapsed_s())))

    async def _frame(self, total_s: float) -> Frame:
        standings = [await self._standing(tally) for tally in self._tallies]
        return Frame(min(total_s, self._elapsed_s()), total_s, standings, tuple(self._events))

    async def _standing(self, tally: Tally) -> Standing:
        balances = await self._limiter.available(tally.project.entity_id, RESOURCE, list(LIMITS))
        left_s = tally.retry_at_s - self._clock.monotonic_s()
        return Standing(tally.project, balances, tally.admitted, tally.rejected, left_s if left_s > 0 else None)

    async def _pause(self, wanted_s: float, end_s: float) -> None:
        await asyncio.sleep(max(0.0, min(wanted_s, end_s - self._elapsed_s())))

    def _note_rejection(self, tally: Tally, error: RateLimitExceeded) -> None:
        tally.rejected += 1
        tally.retry_at_s = self._clock.monotonic_s() + error.retry_after_seconds
        lacking = error.primary_violation
        short = f"{lacking.limit_name} has {lacking.available:,} of {lacking.requested:,}"
        self._note(tally, f"rejected: {short}, retry after {in_seconds(error.retry_after_seconds)}")

    def _note(self, tally: Tally, text: str) -> None:
        self._events.append(f"{tally.project.entity_id}  {text}")

    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._start_s

    def _report(self, location: str) -> Report:
        tallies = self._tallies
        return Report(
            seconds=self._elapsed_s(),
            callers=sum(tally.project.callers for tally in tallies),
            projects=len(tallies),
            admitted=sum(tally.admitted for tally in tallies),
            rejected=sum(tally.rejected for tally in tallies),
            failed=sum(tally.failed for tally in tallies),
            estimated=sum(tally.estimated for tally in tallies),
            used=sum(tally.used for tally in tallies),
            highest_share=max(tally.ledger.highest_share for tally in tallies),
            location=location,
        )
