"""Group commit on a real engine: many concurrent calls on one bucket, which counts exactly what they kept."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import session
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository

TEN_YEARS_S = 10 * 365 * 24 * 3600
CAPACITY = 10_000
SLOW = [Limit.custom("rpm", CAPACITY, 1, TEN_YEARS_S), Limit.custom("tpm", CAPACITY, 1, TEN_YEARS_S)]
"""Limits of which nothing comes back while a test runs."""
DEADLINE_S = 20.0
TASKS = 64
THREADS = 32
TURNS = 4


@pytest.fixture
def url(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"


@pytest.fixture
async def repo(url: str) -> AsyncIterator[Repository]:
    async with await Repository.open(url, session=session(), deadline_s=DEADLINE_S) as made:
        await made.set_system_defaults(SLOW)
        yield made


async def consumed(repo: Repository, entity_id: str = "user-1") -> dict[str, int]:
    """Return what a bucket has counted, by limit."""
    found = await repo.get_buckets(entity_id)
    return {bucket.limit_name: bucket.total_consumed_milli // 1000 for bucket in found}


async def test_concurrent_tasks_with_adjustments_are_counted_exactly(repo: Repository) -> None:
    """Some adjust up, some down, some fail: the bucket has counted what they kept."""
    limiter = RateLimiter(repo)
    kept: list[dict[str, int]] = []

    async def work(number: int) -> None:
        for turn in range(TURNS):
            try:
                async with limiter.acquire("user-1", "gpt-4", {"rpm": 2, "tpm": 10}) as lease:
                    await lease.adjust(tpm=number - 10, rpm=-1)
                    if (number + turn) % 5 == 0:
                        raise KeyError
                kept.append(lease.consumed)
            except KeyError:
                continue

    await asyncio.gather(*(work(number) for number in range(TASKS)))
    total = {name: sum(one[name] for one in kept) for name in ("rpm", "tpm")}

    assert total == await consumed(repo)
    assert {name: CAPACITY - spent for name, spent in total.items()} == await limiter.available("user-1", "gpt-4")


async def test_concurrent_tasks_that_request_too_much_get_every_available_token(repo: Repository) -> None:
    """Groups that exceed the balance are admitted partly."""
    limiter = RateLimiter(repo)

    async def work() -> int:
        try:
            async with limiter.acquire("user-1", "gpt-4", {"rpm": 300}):
                return 1
        except RateLimitExceeded:
            return 0

    admitted = sum(await asyncio.gather(*(work() for _ in range(TASKS))))

    assert CAPACITY // 300 == admitted
    assert 300 * admitted == (await consumed(repo))["rpm"]


async def test_concurrent_children_and_their_parent_count_the_same(repo: Repository) -> None:
    """Some tasks are cancelled while their write is in flight."""
    limiter = RateLimiter(repo)
    await repo.create_entity("org")
    for number in range(8):
        await repo.create_entity(f"child-{number}", parent_id="org", cascade=True)

    async def work(number: int) -> None:
        async with limiter.acquire(f"child-{number % 8}", "gpt-4", {"rpm": 1}):
            pass

    for wait_s in (0.0, 0.003):
        tasks = [asyncio.create_task(work(number)) for number in range(TASKS)]
        await asyncio.sleep(wait_s)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await work(0)
    children = [(await consumed(repo, f"child-{number}")).get("rpm", 0) for number in range(8)]

    assert sum(children) == (await consumed(repo, "org"))["rpm"]


async def test_concurrent_threads_with_adjustments_are_counted_exactly(url: str, repo: Repository) -> None:
    """The rule for tasks holds for threads."""
    kept: list[int] = []
    failures: list[BaseException] = []
    with SyncRepository.open(url, session=session(), deadline_s=DEADLINE_S) as blocking:
        limiter = SyncRateLimiter(blocking)

        def work(number: int) -> None:
            try:
                for _ in range(TURNS):
                    with limiter.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                        lease.adjust(rpm=number - 5)
                    kept.append(lease.consumed["rpm"])
            except BaseException as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [] == failures
    assert TURNS * sum(range(THREADS)) == sum(kept) == (await consumed(repo))["rpm"]
