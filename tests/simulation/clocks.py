"""Set the server's clock forward while clients run, and check that all of them follow it."""

import asyncio
from collections.abc import Sequence

from tests.simulation.fleet import Fleet
from tests.simulation.invariants import Violation
from tests.simulation.plan import STEP
from tests.simulation.server import Change, Sent

_STEPS_S = (60, 600, 3_600, 86_400)
_FAR_MS = 30_000
"""Milliseconds. No request is this late, so a write whose time is further off was decided by a wrong clock."""
_STATE = "#STATE"
_FOLLOW_MS, _FOLLOW_WRITES = 30_000, 5
"""A client follows within about a second of traffic; lost answers and wrong dates delay it."""


async def set_forward(fleet: Fleet) -> None:
    """Set the server's clock forward, once."""
    if STEP in fleet.plan.faults:
        random = fleet.plan.part("steps")
        await asyncio.sleep(fleet.scenario.seconds * random.random())
        fleet.server.step(1000 * random.choice(_STEPS_S))
        fleet.tally[STEP] += 1


class ClockFollowing:
    """Checks that no client writes by a wrong clock for long."""

    def __init__(self) -> None:
        self._off: dict[str, tuple[int, int]] = {}

    def watch(self, now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
        """Check the time of one step.

        Raises:
            Violation: Its sender has not followed the server's clock.
        """
        if not any(change.key.sk == _STATE for change in changes):
            # The time at which other writes were decided is unknown.
            return
        low, high = sent.time_bounds
        if low - _FAR_MS <= now_ms <= high + _FAR_MS:
            self._off.pop(sent.process, None)
            return
        since_ms, writes = self._off.get(sent.process, (now_ms, 0))
        self._off[sent.process] = since_ms, writes + 1
        if writes >= _FOLLOW_WRITES and now_ms - since_ms > _FOLLOW_MS:
            raise Violation("clock", sent.process, "writes by", sent.time_bounds, "at", now_ms)
