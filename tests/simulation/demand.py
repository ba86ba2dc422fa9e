"""Constant demand without faults: measure how much of what a limit offers is admitted.

    python -m tests.simulation.demand [--seeds 50]

Users ask, wait for the time that a rejection names, and ask again. At least 98 % of what is earned must be admitted,
for any number of clients, on one shard or several, with group commit or without.
"""

import asyncio
import sys
from random import Random

from tests.simulation.supply import LASTS_S, NAME, Clients, Supply, Users, print_each, supply
from zae_limiter import Limit

_USERS = 3


def under_demand(seed: int) -> Supply:
    """Let the users of a seed ask for 20 seconds, and return what they got."""
    random = Random(f"demand {seed}")
    per_s = random.choice((10, 20, 50, 100, 200))
    capacity = per_s * random.choice((1, 2, 5))
    amount = random.choice((1, 1, 2, 5))
    limit = Limit(NAME, capacity, per_s, 1)
    clients = Clients(seed, random.choice((1, 2, 4, 8, 16, 32)), limit, amount, random.choice((1, 1, 2, 4)))
    return supply(clients, _arrive)


async def _arrive(users: Users) -> None:
    until_s = users.now_s + LASTS_S
    async with asyncio.TaskGroup() as group:
        for _ in range(_USERS):
            group.create_task(_ask_until(users, until_s))


async def _ask_until(users: Users, until_s: float) -> None:
    while users.now_s < until_s:
        wait_s = await users.ask()
        if wait_s:
            await asyncio.sleep(wait_s)


if __name__ == "__main__":
    sys.exit(print_each(__doc__, under_demand))
