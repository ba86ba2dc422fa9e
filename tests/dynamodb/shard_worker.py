"""One process of a run on shards: tasks that take from one bucket until it lacks a single token.

    python -m tests.dynamodb.shard_worker URL COUNT LARGE SEED

It says ``ready``, waits for a line on stdin, works, and prints what was admitted in all, what of it in requests of
``LARGE`` tokens, and how many requests of these were rejected.
"""

import asyncio
import sys
from random import Random

from zae_limiter import RateLimiter, RateLimitExceeded, Repository

BUCKET = ("shared", "api")
LIMIT_NAME = "rpm"
OFTEN = 0.002


class Tally:
    """What was admitted and what was not."""

    def __init__(self) -> None:
        self.admitted = self.large = self.rejected = 0


async def work(limiter: RateLimiter, random: Random, large: int, tally: Tally) -> None:
    """Take one token after the other, and now and then very many."""
    while True:
        tokens = large if random.random() < OFTEN else 1
        try:
            async with limiter.acquire(*BUCKET, {LIMIT_NAME: tokens}):
                tally.admitted += tokens
                tally.large += tokens if tokens == large else 0
        except RateLimitExceeded:
            if tokens == 1:
                return
            tally.rejected += 1


async def main() -> None:
    url, count, large, seed = sys.argv[1:]
    tally = Tally()
    async with await Repository.open(url, deadline_s=60, reject_locally_s=0) as repo:
        limiter = RateLimiter(repo)
        await limiter.available(*BUCKET)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        random = Random(int(seed))
        await asyncio.gather(*(work(limiter, random, int(large), tally) for _ in range(int(count))))
    sys.stdout.write(f"{tally.admitted} {tally.large} {tally.rejected}\n")


if __name__ == "__main__":
    asyncio.run(main())
