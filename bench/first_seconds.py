"""Measure what a newly opened DynamoDB client admits in its first seconds on a new bucket of a local engine.

    .venv/bin/python bench/first_seconds.py [--runs 5] [--engine dynoxide]

Users make a request, wait for the retry-after time of a rejection, and try again. The output is the
part of the capacity and of three seconds' refill that was admitted. It also counts the reads that
located the turn of the server's second. The exit code is 1 if the median of a limit is below 98 %.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.dynamodb.engines import fresh_table_name, running
from tests.dynamodb.ledgers import table_url
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import session
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

FIRST_S = 3.0
USERS = 8
LEAST = 0.98
RATES = (50, 200)


async def main():
    """Run all rates, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs per rate (5)")
    parser.add_argument("--engine", default="dynoxide", help="engine to use (dynoxide)")
    chosen = parser.parse_args()
    failed = False
    for rate in RATES:
        shares = []
        for number in range(chosen.runs):
            # Start at different times within a second.
            await asyncio.sleep(number / chosen.runs)
            share, reads = await one_run(running(chosen.engine).url, rate)
            shares.append(share)
            print(f"{rate:4} per second: {share:7.2%} admitted, {reads} reads of the time", flush=True)
        median = statistics.median(shares)
        failed = failed or median < LEAST
        print(f"{rate:4} per second: {median:7.2%} is the median of {chosen.runs}")
    return int(failed)


async def one_run(engine_url, rate):
    """Open a client on a new table; return the admitted part and the number of reads of the time."""
    url = table_url(fresh_table_name(), engine_url)
    async with await Repository.open(url, session=session()) as first:
        await RateLimiter(first).set_system_defaults([Limit("rps", rate, rate, 1)])
    with Proxy(engine_url) as proxy:
        async with await Repository.open(url.replace(engine_url, proxy.url), session=session()) as repository:
            limiter = RateLimiter(repository)
            begun_s = time.monotonic()
            admitted = sum(await asyncio.gather(*(want(limiter, begun_s + FIRST_S) for _ in range(USERS))))
            reads = sum(seen.target == "GetItem" and "#VERSION" in str(seen.body) for seen in proxy.seen)
    return admitted / (rate + FIRST_S * rate), reads


async def want(limiter, until_s):
    """Make requests until the time is over, and return how many were admitted."""
    admitted = 0
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            async with limiter.acquire("user-1", "api", {"rps": 1}):
                admitted += 1
        except RateLimitExceeded as exceeded:
            await asyncio.sleep(min(exceeded.retry_after_seconds, left_s))
    return admitted


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
