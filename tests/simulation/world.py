"""Simulated time on asyncio's own loop, and clients of one simulated table that run on it.

The limiter's code runs unchanged: its sleeps, timeouts and tasks are asyncio's, and asyncio asks the loop for the time.
The same seed gives the same run, event by event.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from tests.simulation.table import Partitions, SimulatedTable
from zae_limiter import RateLimiter, Repository
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client, Nonces
from zae_limiter.core.settings import Settings
from zae_limiter.runtime.aio import Parallel

T = TypeVar("T")

START_MS = 1_700_006_395_123
"""A few seconds before midnight, so that usage falls into two hours and two days."""


class StalledError(RuntimeError):
    """Every task waits for another, and no timer is left that could wake one."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stops while anything can run, and then jumps to the next timer."""

    def __init__(self) -> None:
        self._time_s = 0.0
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        """Return the seconds since the start of the simulation."""
        return self._time_s

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            raise StalledError("a task waits, and no callback is left that could wake it")
        self._time_s += seconds


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc, valid-type] # the class depends on the platform
    """A selector that reports ready files, and advances the clock instead of waiting."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and timeout != 0:
            self._jump(timeout)
        return ready


class LoopClock:
    """The time of day and the monotonic time of the running loop; ``ahead_ms`` is the error of the time of day."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._start_ms = START_MS + ahead_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()


class World:
    """One simulated table and the clients that were opened on it."""

    def __init__(self, seed: int, partitions: Partitions | None = None) -> None:
        self.random = Random(seed)
        self.clock = LoopClock(asyncio.get_running_loop())
        self.table = SimulatedTable(self.clock, self._part("table"), partitions or Partitions())

    async def client(self, name: str, settings: Settings | None = None) -> Repository:
        """Return a client with its own caches and random numbers, as another process would have them."""
        random = self._part(name)
        client = Client(
            self.table,
            self.clock,
            random,
            settings or Settings(),
            Parallel(),
            "dynamodb://simulated?region=us-east-1",
            Nonces(random),
        )
        namespace = await NamespaceStore(client).register("default")
        return Repository(client.scope("default", namespace.id), owns_table=False)

    async def limiter(self, name: str, *, group_commit: bool = True) -> RateLimiter:
        """Return a limiter on a client of its own."""
        return RateLimiter(await self.client(name), group_commit=group_commit)

    def _part(self, name: str) -> Random:
        """Return random numbers for one part of the world, independent of the other parts."""
        return Random(f"{name} {self.random.getrandbits(64)}")


def simulate(scenario: Callable[..., Coroutine[Any, Any, T]], *args: Any, **chosen: Any) -> T:
    """Run a scenario to its end in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(scenario(*args, **chosen))
