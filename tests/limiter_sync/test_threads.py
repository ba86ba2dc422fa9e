"""Many threads on one limiter: they take all of the bucket, and never more."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

THREADS = 8
YEAR_S = 365 * 86_400
LIMITS = [Limit.custom("rpy", 1_000, 1, YEAR_S), Limit.custom("tpy", 1_000_000, 1, YEAR_S)]
"""Slow enough that a test sees no refill."""


@pytest.fixture(params=["memory", "sqlite"])
def limiter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncRateLimiter]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"
    with SyncRepository.open(url, deadline_s=30) as repo:
        repo.set_system_defaults(LIMITS)
        yield SyncRateLimiter(repo)


def in_threads(work: Callable[[int], None]) -> None:
    """Run a call in several threads at the same time, each with its number, and raise the first failure."""
    start, failures = threading.Barrier(THREADS), []

    def guarded(number: int) -> None:
        start.wait()
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("each", [1, 7])
def test_concurrent_threads_take_exactly_the_capacity(limiter, each):
    """Threads that request more than the capacity are admitted to the last request that fits."""
    admitted = []

    def work(number):
        for _ in range(1_200 // THREADS // each + 1):
            try:
                with limiter.acquire("user-1", "gpt-4", {"rpy": each}):
                    admitted.append(number)
            except RateLimitExceeded:
                continue

    in_threads(work)

    assert 1_000 // each == len(admitted)
    assert 1_000 % each == limiter.available("user-1", "gpt-4")["rpy"]


def test_failed_leases_in_threads_credit_exactly_what_they_took(limiter):
    """The adjustments of all leases add up."""

    def work(number):
        for turn in range(20):
            try:
                with limiter.acquire("user-1", "gpt-4", {"rpy": 1, "tpy": 10}) as lease:
                    lease.adjust(tpy=turn)
                    lease.consume(rpy=1)
                    lease.release(rpy=1)
                    if turn % 2:
                        raise KeyError
            except KeyError:
                continue

    in_threads(work)

    even = range(0, 20, 2)
    assert {
        "rpy": 1_000 - THREADS * len(even),
        "tpy": 1_000_000 - THREADS * sum(10 + turn for turn in even),
    } == limiter.available("user-1", "gpt-4")


def test_threads_that_first_use_a_bucket_concurrently_create_it_once(limiter):
    """The slower threads take from the existing bucket."""

    def work(number):
        for entity in range(20):
            with limiter.acquire(f"user-{entity}", "gpt-4", {"rpy": 1}):
                pass

    in_threads(work)

    assert {1_000 - THREADS} == {limiter.available(f"user-{entity}", "gpt-4")["rpy"] for entity in range(20)}


def test_takes_count_once_while_another_thread_changes_the_limits(limiter):
    """Old or new limits apply, and levels are never raised."""

    def work(number):
        for turn in range(20):
            if number == 0:
                limiter.set_system_defaults([Limit.custom("rpy", 1_000 + turn, 1, YEAR_S), LIMITS[1]])
            else:
                with limiter.acquire("user-1", "gpt-4", {"rpy": 1, "tpy": 10}):
                    pass

    with limiter.acquire("user-1", "gpt-4", {"rpy": 100}):
        pass
    in_threads(work)

    takes = 20 * (THREADS - 1)
    assert {"rpy": 900 - takes, "tpy": 1_000_000 - 10 * takes} == limiter.available("user-1", "gpt-4")
