"""Run other libraries as their documentation shows: two limits per call, until the first refusal.

They are only measured. Each function opens one limiter with an empty store, and yields a function
that calls it. What a call does differs, as described on each. throttled-py and limits check one
limit after the other, so a refusal by the second leaves what the first took. `zae_limiter` takes
both or none.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import limits
import limits.storage
import limits.strategies
import pyrate_limiter
import throttled
import throttled.asyncio
from measure import HOT, MANY, REFUSED, REQUESTS, TOKENS, Case, Run, Traffic

# Its store is an LRU cache of 1,024 keys by default; two keys for each of 1,000 entities must fit.
_THROTTLED_STORE = {"MAX_SIZE": 4_096}


@contextmanager
def throttled_token_bucket(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Use two token buckets in one store; each reads, refills, takes 1 or 500, and writes under the store's lock."""
    store = throttled.MemoryStore(options=_THROTTLED_STORE)
    rpm, tpm = (
        throttled.Throttled(
            using="token_bucket", quota=throttled.per_min(limit, burst=limit), store=store, key_prefix=name
        ).limit
        for name, limit in (("rpm", traffic.rpm), ("tpm", traffic.tpm))
    )

    def run(keys: list[str]) -> int:
        admitted = 0
        for key in keys:
            if not rpm(key, REQUESTS).limited and not tpm(key, TOKENS).limited:
                admitted += 1
        return admitted

    yield run


@contextmanager
def throttled_token_bucket_async(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Do the same with its asyncio classes."""
    store = throttled.asyncio.MemoryStore(options=_THROTTLED_STORE)
    rpm, tpm = (
        throttled.asyncio.Throttled(
            using="token_bucket", quota=throttled.asyncio.per_min(limit, burst=limit), store=store, key_prefix=name
        ).limit
        for name, limit in (("rpm", traffic.rpm), ("tpm", traffic.tpm))
    )

    async def ask(keys: list[str]) -> int:
        admitted = 0
        for key in keys:
            if not (await rpm(key, REQUESTS)).limited and not (await tpm(key, TOKENS)).limited:
                admitted += 1
        return admitted

    with asyncio.Runner() as runner:
        yield lambda keys: runner.run(ask(keys))


def _two_hits(strategy: limits.strategies.RateLimiter, traffic: Traffic, tokens: int) -> Run:
    hit = strategy.hit
    rpm = limits.RateLimitItemPerMinute(traffic.rpm, namespace="rpm")
    tpm = limits.RateLimitItemPerMinute(traffic.tpm, namespace="tpm")

    def run(keys: list[str]) -> int:
        admitted = 0
        for key in keys:
            if hit(rpm, key, "gpt-4", cost=REQUESTS) and hit(tpm, key, "gpt-4", cost=tokens):
                admitted += 1
        return admitted

    return run


@contextmanager
def limits_sliding_window(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Use a sliding window counter per limit: this window's count and a share of the last one's, an approximation."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.SlidingWindowCounterRateLimiter(storage), traffic, TOKENS)


@contextmanager
def limits_fixed_window(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Use one counter per limit and window: the simplest limiter, with up to twice the limit across a boundary."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.FixedWindowRateLimiter(storage), traffic, TOKENS)


@contextmanager
def limits_moving_window(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Use a log with one entry per token. It takes 1 of each limit, because 500 entries per call would be unfair."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.MovingWindowRateLimiter(storage), traffic, REQUESTS)


def _pyrate_rates(traffic: Traffic) -> list[pyrate_limiter.Rate]:
    # Its rates must have different intervals, and share one log and one weight.
    return [
        pyrate_limiter.Rate(traffic.rpm, pyrate_limiter.Duration.MINUTE),
        pyrate_limiter.Rate(10 * traffic.rpm, pyrate_limiter.Duration.HOUR),
    ]


@contextmanager
def _asked(bucket: pyrate_limiter.AbstractBucket) -> Iterator[Run]:
    with pyrate_limiter.Limiter(bucket) as limiter:
        ask = limiter.try_acquire

        def run(keys: list[str]) -> int:
            admitted = 0
            for key in keys:
                if ask(key, REQUESTS, blocking=False):
                    admitted += 1
            return admitted

        yield run


@contextmanager
def pyrate_memory(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Use one log of timestamps, which both rates are checked against, with weight 1."""
    with _asked(pyrate_limiter.InMemoryBucket(_pyrate_rates(traffic))) as run:
        yield run


@contextmanager
def pyrate_sqlite(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """Use the same log as rows of a file, opened with `init_from_file`: one process, no lock between processes."""
    path = str(folder / "pyrate.db")
    with _asked(pyrate_limiter.SQLiteBucket.init_from_file(_pyrate_rates(traffic), db_path=path)) as run:
        yield run


@contextmanager
def pyrate_sqlite_wal(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """Do the same on a file in WAL mode, which an experienced user could choose. For information."""
    connection = sqlite3.connect(folder / "pyrate.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    with pyrate_sqlite(traffic, folder) as run:
        yield run


def cases(calls: int) -> list[Case]:
    """Return every library under each traffic that it supports; pyrate-limiter has one bucket, so one entity only."""
    keyed = {
        "throttled-py token bucket": throttled_token_bucket,
        "throttled-py token bucket async": throttled_token_bucket_async,
        "limits sliding window": limits_sliding_window,
        "limits fixed window": limits_fixed_window,
    }
    return [
        *(Case(name, traffic, opened, calls) for traffic in (HOT, MANY, REFUSED) for name, opened in keyed.items()),
        Case("limits moving window", HOT, limits_moving_window, calls),
        Case("pyrate-limiter memory", HOT, pyrate_memory, calls),
        # It is slow, and gets slower as its log grows, so it gets fewer calls.
        Case("pyrate-limiter SQLite", HOT, pyrate_sqlite, max(1, calls // 10)),
        Case("pyrate-limiter SQLite WAL", HOT, pyrate_sqlite_wal, max(1, calls // 2)),
    ]
