"""The peers, called as their documentation shows: two limits per call, both asked, the first refusal ends the call.

Measured only. Each function opens one limiter with an empty store and gives what asks it.
What a call does differs, and is said on each. throttled-py and limits are asked for one limit after the other, so a
refusal by the second would leave what the first took; `zae_limiter` takes both or none within its time.
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

# Its store is an LRU cache of 1,024 keys; two keys for each of 1,000 entities must fit.
_THROTTLED_STORE = {"MAX_SIZE": 4_096}


@contextmanager
def throttled_token_bucket(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Two token buckets in one store: each reads its state, refills, takes 1 or 500, writes, under the store's lock."""
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
    """The same through its asyncio classes."""
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
    """Sliding window counter: per limit this window's count and a share of the last one's, an approximation."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.SlidingWindowCounterRateLimiter(storage), traffic, TOKENS)


@contextmanager
def limits_fixed_window(traffic: Traffic, _: Path) -> Iterator[Run]:
    """One counter per limit and window: the least a limiter can do, with up to twice the limit across a boundary."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.FixedWindowRateLimiter(storage), traffic, TOKENS)


@contextmanager
def limits_moving_window(traffic: Traffic, _: Path) -> Iterator[Run]:
    """A log of one entry per token, so it takes 1 of each limit: 500 entries a call would be no fair picture of it."""
    storage = limits.storage.MemoryStorage()
    yield _two_hits(limits.strategies.MovingWindowRateLimiter(storage), traffic, REQUESTS)


def _pyrate_rates(traffic: Traffic) -> list[pyrate_limiter.Rate]:
    # Its rates must differ in interval, and share one log and one weight: requests per minute and per hour, weight 1.
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
    """One log of timestamps that both rates are checked against; weight 1."""
    with _asked(pyrate_limiter.InMemoryBucket(_pyrate_rates(traffic))) as run:
        yield run


@contextmanager
def pyrate_sqlite(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """The same log as rows of a file, as `init_from_file` opens it: one process, no file lock between processes."""
    path = str(folder / "pyrate.db")
    with _asked(pyrate_limiter.SQLiteBucket.init_from_file(_pyrate_rates(traffic), db_path=path)) as run:
        yield run


@contextmanager
def pyrate_sqlite_wal(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """The same on a file that was put into WAL mode beforehand, which a knowing user could do. For information."""
    connection = sqlite3.connect(folder / "pyrate.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    with pyrate_sqlite(traffic, folder) as run:
        yield run


def cases(calls: int) -> list[Case]:
    """Every peer that has a traffic's kind; pyrate-limiter keeps one bucket, so it stands for one entity only."""
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
        # Slow, and slower as its log grows: few calls are kinder to it.
        Case("pyrate-limiter SQLite", HOT, pyrate_sqlite, max(1, calls // 10)),
        Case("pyrate-limiter SQLite WAL", HOT, pyrate_sqlite_wal, max(1, calls // 2)),
    ]
