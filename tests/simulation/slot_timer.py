"""Renews slots in simulated time, instead of a thread."""

from collections.abc import Awaitable, Callable
from random import Random

from tests.simulation.loop import ProcessLoop

_PAUSED, _LONGEST_PAUSE_S = 0.03, 25.0
"""The share of wake-ups that come late, because the process was paused, and the longest pause."""


class SlotTimer:
    """Runs the renewals of a client when they are due. It has the interface of ``OwnThread``."""

    def __init__(self, loop: ProcessLoop, due: Callable[[], Awaitable[float]], random: Random) -> None:
        self._loop = loop
        self._due = due
        self._random = random
        self._wake_s = float("inf")
        self._running = self._stopped = False

    def wake_in(self, seconds: float) -> bool:
        """Run the renewals after at most this many seconds; return False if they were stopped."""
        if self._random.random() < _PAUSED:
            seconds += _LONGEST_PAUSE_S * self._random.random()
        at_s = self._loop.time() + seconds
        if at_s < self._wake_s and not self._stopped:
            self._wake_s = at_s
            self._loop.call_later(max(0.001, seconds), self._wake, at_s)
        return not self._stopped

    def stop(self) -> None:
        """Run nothing any more."""
        self._stopped = True

    def _wake(self, at_s: float) -> None:
        if at_s == self._wake_s and not self._stopped and not self._running:
            self._wake_s = float("inf")
            self._running = True
            self._loop.create_task(self._run())

    async def _run(self) -> None:
        next_s = 60.0
        try:
            next_s = await self._due()
        finally:
            self._running = False
            self._wake_s = float("inf")
        self.wake_in(next_s)
