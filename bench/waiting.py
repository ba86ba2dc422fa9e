"""Measure requests that wait, beside the blocking modes of other libraries: time to drain, order and CPU.

    bench/.venv/bin/python bench/waiting.py [--rounds 3]

Four figures.

- 50 requests at 5 per second, all started at the same moment. Five are admitted at once, so the ideal is 9 seconds.
  It shows the seconds until the last is admitted, how many are out of order, and the CPU time per request.
- A large request, for 5 tokens, and 45 small ones: the place at which the large one was admitted (ideal: the first).
- CPU time per waiting request in memory, beyond a request that does not wait, and beyond its task.
- Memory per waiting request, beyond its task.

The peers are only measured, as their documentation shows. pyrate-limiter: `try_acquire_async`, which blocks.
aiolimiter: `async with limiter`. Both limit one process.
"""

import argparse
import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise

import aiolimiter
import pyrate_limiter

from zae_limiter import Limit, Queue, RateLimiter, Repository

RATE, REQUESTS, BURST = 5, 50, 5
WAITERS = 10_000

Take = Callable[[int], Awaitable[object]]


async def ours() -> Take:
    """Return a function that takes tokens, and waits for them."""
    limiter = await _limiter([Limit.per_second("rps", RATE, burst=BURST)])

    async def take(amount: int) -> None:
        async with limiter.acquire("user", "api", {"rps": amount}, max_wait=120):
            pass

    return take


async def pyrate() -> Take:
    """Return the same of pyrate-limiter: it keeps a log of the last second."""
    limiter = pyrate_limiter.Limiter(pyrate_limiter.Rate(RATE, pyrate_limiter.Duration.SECOND))
    return lambda amount: limiter.try_acquire_async("user", amount)


async def aio() -> Take:
    """Return the same of aiolimiter: a leaky bucket."""
    limiter = aiolimiter.AsyncLimiter(BURST, BURST / RATE)
    return limiter.acquire


async def _limiter(limits: list[Limit]) -> RateLimiter:
    repo = await Repository.open("memory://")
    await repo.set_system_defaults(limits)
    return RateLimiter(repo, queue=Queue(max_waiting=2 * WAITERS))


async def drain(make: Callable[[], Awaitable[Take]], amounts: list[int]) -> tuple[float, list[int], float]:
    """Return the seconds until all are admitted, their numbers in the order of admission, and the CPU seconds."""
    take, order = await make(), []

    async def one(number: int, amount: int) -> None:
        await take(amount)
        order.append(number)

    began_s, cpu_s = time.monotonic(), time.process_time()
    await asyncio.gather(*[one(number, amount) for number, amount in enumerate(amounts)])
    return time.monotonic() - began_s, order, time.process_time() - cpu_s


def compare(rounds: int) -> None:
    """Print time to drain, order and CPU of all libraries."""
    ideal_s = (REQUESTS - BURST) / RATE
    print(f"{REQUESTS} requests at {RATE} per second, {BURST} at once; ideal {ideal_s:.2f} s")
    print(f"{'':16}{'seconds':>9}{'of ideal':>10}{'out of order':>14}{'CPU us each':>13}{'large one is':>14}")
    for name, make in (("zae-limiter", ours), ("pyrate-limiter", pyrate), ("aiolimiter", aio)):
        found = [asyncio.run(drain(make, [1] * REQUESTS)) for _ in range(rounds)]
        seconds = statistics.median(one[0] for one in found)
        cpu_us = min(one[2] for one in found) / REQUESTS * 1e6
        swapped = max(sum(a > b for a, b in pairwise(order)) for _, order, _ in found)
        # The bucket is emptied first. Then a large request comes, and small ones after it.
        _, order, _ = asyncio.run(drain(make, [BURST, BURST, *[1] * (REQUESTS // 2)]))
        print(
            f"{name:16}{seconds:9.3f}{seconds / ideal_s:10.4f}{swapped:14}{cpu_us:13.1f}{order.index(1):>11} of "
            f"{REQUESTS // 2 + 1}"
        )


async def cpu_of_wait(*, waits: bool) -> float:
    """Return the CPU microseconds of a request, from its task to its end.

    All wait for one lease, which releases its tokens. So no time passes in which nothing runs.
    """
    limiter, gate = await _limiter([Limit.custom("rps", WAITERS, 1, 1_000_000)]), asyncio.Event()
    async with limiter.acquire("user", "api", {"rps": 1}):
        pass

    async def one() -> None:
        if not waits:
            await gate.wait()
        async with limiter.acquire("user", "api", {"rps": 1}, max_wait=float("inf") if waits else None):
            pass

    held = limiter.acquire("user", "api", {"rps": WAITERS - 1})
    gc.collect()
    began_s = time.process_time()
    if waits:
        await held.__aenter__()
    tasks = [asyncio.create_task(one()) for _ in range(WAITERS - 1)]
    await asyncio.sleep(0)
    if waits:
        await held.__aexit__(ValueError, ValueError(), None)
    gate.set()
    await asyncio.gather(*tasks)
    return (time.process_time() - began_s) / WAITERS * 1e6


async def memory_of_wait(*, waits: bool) -> float:
    """Return the bytes of a request that waits, or of a task that waits for an event."""
    limiter, never = await _limiter([Limit.custom("rps", 1, 1, 1)]), asyncio.Event()
    async with limiter.acquire("user", "api", {"rps": 1}):
        pass

    async def one() -> None:
        if not waits:
            await never.wait()
        # The task calls a coroutine with a lease in both cases.
        async with limiter.acquire("user", "api", {"rps": 1}, max_wait=1e9):
            await never.wait()

    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.create_task(one()) for _ in range(WAITERS)]
    await asyncio.sleep(0.1)
    gc.collect()
    found = (tracemalloc.get_traced_memory()[0] - before) / WAITERS
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-cost", action="store_true", help="only CPU and memory of a wait")
    chosen = parser.parse_args()
    if not chosen.only_cost:
        compare(chosen.rounds)
    without = [asyncio.run(cpu_of_wait(waits=False)) for _ in range(chosen.rounds)]
    waiting = [asyncio.run(cpu_of_wait(waits=True)) for _ in range(chosen.rounds)]
    print(f"\n{WAITERS:,} requests in memory, CPU per request, the smallest of {chosen.rounds} rounds")
    print(f"  without a wait {min(without):6.1f} us; with a wait {min(waiting):6.1f} us")
    print(f"  a wait costs   {min(waiting) - min(without):6.1f} us")
    task, wait = asyncio.run(memory_of_wait(waits=False)), asyncio.run(memory_of_wait(waits=True))
    print(f"{WAITERS:,} waiting requests: {wait - task:,.0f} bytes each beyond a task of {task:,.0f} bytes")


if __name__ == "__main__":
    main()
