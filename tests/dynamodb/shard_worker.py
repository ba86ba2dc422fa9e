"""A worker process on a sharded bucket: its tasks take from the bucket until a single token is lacking.

Usage: ``python -m tests.dynamodb.shard_worker URL COUNT LARGE SEED``

It prints ``ready``, waits for a line on stdin, and works. Then it prints the admitted tokens, those
admitted in requests of ``LARGE`` tokens, and the number of rejected requests of that size.
"""

import asyncio
import sys
from random import Random

from zae_limiter import RateLimiter, RateLimitExceeded, Repository

BUCKET = ("shared", "api")
LIMIT_NAME = "rpm"
OFTEN = 0.002


class Tally:
    """Counters of admitted and rejected requests."""

    def __init__(self) -> None:
        self.admitted = self.large = self.rejected = 0


async def work(limiter: RateLimiter, random: Random, large: int, tally: Tally) -> None:
    """Take single tokens, and sometimes a large number of them."""
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
