"""A flood: far more requests than a limit offers, which do not wait for each other.

    python -m tests.simulation.flood [--seeds 50]

Whoever comes too late is told so, and not that the store is away; at least 98 % of what is earned is admitted still.
"""

import asyncio
import sys
from random import Random

from tests.simulation.supply import LASTS_S, NAME, Clients, Supply, Users, print_each, supply
from zae_limiter import Limit


def flooded(seed: int) -> Supply:
    """Let the requests of a seed come for a while, and return what they got."""
    random = Random(f"flood {seed}")
    offered = random.choice((20, 50, 200, 400))
    amount = random.choice((1, 1, 2, 5))
    # Of a bucket that a request takes all of, whatever is earned between two requests is lost.
    capacity = max(5 * amount, round(offered * random.choice((0.1, 0.5, 1, 5))))
    clients = Clients(
        seed, random.choice((1, 1, 4)), Limit(NAME, capacity, offered, 1), amount, random.choice((1, 1, 4))
    )
    apart_s = clients.clients * amount / offered / random.choice((2, 4, 10))

    async def come(users: Users) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(round(LASTS_S / apart_s)):
                group.create_task(users.ask())
                await asyncio.sleep(apart_s)

    return supply(clients, come)


if __name__ == "__main__":
    sys.exit(print_each(__doc__, flooded))
