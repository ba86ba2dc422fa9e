"""One process of a stress run: threads or tasks that take one token after the other and log every admission.

    python -m tests.stress.worker URL LOG threads|tasks COUNT CONFIG_CACHE_TTL

It says ``ready``, waits for the time to stop at (ns since the epoch) on stdin, works, and exits with 0.
A record of the log is two numbers: the times just before and just after an acquire that was admitted, in ns.
Beside it, LOG.rejected has the time just before each that was rejected, and the capacity it was judged by.
Records are written as they come, so that those of a process that is killed are there too.
"""

import asyncio
import os
import struct
import sys
import threading
import time

from zae_limiter import RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository

RECORD = struct.Struct("<qq")
REJECTED = ".rejected"
SLEEP_S = 0.02
"""After a rejection. Tokens gather meanwhile, up to the capacity, so waiting longer than need be loses none."""

BUCKET = ("shared", "api")
CONSUME = {"rps": 1}


class Log:
    """Where admissions and rejections are written down, each as a whole."""

    def __init__(self, path: str) -> None:
        self._admitted = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._rejected = os.open(f"{path}{REJECTED}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, before_ns: int) -> None:
        os.write(self._admitted, RECORD.pack(before_ns, time.time_ns()))

    def add_rejection(self, before_ns: int, error: RateLimitExceeded) -> None:
        os.write(self._rejected, RECORD.pack(before_ns, error.primary_violation.limit.capacity))


def until() -> int:
    """Say that all is ready, and wait to be told when to stop."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return int(sys.stdin.readline())


def work(limiter: SyncRateLimiter, log: Log, until_ns: int) -> None:
    """Take one token after the other."""
    while (before_ns := time.time_ns()) < until_ns:
        try:
            with limiter.acquire(*BUCKET, CONSUME):
                log.add(before_ns)
        except RateLimitExceeded as error:
            log.add_rejection(before_ns, error)
            time.sleep(SLEEP_S)


def run_threads(url: str, log: Log, count: int, config_cache_ttl: float) -> None:
    """Work in threads of one limiter."""
    with SyncRepository.open(url, deadline_s=10, config_cache_ttl=config_cache_ttl) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.available(*BUCKET)
        until_ns = until()
        failures: list[BaseException] = []

        def guarded() -> None:
            try:
                work(limiter, log, until_ns)
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=guarded) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            sys.exit(1)


async def work_in_task(limiter: RateLimiter, log: Log, until_ns: int) -> None:
    """Take one token after the other."""
    while (before_ns := time.time_ns()) < until_ns:
        try:
            async with limiter.acquire(*BUCKET, CONSUME):
                log.add(before_ns)
        except RateLimitExceeded as error:
            log.add_rejection(before_ns, error)
            await asyncio.sleep(SLEEP_S)
        else:
            await asyncio.sleep(0)


async def run_tasks(url: str, log: Log, count: int, config_cache_ttl: float) -> None:
    """Work in tasks of one limiter."""
    async with await Repository.open(url, deadline_s=10, config_cache_ttl=config_cache_ttl) as repo:
        limiter = RateLimiter(repo)
        await limiter.available(*BUCKET)
        until_ns = until()
        await asyncio.gather(*(work_in_task(limiter, log, until_ns) for _ in range(count)))


def main() -> None:
    url, path, kind, count, ttl = sys.argv[1:]
    log = Log(path)
    if kind == "threads":
        run_threads(url, log, int(count), float(ttl))
    else:
        asyncio.run(run_tasks(url, log, int(count), float(ttl)))


if __name__ == "__main__":
    main()
