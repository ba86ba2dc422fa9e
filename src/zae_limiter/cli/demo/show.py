"""Run the demo: callers that estimate, call and adjust at the same time, and a view of them."""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli._failures import in_seconds
from zae_limiter.cli.demo.metered import DemoMeter
from zae_limiter.cli.demo.progress import DemoFrame, DemoReport, DemoStanding, DemoView
from zae_limiter.cli.demo.raising import Raising, Stopwatch
from zae_limiter.cli.demo.scenario import PROJECTS, RAISED, RESOURCE, DemoCall, DemoKey, Member, members
from zae_limiter.cli.demo.tally import Book, DemoTally
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimitExceeded
from zae_limiter.core.limit import Limit

EVENTS_KEPT = 20


class ModelDown(Exception):  # noqa: N818 - a result of the simulated model, never shown to users
    """The model failed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The limiter of the callers, the operator's repository, the clock, and the random numbers."""

    limiter: RateLimiter
    operator: Repository
    clock: Clock
    random: Random


async def run(stage: Stage, seconds: float, view: DemoView) -> DemoReport:
    """Run the callers for this many seconds, and return the report."""
    tallies = [await _tally(stage, member) for member in members(PROJECTS)]
    keys = [tally.member.entity_id for tally in tallies if tally.member.is_key]
    meter = await DemoMeter.start(stage.limiter, keys, stage.clock.now_ms())
    watch = Stopwatch(stage.clock, seconds)
    return await Show(stage, Book(tallies), watch).run(view, meter)


async def _tally(stage: Stage, member: Member) -> DemoTally:
    limits = (await stage.limiter.resolve_limits(member.entity_id, RESOURCE)).limits
    return DemoTally(member, _by_name(limits), stage.clock.now_ms())


class Show:
    """A run of the demo on one limiter."""

    def __init__(self, stage: Stage, book: Book, watch: Stopwatch) -> None:
        self._limiter = stage.limiter
        self._location = stage.limiter.name.removeprefix("sqlite:///")
        self._clock = stage.clock
        self._random = stage.random
        self._book = book
        self._watch = watch
        self._raising = Raising(RAISED, stage.operator, book, watch)
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)

    async def run(self, view: DemoView, meter: DemoMeter) -> DemoReport:
        """Run all callers until the end, and return the report."""
        keys = [key for project in PROJECTS for key in project.keys]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._raising.notice_others())
                group.create_task(self._raising.run(self._limiter, self._note))
                for key in keys:
                    for _ in range(key.callers):
                        group.create_task(self._call_until_over(key))
                await self._show_until_over(view)
                effect = self._raising.effect()
        except BaseExceptionGroup as several:
            # Raise one error of the group, because only single errors are translated for the user.
            raise several.exceptions[0] from None
        view.show(await self._frame())
        callers = sum(key.callers for key in keys)
        seconds, usage = self._watch.elapsed_s, await meter.usage()
        return DemoReport(seconds, callers, self._book.lines(), effect, usage, self._location)

    async def _call_until_over(self, key: DemoKey) -> None:
        """Call the model repeatedly; after a rejection, wait for the retry-after time."""
        watch = self._watch
        await watch.sleep(self._random.uniform(0, min(0.3, watch.total_s / 2)))
        call = key.call(self._random)
        while watch.elapsed_s < watch.total_s:
            try:
                await self._call(key.entity_id, call)
            except RateLimitExceeded as error:
                self._note_rejection(key.entity_id, error)
                await watch.sleep(error.retry_after_seconds * self._random.uniform(1, 2))
                continue
            except ModelDown:
                self._book.fail(key.entity_id)
                self._note(key.entity_id, f"call failed, {call.estimated:,} tokens given back")
            await watch.sleep(call.pause_s)
            call = key.call(self._random)

    async def _call(self, key_id: str, call: DemoCall) -> None:
        """Take the estimate, call the model, adjust to the usage. A failed call gives everything back."""
        book, difference = self._book, call.used - call.estimated
        taking = {"rpm": 1, "tpm": call.estimated}
        async with self._limiter.acquire(key_id, RESOURCE, taking) as lease:
            book.take(key_id, taking, self._clock.now_ms())
            await asyncio.sleep(call.takes_s)
            if call.fails:
                book.settle(key_id, {name: -amount for name, amount in taking.items()})
                raise ModelDown
            await lease.adjust(tpm=difference)
            book.settle(key_id, {"tpm": min(0, difference)})
        # Count a decrease before it is written and an increase after. So the ledger never shows
        # more than the table has admitted.
        book.settle(key_id, {"tpm": max(0, difference)})
        book.finish(key_id, call)
        self._note(key_id, f"estimated {call.estimated:,}, used {call.used:,}: adjusted by {difference:+,}")

    async def _show_until_over(self, view: DemoView) -> None:
        watch, ticks = self._watch, 0
        while watch.elapsed_s < watch.total_s:
            view.show(await self._frame())
            ticks += 1
            await watch.sleep(ticks * view.every_s - watch.elapsed_s)

    async def _frame(self) -> DemoFrame:
        watch = self._watch
        standings = [await self._standing(tally) for tally in self._book.tallies]
        elapsed_s = min(watch.total_s, watch.elapsed_s)
        return DemoFrame(elapsed_s, watch.total_s, standings, self._raising.progress, tuple(self._events))

    async def _standing(self, tally: DemoTally) -> DemoStanding:
        entity_id = tally.member.entity_id
        limits, _, source = await self._limiter.resolve_limits(entity_id, RESOURCE)
        balances = await self._limiter.available(entity_id, RESOURCE)
        left_s = tally.retry_at_s - self._clock.monotonic_s()
        retry_after_s = left_s if left_s > 0 else None
        return DemoStanding(tally.member, _by_name(limits), source or "", balances, tally.counts, retry_after_s)

    def _note_rejection(self, key_id: str, error: RateLimitExceeded) -> None:
        lacking = error.primary_violation
        self._book.reject(key_id, lacking.entity_id, self._clock.monotonic_s() + error.retry_after_seconds)
        by = "" if lacking.entity_id == key_id else f" by {lacking.entity_id}"
        short = f"{lacking.available:,} of {lacking.requested:,} {lacking.limit_name}"
        self._note(key_id, f"rejected{by}: {short}, retry in {in_seconds(error.retry_after_seconds)}")

    def _note(self, entity_id: str, text: str) -> None:
        self._events.append(f"{entity_id}  {text}")


def _by_name(limits: list[Limit] | None) -> dict[str, Limit]:
    return {limit.name: limit for limit in limits or ()}
