"""The first three seconds of a new client on a new bucket: measure how much of what the limit offers is admitted.

    python -m tests.simulation.first_seconds [--seeds 50]

A new client knows the server's time only to the second. Users ask, wait for the time that a rejection names, and ask
again. At least 98 % of the capacity plus three seconds' refill must be admitted.
"""

import asyncio
import sys
from random import Random

from tests.simulation.fleet import Fleet, Process, prepare
from tests.simulation.levels import Tree
from tests.simulation.loop import Timeline
from tests.simulation.plan import Plan, Scenario
from tests.simulation.server import Lags, Server
from tests.simulation.supply import BUCKET, NAME, Clients, Supply, Users, print_each
from tests.simulation.table import Partitions
from zae_limiter import Limit
from zae_limiter.core.settings import make_settings

_FIRST_S = 3.0
_USERS = 8


def first_seconds(seed: int) -> Supply:
    """Open a client at a time drawn from the seed, let its users ask for three seconds, and return what they got.

    Raises:
        Violation: An invariant was violated.
    """
    random = Random(f"first seconds {seed}")
    per_s = random.choice((50, 200))
    limit = Limit(NAME, per_s * random.choice((1, 1, 60)), per_s, 1)
    clients = Clients(seed, 1, limit, 1, 1)
    timeline = Timeline()
    plan = Plan(seed, 1, 0, frozenset())
    scenario = Scenario((BUCKET[0],), Tree(), (limit,), _FIRST_S, {}, 60, 1, 1, 0, 1_000, 0.0)
    server = Server(timeline, plan.part("server"), Partitions(), Lags())
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.invariants.step)
    run = _Run(fleet, random.random())
    try:
        timeline.run(run.live())
    finally:
        timeline.close()
    offered = limit.capacity + _FIRST_S * per_s
    # Tokens that were never asked for do not count as offered.
    offered = min(offered, fleet.tally["acquires"])
    return Supply(clients, offered, run.admitted / 1000, fleet.tally["acquires"], fleet.tally["unavailable"])


class _Run:
    """One client that is opened at some time within a second."""

    def __init__(self, fleet: Fleet, phase_s: float) -> None:
        self._fleet = fleet
        self._phase_s = phase_s
        self.admitted = 0

    async def live(self) -> None:
        """Open the client, and count what its users get in the first seconds."""
        fleet = self._fleet
        first = Process(fleet, "preparation", fleet.reliable)
        first.start(prepare)
        await first.ended
        await asyncio.sleep(self._phase_s)
        client = Process(fleet, "client 0", fleet.reliable)
        client.start(self._serve)
        await client.ended
        self.admitted = fleet.holdings.accounts[BUCKET, NAME].total

    async def _serve(self, process: Process) -> None:
        limiter = await process.open(make_settings())
        users = Users(self._fleet, limiter, 1)
        until_s = users.now_s + _FIRST_S
        async with asyncio.TaskGroup() as group:
            for _ in range(_USERS):
                group.create_task(_ask_until(users, until_s))


async def _ask_until(users: Users, until_s: float) -> None:
    while users.now_s < until_s:
        wait_s = await users.ask()
        if wait_s:
            await asyncio.sleep(min(wait_s, max(0.0, until_s - users.now_s)))


if __name__ == "__main__":
    sys.exit(print_each(__doc__, first_seconds))
