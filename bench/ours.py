"""Run this project under the same traffic: limits as system defaults, `acquire` entered and left.

Each call takes 1 rpm and 500 tpm, both or none, and leaves the lease normally without an
adjustment.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import HOT, MANY, REFUSED, REQUESTS, TOKENS, Case, Run, Traffic

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository

_RESOURCE = "gpt-4"


def _limits(traffic: Traffic) -> list[Limit]:
    return [Limit.per_minute("rpm", traffic.rpm), Limit.per_minute("tpm", traffic.tpm)]


def _sync_run(limiter: SyncRateLimiter) -> Run:
    acquire = limiter.acquire

    def run(keys: list[str]) -> int:
        admitted = 0
        for key in keys:
            try:
                with acquire(key, _RESOURCE, {"rpm": REQUESTS, "tpm": TOKENS}):
                    admitted += 1
            except RateLimitExceeded:
                pass
        return admitted

    return run


@contextmanager
def _sync(url: str, traffic: Traffic) -> Iterator[Run]:
    repository = SyncRepository.open(url)
    repository.set_system_defaults(_limits(traffic))
    yield _sync_run(SyncRateLimiter(repository=repository))
    repository.close()


async def _open(url: str, traffic: Traffic) -> Repository:
    repository = await Repository.open(url)
    await repository.set_system_defaults(_limits(traffic))
    return repository


@contextmanager
def _async(url: str, traffic: Traffic) -> Iterator[Run]:
    with asyncio.Runner() as runner:
        repository = runner.run(_open(url, traffic))
        acquire = RateLimiter(repository=repository).acquire

        async def ask(keys: list[str]) -> int:
            admitted = 0
            for key in keys:
                try:
                    async with acquire(key, _RESOURCE, {"rpm": REQUESTS, "tpm": TOKENS}):
                        admitted += 1
                except RateLimitExceeded:
                    pass
            return admitted

        yield lambda keys: runner.run(ask(keys))
        runner.run(repository.close())


@contextmanager
def memory_sync(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Store items in dictionaries of this process."""
    with _sync("memory://", traffic) as run:
        yield run


@contextmanager
def memory_async(traffic: Traffic, _: Path) -> Iterator[Run]:
    """Do the same with the async limiter, in one task."""
    with _async("memory://", traffic) as run:
        yield run


@contextmanager
def sqlite_sync(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """Store items in a file that other processes could share; every take is a committed transaction."""
    with _sync(f"sqlite:///{folder / 'ours.db'}", traffic) as run:
        yield run


@contextmanager
def sqlite_async(traffic: Traffic, folder: Path) -> Iterator[Run]:
    """Do the same with the async limiter, in one task, without contention for the file."""
    with _async(f"sqlite:///{folder / 'ours.db'}", traffic) as run:
        yield run


def cases(calls: int) -> list[Case]:
    """Return both stores, sync and async, under every traffic."""
    stores = {"memory sync": memory_sync, "memory async": memory_async}
    # Enough calls to checkpoint the write-ahead log within each measurement.
    files = {"SQLite sync": sqlite_sync, "SQLite async": sqlite_async}
    return [
        Case(f"zae-limiter {name}", traffic, opened, calls)
        for traffic in (HOT, MANY, REFUSED)
        for kind in (stores, files)
        for name, opened in kind.items()
    ]
