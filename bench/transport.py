"""Measure the cost of a DynamoDB call: our acquire beside a bare update_item of aiobotocore and boto3.

    bench/run                                 set up if needed, then run everything, this included
    bench/.venv/bin/python bench/transport.py --rounds 9 --calls 2000

All clients use a canned responder in its own process, so that only the client's CPU time is
measured. Our call is a whole acquire of two limits, entered and left. Their call is one UpdateItem
with a condition. Then the same is measured over a network of 2 ms, with more and more acquires at
the same time.
"""

import argparse
import asyncio
import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import canned
import responder

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository

NETWORK_MS = 2
AT_ONCE = (1, 16, 64, 256)
GOALS = (("ours, async", "aiobotocore", 0.13), ("ours, sync", "boto3", 1 / 6))

Run = Callable[[int], None]
Step = Callable[[], Awaitable[object]]


@contextmanager
def ours_sync(url: str) -> Iterator[Run]:
    """Acquire and leave."""
    with SyncRepository.open(canned.location(url)) as repository:
        acquire = SyncRateLimiter(repository).acquire

        def run(calls: int) -> None:
            for _ in range(calls):
                with acquire(canned.ENTITY, canned.RESOURCE, canned.CONSUME):
                    pass

        yield run


@contextmanager
def in_loop(opening: Callable[[], Awaitable[tuple[Step, Step]]]) -> Iterator[Run]:
    """Open a client in its own event loop, and run its calls one by one."""
    with asyncio.Runner() as runner:
        call, close = runner.run(opening())

        async def calls(count: int) -> None:
            for _ in range(count):
                await call()

        yield lambda count: runner.run(calls(count))
        runner.run(close())


def ours_async(url: str):
    async def opening():
        repository = await Repository.open(canned.location(url))
        acquire = RateLimiter(repository).acquire

        async def call() -> None:
            async with acquire(canned.ENTITY, canned.RESOURCE, canned.CONSUME):
                pass

        return call, repository.close

    return in_loop(opening)


@contextmanager
def boto3(url: str) -> Iterator[Run]:
    """Make one bare update_item."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "dynamodb", region_name="us-east-1", endpoint_url=url, config=Config(retries={"total_max_attempts": 1})
    )

    def run(calls: int) -> None:
        for _ in range(calls):
            client.update_item(**canned.UPDATE)

    yield run
    client.close()


def aiobotocore(url: str):
    async def opening():
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        config = AioConfig(retries={"total_max_attempts": 1})
        context = get_session().create_client("dynamodb", region_name="us-east-1", endpoint_url=url, config=config)
        client = await context.__aenter__()

        async def call() -> None:
            await client.update_item(**canned.UPDATE)

        async def close() -> None:
            await context.__aexit__(None, None, None)

        return call, close

    return in_loop(opening)


CASES = {"ours, async": ours_async, "aiobotocore": aiobotocore, "ours, sync": ours_sync, "boto3": boto3}


def measure(url: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """Return CPU microseconds per call, by case; the cases alternate, each opened again and warmed up."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, opened in CASES.items():
            with opened(url) as run:
                run(50)
                gc.collect()
                began_ns = time.process_time_ns()
                run(calls)
                found[name].append((time.process_time_ns() - began_ns) / calls / 1_000)
    return found


def print_costs(found: dict[str, list[float]]) -> None:
    print(f"{'CPU us per call':<24}{'minimum':>10}{'median':>10}")
    for name, times_us in found.items():
        print(f"{name:<24}{min(times_us):>10.0f}{statistics.median(times_us):>10.0f}")
    print()
    for ours, theirs, goal in GOALS:
        ratio = min(found[ours]) / min(found[theirs])
        median = statistics.median(one / two for one, two in zip(found[ours], found[theirs], strict=True))
        verdict = "reached" if ratio <= goal else "NOT REACHED"
        print(f"{ours} / {theirs}: {ratio:.3f} of minima, {median:.3f} median; goal {goal:.3f}: {verdict}")


async def at_once(url: str, width: int, calls: int) -> None:
    """Run acquires in this many tasks; print CPU microseconds per acquire, and its duration in ms."""
    async with await Repository.open(canned.location(url)) as repository:
        acquire = RateLimiter(repository).acquire
        took_ms: list[float] = []

        async def worker(count: int) -> None:
            for _ in range(count):
                began_s = time.perf_counter()
                async with acquire(canned.ENTITY, canned.RESOURCE, canned.CONSUME):
                    took_ms.append((time.perf_counter() - began_s) * 1_000)

        await asyncio.gather(*(worker(3) for _ in range(width)))
        took_ms.clear()
        began_ns = time.process_time_ns()
        began_s = time.perf_counter()
        await asyncio.gather(*(worker(calls // width) for _ in range(width)))
        rate = len(took_ms) / (time.perf_counter() - began_s)
        print(
            f"{width:>8}{(time.process_time_ns() - began_ns) / len(took_ms) / 1_000:>12.0f}{rate:>12.0f}"
            f"{statistics.median(took_ms):>10.2f}{statistics.quantiles(took_ms, n=100)[-1]:>10.2f}"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each case (7)")
    parser.add_argument("--calls", type=int, default=1_000, help="calls per measurement (1000)")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    bodies = canned.bodies()
    with responder.running(bodies) as url:
        print_costs(measure(url, options.rounds, options.calls))
    print(f"\nOver a network of {NETWORK_MS} ms, async, concurrent acquires of one bucket:")
    print(f"{'at once':>8}{'CPU us':>12}{'per second':>12}{'p50 ms':>10}{'p99 ms':>10}")
    with responder.running(bodies, latency_ms=NETWORK_MS) as url:
        for width in AT_ONCE:
            asyncio.run(at_once(url, width, max(options.calls, 8 * width)))


if __name__ == "__main__":
    main()
