"""Run the demo: processes that call at the same time, the steps one after the other, and a view of them."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.outage import fail_and_recover
from zae_limiter.cli.demo.processes import KeyProcess
from zae_limiter.cli.demo.progress import DemoFrame, DemoReport, DemoStanding, DemoView, Step, StepState
from zae_limiter.cli.demo.raising import Raising, Stopwatch
from zae_limiter.cli.demo.reports import Report, event_text
from zae_limiter.cli.demo.scenario import PROJECTS, RAISED, RESOURCE, Member, members
from zae_limiter.cli.demo.steps import StepAction, StepFailedError, stream_into_debt, wait_for_retry_after
from zae_limiter.cli.demo.stored import read_usage
from zae_limiter.cli.demo.tally import Book, DemoTally
from zae_limiter.clock import Clock
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit

EVENTS_KEPT = 40
SHARE = 0
RAISE = 3
STEPS = (
    ("share", "several processes share one SQLite file and its limits"),
    ("wait", "a rejected caller waits exactly retry_after, and is admitted"),
    ("debt", "a stream uses more than its estimate, and repays the debt"),
    ("raise", "an operator raises the limit of demo-project-2 while calls run"),
    ("outage", "a store fails and recovers; on_unavailable decides"),
)
# When each step but the first begins, as a part of the whole time, or later if the step before is not done.
BEGINNINGS = (0.1, 0.2, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class Stage:
    """The limiter and the repository on the shared file, the path of the second file, and the clock."""

    limiter: RateLimiter
    operator: Repository
    outage_path: str
    clock: Clock


async def make_book(stage: Stage) -> Book:
    """Return a book with the limits in force, for every project and key."""
    start_ms = stage.clock.now_ms()
    return Book([await _tally(stage, member, start_ms) for member in members(PROJECTS)], start_ms)


async def _tally(stage: Stage, member: Member, start_ms: int) -> DemoTally:
    limits = (await stage.limiter.resolve_limits(member.entity_id, RESOURCE)).limits
    return DemoTally(member, limits or (), start_ms)


class Show:
    """A run of the demo on one file."""

    def __init__(self, stage: Stage, book: Book, seconds: float) -> None:
        self._limiter = stage.limiter
        self._outage_path = stage.outage_path
        self._clock = stage.clock
        self._book = book
        self._watch = Stopwatch(stage.clock, seconds)
        self._raising = Raising(RAISED, stage.operator, book, self._watch)
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._steps = [Step(name, StepState.WAITING, text) for name, text in STEPS]

    async def run(self, processes: list[KeyProcess], view: DemoView, stop: asyncio.Event) -> DemoReport:
        """Run all steps at least for the whole time, or until the stop event. Then end the processes."""
        try:
            async with asyncio.TaskGroup() as group:
                for process in processes:
                    group.create_task(process.read(self._record))
                steps = group.create_task(self._run_steps())
                await self._show_until_over(view, steps, stop)
                seconds, effect = self._watch.elapsed_s, self._raising.effect()
                steps.cancel()
                await asyncio.gather(*(process.stop() for process in processes))
        except BaseExceptionGroup as several:
            # Raise one error of the group, because only single errors are translated for the user.
            raise several.exceptions[0] from None
        self._end_steps(effect)
        view.show(await self._frame())
        left = {one.member.entity_id: await self._left(one) for one in self._book.tallies}
        lines = self._book.lines(left, self._clock.now_ms())
        usage = await read_usage(self._limiter, [one.key_id for one in processes], self._book.start_ms)
        return DemoReport(seconds, len(processes), lines, self._steps, usage, stop.is_set())

    async def _run_steps(self) -> None:
        """Run the steps one after the other."""
        actions: list[StepAction] = [
            partial(wait_for_retry_after, self._limiter),
            partial(stream_into_debt, self._limiter),
            self._raising.run,
            partial(fail_and_recover, self._outage_path),
        ]
        self._set(SHARE, state=StepState.RUNNING)
        for place, (begins_at, action) in enumerate(zip(BEGINNINGS, actions, strict=True), start=1):
            await self._watch.sleep_until(begins_at * self._watch.total_s)
            if place == RAISE - 1:
                # By now the callers have used up what the buckets held.
                self._raising.mark()
            await self._run_step(place, action)

    async def _run_step(self, place: int, action: StepAction) -> None:
        self._set(place, state=StepState.RUNNING)
        try:
            text = await action(lambda text: self._set(place, text=text))
        except StepFailedError as error:
            self._set(place, state=StepState.FAILED, text=str(error))
        else:
            self._set(place, state=StepState.DONE, text=text)

    async def _show_until_over(self, view: DemoView, steps: asyncio.Task[None], stop: asyncio.Event) -> None:
        watch, ticks = self._watch, 0
        while not stop.is_set() and not (watch.elapsed_s >= watch.total_s and steps.done()):
            view.show(await self._frame())
            # A late frame is skipped rather than made up for.
            ticks = max(ticks + 1, round(watch.elapsed_s / view.every_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, ticks * view.every_s - watch.elapsed_s))

    def _end_steps(self, effect: str) -> None:
        """Complete the first step and the raise, and mark the steps that were not reached."""
        for place, step in enumerate(self._steps):
            if step.state in (StepState.WAITING, StepState.RUNNING):
                self._set(place, state=StepState.SKIPPED, text="interrupted before it was complete")
        raised = self._steps[RAISE]
        if raised.state is StepState.DONE:
            self._set(RAISE, text=f"{raised.text}{effect}")
        self._set(SHARE, state=StepState.DONE, text=self._shared())

    async def _frame(self) -> DemoFrame:
        watch = self._watch
        if self._steps[SHARE].state is StepState.RUNNING:
            self._set(SHARE, text=f"{self._shared()} so far")
        standings = [await self._standing(tally) for tally in self._book.tallies]
        elapsed_s = min(watch.total_s, watch.elapsed_s)
        return DemoFrame(elapsed_s, watch.total_s, standings, tuple(self._steps), tuple(self._events))

    def _shared(self) -> str:
        keys = [one for one in self._book.tallies if one.member.is_key]
        admitted, rejected = sum(one.counts.admitted for one in keys), sum(one.counts.rejected for one in keys)
        return f"{len(keys)} processes on one file: {admitted:,} calls admitted, {rejected:,} rejected"

    async def _standing(self, tally: DemoTally) -> DemoStanding:
        limits, _, source = await self._limiter.resolve_limits(tally.member.entity_id, RESOURCE)
        left_s = (tally.retry_at_ms - self._clock.now_ms()) / 1000
        retry_after_s = left_s if left_s > 0 else None
        balances = await self._left(tally)
        return DemoStanding(tally.member, _by_name(limits), source or "", balances, tally.counts, retry_after_s)

    async def _left(self, tally: DemoTally) -> dict[str, int]:
        return await self._limiter.available(tally.member.entity_id, RESOURCE)

    def _record(self, key_id: str, report: Report) -> None:
        self._book.record(key_id, report)
        text = event_text(key_id, report)
        if text is not None:
            self._events.append(f"{key_id}  {text}")

    def _set(self, place: int, *, state: StepState | None = None, text: str | None = None) -> None:
        """Change the state or the text of a step; None keeps it."""
        step = self._steps[place]
        self._steps[place] = Step(step.name, state or step.state, step.text if text is None else text)


async def start_processes(
    path: str, seed: int, say: Callable[[str], None], closing: AsyncExitStack
) -> list[KeyProcess]:
    """Start one process per key on the file at this path, and report the progress.

    The exit stack closes each of them, also if starting the others is interrupted. A process that survived would
    create the file again after it was removed.
    """
    keys = [key for project in PROJECTS for key in project.keys]
    started = []
    for number, key in enumerate(keys, start=1):
        say(f"Starting process {number} of {len(keys)}")
        process = await KeyProcess.start(path, key.entity_id, seed + number)
        closing.push_async_callback(process.close)
        started.append(process)
    for number, process in enumerate(started):
        say(f"{number} of {len(keys)} processes are ready")
        await process.wait_until_ready()
    return started


def _by_name(limits: list[Limit] | None) -> dict[str, Limit]:
    return {limit.name: limit for limit in limits or ()}
