"""An async function that is called with warnings runs in the loop of the request, and delays no request."""

import asyncio
import threading

from zae_limiter import Limit, LimitWarning, RateLimiter, Repository

SPEND = Limit.quota("spend", 100, every="month", warn_at=(0.5,))


async def test_async_function_runs_in_the_loop_of_the_request():
    """It may use what belongs to the loop, such as an HTTP client."""
    loop, seen = asyncio.get_running_loop(), []

    async def tell(warning: LimitWarning) -> None:
        await asyncio.sleep(0)
        seen.append((warning.used, asyncio.get_running_loop() is loop))

    async with await Repository.open("memory://", on_warning=tell) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults([SPEND])
        async with limiter.acquire("user-1", "gpt-4", {"spend": 60}):
            pass

    assert [(60, True)] == seen


async def test_a_slow_function_does_not_delay_requests():
    """Requests end while it waits, and closing the repository waits for it."""
    released, ended = asyncio.Event(), []

    async def wait(warning: LimitWarning) -> None:
        await released.wait()
        ended.append(warning.threshold)

    async with await Repository.open("memory://", on_warning=wait) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults([SPEND])
        for _ in range(3):
            async with limiter.acquire("user-1", "gpt-4", {"spend": 30}):
                pass
        before = list(ended)
        released.set()

    assert ([], [0.5]) == (before, ended)


async def test_a_function_may_use_the_limiter():
    """It may block the entity, or close the repository."""
    limiters = []

    async def close(warning: LimitWarning) -> None:
        await limiters[0].close()

    opened = await Repository.open("memory://", on_warning=close)
    limiter = RateLimiter(opened)
    limiters.append(limiter)
    await limiter.set_system_defaults([SPEND])
    async with limiter.acquire("user-1", "gpt-4", {"spend": 60}):
        pass
    await opened.scope.client.warner.finish()

    assert not await opened.ping()


async def test_many_requests_at_once_warn_once():
    """All of them are above the threshold before the first mark is written."""
    seen = []
    async with await Repository.open("memory://", on_warning=seen.append) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults([SPEND])

        async def use():
            async with limiter.acquire("user-1", "gpt-4", {"spend": 5}):
                await asyncio.sleep(0)

        await asyncio.gather(*(use() for _ in range(20)))

    assert [0.5] == [one.threshold for one in seen]
    assert not [one for one in threading.enumerate() if one.name == "zae-limiter-warning"]
