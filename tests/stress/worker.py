"""One process of a stress run: threads or tasks that take one token after the other and log every admission.

    python -m tests.stress.worker URL LOG threads|tasks COUNT CONFIG_CACHE_TTL

It prints ``ready``, waits for a line on stdin, works until the next line or the end of stdin, and exits with 0. A
record of the log is two numbers: the times just before and just after an admitted acquire, in ns. LOG.rejected has both
times of each rejected acquire, and the capacity in force. Records are written immediately, so that those of a killed
process are complete.
"""

import asyncio
import os
import struct
import sys
import threading
import time

from zae_limiter import RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository

RECORD = struct.Struct("<qq")
REJECTION = struct.Struct("<qqq")
REJECTED = ".rejected"
SLEEP_S = 0.02
"""Pause after a rejection. Tokens accumulate meanwhile, up to the capacity, so a longer pause loses none."""
DEADLINE_S = 120
"""Longer than any machine pauses."""

BUCKET = ("shared", "api")
CONSUME = {"rps": 1}


class Log:
    """The log of admissions and rejections; each record is written as a whole."""

    def __init__(self, path: str) -> None:
        self._admitted = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._rejected = os.open(f"{path}{REJECTED}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, before_ns: int) -> None:
        os.write(self._admitted, RECORD.pack(before_ns, time.time_ns()))

    def add_rejection(self, before_ns: int, error: RateLimitExceeded) -> None:
        os.write(self._rejected, REJECTION.pack(before_ns, time.time_ns(), error.primary_violation.limit.capacity))


def begun() -> threading.Event:
    """Report that all is ready, wait for the start, and return the event that is set to stop."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    return stop


def work(limiter: SyncRateLimiter, log: Log, stop: threading.Event) -> None:
    """Take one token after the other."""
    while not stop.is_set():
        before_ns = time.time_ns()
        try:
            with limiter.acquire(*BUCKET, CONSUME):
                log.add(before_ns)
        except RateLimitExceeded as error:
            log.add_rejection(before_ns, error)
            time.sleep(SLEEP_S)


def run_threads(url: str, log: Log, count: int, config_cache_ttl: float) -> None:
    """Work in threads of one limiter."""
    with SyncRepository.open(url, deadline_s=DEADLINE_S, config_cache_ttl=config_cache_ttl) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.available(*BUCKET)
        stop = begun()
        failures: list[BaseException] = []

        def guarded() -> None:
            try:
                work(limiter, log, stop)
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


async def work_in_task(limiter: RateLimiter, log: Log, stop: threading.Event) -> None:
    """Take one token after the other."""
    while not stop.is_set():
        before_ns = time.time_ns()
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
    async with await Repository.open(url, deadline_s=DEADLINE_S, config_cache_ttl=config_cache_ttl) as repo:
        limiter = RateLimiter(repo)
        await limiter.available(*BUCKET)
        stop = begun()
        await asyncio.gather(*(work_in_task(limiter, log, stop) for _ in range(count)))


def main() -> None:
    url, path, kind, count, ttl = sys.argv[1:]
    log = Log(path)
    if kind == "threads":
        run_threads(url, log, int(count), float(ttl))
    else:
        asyncio.run(run_tasks(url, log, int(count), float(ttl)))


if __name__ == "__main__":
    main()
