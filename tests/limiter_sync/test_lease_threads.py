"""A lease that several threads use at the same time."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from zae_limiter import LeaseExpiredError, Limit, SyncRateLimiter, SyncRepository, ValidationError

LIMIT = Limit.custom("rpy", 1_000_000, 1, 365 * 86_400)
THREADS = 4
ROUNDS = 50


@pytest.fixture
def limiter() -> Iterator[SyncRateLimiter]:
    with SyncRepository.open("memory://") as repo:
        repo.set_system_defaults([LIMIT])
        yield SyncRateLimiter(repo)


def used(limiter: SyncRateLimiter) -> int:
    return limiter.get_buckets("user-1")[0].total_consumed_milli // 1000


def together(*calls: Callable[[], object]) -> list[type | None]:
    """Make calls in threads that start at the same time; return the type of what each raised."""
    barrier = threading.Barrier(len(calls))
    found: list[type | None] = [None] * len(calls)

    def run(number: int, call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            call()
        except (LeaseExpiredError, ValidationError) as error:
            found[number] = type(error)

    threads = [threading.Thread(target=run, args=one) for one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_lease_left_by_several_threads_is_settled_once(limiter):
    """One exit credits everything; the others return without effect."""
    error = KeyError("failed")
    for _ in range(ROUNDS):
        lease = limiter.acquire("user-1", "gpt-4", {"rpy": 10}).__enter__()
        assert [None] * THREADS == together(*[partial(lease.__exit__, KeyError, error, None)] * THREADS)

    assert 0 == used(limiter)


def test_adjust_during_an_exit_is_written_or_raises(limiter):
    """None is accepted and then lost."""
    expected = 0
    for _ in range(ROUNDS):
        lease = limiter.acquire("user-1", "gpt-4", {"rpy": 10}).__enter__()
        adjust, leave = partial(lease.adjust, rpy=1), partial(lease.__exit__, None, None, None)
        raised = together(adjust, leave, adjust)
        expected += 10 + [raised[0], raised[2]].count(None)

    assert expected == used(limiter)


def test_concurrent_releases_by_threads_credit_at_most_what_the_lease_holds(limiter):
    """One succeeds, and the others raise because the lease holds less."""
    for _ in range(ROUNDS):
        lease = limiter.acquire("user-1", "gpt-4", {"rpy": 10}).__enter__()
        raised = together(*[partial(lease.release, rpy=6)] * THREADS)
        assert 1 == raised.count(None)
        lease.__exit__(KeyError, KeyError("failed"), None)

    assert 0 == used(limiter)
