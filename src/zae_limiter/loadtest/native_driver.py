"""Drive a limiter with asyncio, in one process. It needs no Locust file.

With a rate, calls are sent on a schedule, whether or not earlier ones have ended, and latencies
count from the scheduled time. Without a rate, each user sends its next call when the last one has
ended.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from random import Random

from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.core.errors import (
    EntityExistsError,
    NoLimitsInForceError,
    RateLimitExceeded,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import check_resource
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.metering import open_metered, sample_shards
from zae_limiter.loadtest.recorder import ACQUIRE, COMMIT, Recorder

PARENT_ID = "loadtest"
"""The parent of all entities with cascade."""
MEMORY_CALLS_PER_S = 1000
"""In memory, where no command can have stored limits, each entity may make this many calls per second."""
_MOST_IN_FLIGHT = 1000
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.05
"""A rejected user retries after this many seconds, so that the demand never ends but is not only rejections."""
_TIMER_S = 0.002
"""Event loops sleep to about a millisecond. The rest of a shorter wait yields to other tasks instead."""
_EVERY_S = 1.0
_GRACE_S = 0.5
"""Calls that are due but late are still sent within this many seconds after the end."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What to call, and how often.

    ``limits`` replace the stored ones; None for the stored ones. ``rate`` is in calls per second;
    None for ``users`` that call without a pause.

    Raises:
        ValidationError: A value is invalid.
    """

    consume: Mapping[str, int]
    resource: str = "loadtest"
    limits: Sequence[Limit] | None = None
    entities: int = 1
    rate: float | None = None
    users: int = 20
    cascade: bool = False
    adjust: bool = False
    duration_s: float = 60.0

    def __post_init__(self) -> None:
        check_resource(self.resource)
        numbers = {"entities": self.entities, "users": self.users, "duration": self.duration_s, "rate": self.rate}
        for name, number in numbers.items():
            if number is not None and not (0 < number < math.inf):
                raise ValidationError(name, number, "must be above 0")

    @property
    def entity_ids(self) -> list[str]:
        """The entities that are limited."""
        kind = "child" if self.cascade else "entity"
        return [f"{PARENT_ID}-{kind}-{number + 1}" for number in range(self.entities)]


@dataclass(frozen=True, slots=True)
class NativeProgress:
    """How far a test is."""

    elapsed_s: float
    admitted: int
    rejected: int
    errors: int


@dataclass
class NativeRun:
    """A test of a workload; set ``stop`` to end it early."""

    workload: Workload
    recorder: Recorder = field(default_factory=Recorder)
    random: Random = field(default_factory=Random)
    listener: Callable[[NativeProgress], None] = lambda _: None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_url(self, url: str | None, namespace: str = "default") -> Measurements:
        """Run the test on the table of a URL.

        Raises:
            NoLimitsInForceError: No limits are stored for the resource.
            ValidationError: The URL or the workload is invalid, or an amount is above a capacity.
            InfrastructureError: The table cannot be used; the error says why.
        """
        async with await open_metered(url, self.recorder, namespace=namespace) as repository:
            limiter = RateLimiter(repository)
            await prepare(limiter, self.workload, may_store_limits=url == "memory://")
            sampler = asyncio.create_task(self._watch(repository))
            try:
                return await self.on_limiter(limiter)
            finally:
                sampler.cancel()
                with suppress(asyncio.CancelledError):
                    await sampler

    async def on_limiter(self, limiter: RateLimiter) -> Measurements:
        """Run the test on an open limiter, whose entities and limits exist."""
        # Setting up is no part of the test.
        self.recorder.take_measurements()
        calls = _Calls(limiter, self.workload, self.recorder, self.random)
        unsent = 0
        if self.workload.rate is None:
            await self._closed_loop(calls)
        else:
            unsent = await self._open_loop(calls, self.workload.rate)
        measured = self.recorder.take_measurements()
        measured.unsent += unsent
        return measured

    async def _closed_loop(self, calls: "_Calls") -> None:
        end_s = self.recorder.now_s() + self.workload.duration_s

        async def call_repeatedly() -> None:
            while not self.stop.is_set() and self.recorder.now_s() < end_s:
                retry_after_s = await calls.make(None)
                # Without a wait, a call in memory would not let the other users call.
                await asyncio.sleep(retry_after_s and min(max(retry_after_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S))

        await asyncio.gather(*(call_repeatedly() for _ in range(self.workload.users)))

    async def _open_loop(self, calls: "_Calls", rate: float) -> int:
        """Send calls on a schedule, and return how many were not sent in time."""
        start_s, in_flight = self.recorder.now_s(), set[asyncio.Task[float]]()
        planned = math.ceil(self.workload.duration_s * rate)
        for number in count():
            due_s = start_s + number / rate
            await self._wait_for_turn(due_s, in_flight)
            is_over = self.recorder.now_s() >= start_s + self.workload.duration_s + _GRACE_S
            if number >= planned or is_over or self.stop.is_set():
                break
            task = asyncio.create_task(calls.make(due_s))
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
            if number % 100 == 0:
                # A driver that is late sends many calls without a wait.
                await asyncio.sleep(0)
        await asyncio.gather(*in_flight)
        return 0 if self.stop.is_set() else planned - number

    async def _wait_for_turn(self, due_s: float, in_flight: Collection[object]) -> None:
        """Wait until a call is due, and until there are not too many in flight."""
        while True:
            left_s = due_s - self.recorder.now_s()
            if left_s <= 0 and len(in_flight) < _MOST_IN_FLIGHT:
                return
            await asyncio.sleep(left_s - _TIMER_S if left_s > 2 * _TIMER_S else 0)

    async def _watch(self, repository: Repository) -> None:
        """Sample the shards and report the progress, about once per second."""
        start_s = self.recorder.now_s()
        while True:
            await asyncio.sleep(_EVERY_S)
            sample_shards(repository.scope, self.recorder)
            self.listener(NativeProgress(self.recorder.now_s() - start_s, *self.recorder.so_far()))


async def prepare(limiter: RateLimiter, workload: Workload, *, may_store_limits: bool) -> None:
    """Create the entities of a workload, and check that its calls are possible.

    Raises:
        NoLimitsInForceError: No limits are stored for the resource, and none may be stored.
        ValidationError: A limit of the workload is not in force.
        AmountExceedsCapacityError: An amount is above a capacity.
    """
    if workload.cascade:
        await _create(limiter, PARENT_ID, None)
        for entity_id in workload.entity_ids:
            await _create(limiter, entity_id, PARENT_ID)
    asked = (workload.entity_ids[0], workload.resource, dict(workload.consume))
    try:
        await limiter.time_until_available(*asked, workload.limits)
    except NoLimitsInForceError:
        if not may_store_limits:
            raise
        limits = [
            Limit.per_second(name, max(1, amount) * MEMORY_CALLS_PER_S) for name, amount in workload.consume.items()
        ]
        await limiter.set_resource_defaults(workload.resource, limits)
        await limiter.time_until_available(*asked)


async def _create(limiter: RateLimiter, entity_id: str, parent_id: str | None) -> None:
    with suppress(EntityExistsError):
        await limiter.create_entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)


class _Calls:
    """Makes the calls of a workload, one entity after the other."""

    def __init__(self, limiter: RateLimiter, workload: Workload, recorder: Recorder, random: Random) -> None:
        self._limiter = limiter
        self._workload = workload
        self._consume = dict(workload.consume)
        self._recorder = recorder
        self._random = random
        self._entity_ids = cycle(workload.entity_ids)

    async def make(self, due_s: float | None) -> float:
        """Make one call, and return the seconds after which a retry may be admitted; 0 if it was not rejected."""
        recorder, consume = self._recorder, self._consume
        began_s = recorder.now_s()
        times = (began_s, None) if due_s is None else (due_s, began_s)
        lease: Lease | None = None
        change = self._change() if self._workload.adjust else {}
        try:
            acquire = self._limiter.acquire
            async with acquire(
                next(self._entity_ids), self._workload.resource, consume, self._workload.limits
            ) as lease:
                recorder.admitted(lease, consume, times[0], recorder.now_s(), times[1])
                if change:
                    lease.adjust(**change)
                    began_s = recorder.now_s()
            if change:
                recorder.settled(lease, change, began_s, recorder.now_s())
        except RateLimitExceeded as rejection:
            recorder.rejected(rejection, times[0], recorder.now_s(), times[1])
            return rejection.next_try_seconds
        except ZAELimiterError as error:
            if lease is None:
                recorder.failed(ACQUIRE, error, times[0], recorder.now_s(), times[1])
            else:
                recorder.failed(COMMIT, error, began_s, recorder.now_s())
        return 0.0

    def _change(self) -> dict[str, int]:
        """Return a correction of up to half of each amount, or of one token if an amount is 1."""
        most = {name: max(1, amount // 2) for name, amount in self._consume.items()}
        drawn = {name: self._random.randint(-largest, largest) for name, largest in most.items()}
        return {name: amount for name, amount in drawn.items() if amount}
