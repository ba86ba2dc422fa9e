"""A flood: far more requests than a limit offers, which do not wait for each other.

    python -m tests.simulation.flood [--seeds 50]

A request that comes too late is rejected by the limit, and never fails because the store is unavailable. At least 98 %
of what is earned is still admitted.
"""

import asyncio
import sys
from random import Random

from tests.simulation.supply import LASTS_S, NAME, Clients, Supply, Users, print_each, supply
from zae_limiter import Limit


def under_flood(seed: int) -> Supply:
    """Let the requests of a seed arrive for 20 seconds, and return what they got."""
    random = Random(f"flood {seed}")
    offered = random.choice((20, 50, 200, 400))
    amount = random.choice((1, 1, 2, 5))
    # If one request takes a whole bucket, everything that is earned between two requests overflows.
    capacity = max(5 * amount, round(offered * random.choice((0.1, 0.5, 1, 5))))
    clients = Clients(
        seed, random.choice((1, 1, 4)), Limit(NAME, capacity, offered, 1), amount, random.choice((1, 1, 4))
    )
    apart_s = clients.clients * amount / offered / random.choice((2, 4, 10))

    async def arrive(users: Users) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(round(LASTS_S / apart_s)):
                group.create_task(users.ask())
                await asyncio.sleep(apart_s)

    return supply(clients, arrive)


if __name__ == "__main__":
    sys.exit(print_each(__doc__, under_flood))
