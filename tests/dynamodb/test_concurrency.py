"""Concurrency on a real engine: more tasks than connections, cancelled tasks, and concurrent opening."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import session
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

TEN_YEARS_S = 10 * 365 * 24 * 3600
CAPACITY = 10_000
SLOW = [Limit.custom("rpm", CAPACITY, 1, TEN_YEARS_S)]
"""A limit of which nothing comes back while a test runs."""
DEADLINE_S = 20.0
MORE_THAN_CONNECTIONS = 200


@pytest.fixture
def url(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"


async def opened(url: str) -> Repository:
    return await Repository.open(url, session=session(), deadline_s=DEADLINE_S)


@pytest.fixture
async def repo(url: str) -> AsyncIterator[Repository]:
    async with await opened(url) as made:
        await made.set_system_defaults(SLOW)
        yield made


async def consumed_milli(repo: Repository) -> int:
    """Return what the only bucket has counted."""
    [bucket] = await repo.get_buckets("user-1")
    return bucket.total_consumed_milli


async def test_more_tasks_than_connections_are_all_admitted_and_counted_once(repo: Repository) -> None:
    """No task fails for lack of a connection."""
    limiter = RateLimiter(repo)

    async def take() -> None:
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            pass

    await asyncio.gather(*(take() for _ in range(MORE_THAN_CONNECTIONS)))
    assert MORE_THAN_CONNECTIONS * 1000 == await consumed_milli(repo)
    assert {"rpm": CAPACITY - MORE_THAN_CONNECTIONS} == await limiter.available("user-1", "gpt-4")


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.05])
async def test_cancelled_tasks_are_rolled_back(repo: Repository, after_s: float) -> None:
    """A take may be in flight, applied, or not begun."""
    limiter = RateLimiter(repo)

    async def hold() -> None:
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
            await asyncio.Event().wait()

    async with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
        tasks = [asyncio.create_task(hold()) for _ in range(50)]
        await asyncio.sleep(after_s)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert {asyncio.CancelledError} == {type(error) for error in ended}
    assert {"rpm": CAPACITY - 1} == await limiter.available("user-1", "gpt-4")


async def test_threads_share_connections(url: str, repo: Repository) -> None:
    """Each answer goes to the thread that asked."""
    failures: list[BaseException] = []
    with SyncRepository.open(url, session=session(), deadline_s=DEADLINE_S) as blocking:
        limiter = SyncRateLimiter(blocking)

        def work(entity_id: str) -> None:
            try:
                for amount in range(1, 6):
                    with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}) as lease:
                        assert {"rpm": amount} == lease.consumed
            except BaseException as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"user-{number % 4}",)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = [limiter.available(f"user-{number}", "gpt-4")["rpm"] for number in range(4)]

    assert [] == failures
    assert [CAPACITY - 4 * 15] * 4 == left


async def test_concurrent_openings_create_one_table(url: str) -> None:
    """One of them creates it, with the default namespace; the others find it."""
    repos = await asyncio.gather(*(opened(url) for _ in range(8)))

    assert 1 == len({repo.scope.namespace_id for repo in repos})
    assert ["default"] == [namespace.name for namespace in await repos[0].list_namespaces()]
    for repo in repos:
        await repo.close()
