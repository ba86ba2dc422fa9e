"""A load test of the real limiter in simulated time, and wrappers that make the limiter faulty."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from tests.loadtest.simulated_clock import SimulatedClock
from zae_limiter import Limit, LimitStatus, RateLimitExceeded, SyncRateLimiter
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.recorder import Recorder

RESOURCE = "api"


class SomeLimiter(Protocol):
    """What a simulated user calls."""

    def acquire(self, entity_id: str, resource: str, consume: dict[str, int]) -> Any:
        """Take, and yield a lease."""


class PromisedLease:
    """A lease that reports the promised limits, whatever is in force."""

    def __init__(self, lease: Any, promised: Mapping[str, Limit]) -> None:
        self._lease = lease
        self._promised = promised

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    @property
    def statuses(self) -> list[LimitStatus]:
        return _promised(self._lease.statuses, self._promised)


@dataclass(frozen=True, slots=True)
class OverAdmitting:
    """A limiter that promises lower limits than it applies."""

    limiter: SyncRateLimiter
    promised: Mapping[str, Limit]

    @contextmanager
    def acquire(self, entity_id: str, resource: str, consume: dict[str, int]) -> Iterator[PromisedLease]:
        try:
            with self.limiter.acquire(entity_id, resource, consume) as lease:
                yield PromisedLease(lease, self.promised)
        except RateLimitExceeded as error:
            raise RateLimitExceeded(_promised(error.statuses, self.promised)) from None


class Losing:
    """A limiter that takes the tokens of every nineteenth call twice, which loses 5 %."""

    def __init__(self, limiter: SyncRateLimiter) -> None:
        self._limiter = limiter
        self._admitted = 0

    @contextmanager
    def acquire(self, entity_id: str, resource: str, consume: dict[str, int]) -> Iterator[Any]:
        with self._limiter.acquire(entity_id, resource, consume) as lease:
            self._admitted += 1
            if self._admitted % 19 == 0:
                lease.adjust(**consume)
            yield lease


def _promised(statuses: Sequence[LimitStatus], promised: Mapping[str, Limit]) -> list[LimitStatus]:
    return [replace(status, limit=promised[status.limit_name]) for status in statuses]


@dataclass(slots=True)
class SimulatedUsers:
    """Calls in simulated time, each at one of several limiters that share a store, as processes do.

    ``adjusts`` is the share of the admitted calls that are corrected by up to their amount, and
    ``fails`` the share that give everything back.
    """

    limiters: Sequence[SomeLimiter]
    clock: SimulatedClock
    consume: Mapping[str, int]
    entity_ids: Sequence[str] = ("user",)
    calls_per_s: float = 150.0
    adjusts: float = 0.0
    fails: float = 0.0

    def run(self, duration_s: float) -> Measurements:
        """Return what all processes measured, merged as they were sent."""
        random, recorders = Random(7), [Recorder(self.clock.now_s) for _ in self.limiters]
        end_s = self.clock.time_s + duration_s
        while self.clock.time_s < end_s:
            self.clock.time_s += random.expovariate(self.calls_per_s)
            number = random.randrange(len(self.limiters))
            self._call(self.limiters[number], recorders[number], random)
        total = Measurements()
        for recorder in recorders:
            sent = json.dumps(recorder.take_measurements().to_dict())
            total.merge(Measurements.from_dict(json.loads(sent)))
        return total

    def _call(self, limiter: SomeLimiter, recorder: Recorder, random: Random) -> None:
        consume, began_s = dict(self.consume), self.clock.now_s()
        lease, change = None, dict[str, int]()
        try:
            with limiter.acquire(random.choice(self.entity_ids), RESOURCE, consume) as lease:
                recorder.admitted(lease, consume, began_s, self.clock.now_s())
                if random.random() < self.fails:
                    change = {name: -amount for name, amount in consume.items()}
                    raise ConnectionResetError
                if random.random() < self.adjusts:
                    change = {name: random.randint(-amount, amount) for name, amount in consume.items()}
                    lease.adjust(**change)
        except RateLimitExceeded as error:
            recorder.rejected(error, began_s, self.clock.now_s())
        except ConnectionResetError:
            pass
        if lease is not None and any(change.values()):
            recorder.settled(lease, change, self.clock.now_s(), self.clock.now_s())
