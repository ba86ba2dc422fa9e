"""A task that is cancelled: inside the block, and while a write is in flight."""

import asyncio
import contextlib

import pytest

from zae_limiter import RateLimiter


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpy"]


async def cancelled(task, times=1):
    """Cancel a task so many times, and wait for its end."""
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return task


async def ended_by_cancellation(task):
    with pytest.raises(asyncio.CancelledError):
        await task
    return task.cancelled()


class TestInsideTheBlock:
    async def test_a_cancelled_task_gives_everything_back(self, limiter):
        """A cancellation is a failure of the block like others."""
        entered = asyncio.Event()

        async def work():
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                await lease.adjust(rpy=5)
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_a_timeout_gives_everything_back(self, limiter):
        """``asyncio.timeout`` around the block, or inside it."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}), asyncio.timeout(0.01):
                await asyncio.Event().wait()

        assert 1_000 == await left(limiter)

    async def test_a_timeout_that_is_caught_inside_keeps_the_tokens(self, limiter):
        """The block ends normally."""
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()

        assert 990 == await left(limiter)

    async def test_a_generator_that_is_closed_early_gives_everything_back(self, limiter):
        """Whoever stops listening to a stream has not had it."""

        async def stream():
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
                yield "first"
                yield "second"

        generator = stream()
        async for part in generator:
            assert "first" == part
            break
        held = await left(limiter)
        await generator.aclose()

        assert (990, 1_000) == (held, await left(limiter))

    async def test_a_generator_that_is_exhausted_keeps_the_tokens(self, limiter):
        """It had what it asked for."""

        async def stream():
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                yield "all"
                await lease.adjust(rpy=1)

        assert ["all"] == [part async for part in stream()]
        assert 989 == await left(limiter)

    async def test_one_cancelled_task_of_a_group_takes_only_its_own(self, limiter):
        """Others go on."""

        async def work(amount, fails):
            async with limiter.acquire("user-1", "gpt-4", {"rpy": amount}):
                await asyncio.sleep(0.01)
                if fails:
                    raise KeyError

        await work(1, False)
        results = await asyncio.gather(work(10, False), work(100, True), return_exceptions=True)

        assert [None, KeyError] == [None if result is None else type(result) for result in results]
        assert 989 == await left(limiter)


class TestInFlight:
    @pytest.mark.parametrize("times", [1, 2, 5])
    async def test_a_take_that_was_applied_is_given_back(self, far, slow, limiter, times):
        """However often its task is cancelled while the answer is on its way."""
        await warm(far)
        slow.after.shut()
        task = asyncio.create_task(keep(far, 10))
        await slow.after.reached()

        await cancelled(task, times)
        still_waiting = not task.done()
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert still_waiting
        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_take_that_is_applied_after_the_cancellation_is_given_back(self, far, slow, limiter, times):
        """It was sent, so it is seen through."""
        await warm(far)
        slow.before.shut()
        task = asyncio.create_task(keep(far, 10))
        await slow.before.reached()

        await cancelled(task, times)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    async def test_a_take_that_is_refused_is_not_given_back(self, far, slow, limiter):
        """Nothing was taken, so nothing is credited."""
        await warm(far)
        slow.before.shut()
        task = asyncio.create_task(keep(far, 10))
        await slow.before.reached()
        await keep(limiter, 995)
        await cancelled(task)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 4 == await left(limiter)

    async def test_a_creation_that_was_applied_is_given_back(self, far, slow, limiter):
        """The first touch of a bucket, too."""
        slow.after.shut()
        task = asyncio.create_task(keep(far, 10))
        await slow.after.reached()
        await cancelled(task)
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_a_cancellation_before_anything_was_sent_writes_nothing_that_stays(self, far, slow, limiter):
        """Reading for a first touch is no taking."""
        task = asyncio.create_task(keep(far, 10))
        await asyncio.sleep(0)
        task.cancel()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_a_timeout_while_a_take_is_in_flight_gives_it_back(self, far, slow, limiter):
        """And is a timeout for the caller."""
        await warm(far)
        slow.after.shut()

        async def hurried():
            async with asyncio.timeout(0.01):
                # Armed after the timeout, so that it is never the first of the two.
                asyncio.get_running_loop().call_later(0.05, slow.after.open)
                await keep(far, 10)

        with pytest.raises(TimeoutError):
            await hurried()

        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_what_is_consumed_in_the_block_is_given_back_once(self, far, slow, limiter, times):
        """The lease never held it, so leaving does not give it back again."""
        await warm(far)

        async def work():
            async with far.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                slow.after.shut()
                await lease.consume(rpy=100)

        task = asyncio.create_task(work())
        await slow.after.reached()
        await cancelled(task, times)
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 3])
    async def test_settling_is_seen_through(self, far, slow, limiter, times):
        """A task that is cancelled while it writes its adjustment writes it, once."""

        async def work():
            async with far.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                await lease.adjust(rpy=5)
                slow.before.shut()

        task = asyncio.create_task(work())
        await slow.before.reached()
        await cancelled(task, times)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 985 == await left(limiter)

    async def test_giving_back_is_seen_through(self, far, slow, limiter):
        """A task that is cancelled again while it gives back gives back, once."""

        entered = asyncio.Event()

        async def work():
            async with far.acquire("user-1", "gpt-4", {"rpy": 10}):
                slow.before.shut()
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        await cancelled(task)
        await slow.before.reached()
        await cancelled(task, 3)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_a_release_is_seen_through(self, far, slow, limiter):
        """What is on its way back arrives, and is not given back again on leaving."""
        await warm(far)

        async def work():
            async with far.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                slow.before.shut()
                await lease.release(rpy=4)

        task = asyncio.create_task(work())
        await slow.before.reached()
        await cancelled(task, 2)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    async def test_what_a_caller_changes_meanwhile_changes_nothing(self, far, slow, limiter):
        """The amounts are those of the moment the acquire was entered."""
        await warm(far)
        consume = {"rpy": 10}
        slow.after.shut()

        async def work():
            async with far.acquire("user-1", "gpt-4", consume) as lease:
                await lease.release(rpy=lease.consumed["rpy"])

        task = asyncio.create_task(work())
        await slow.after.reached()
        consume["rpy"] = 500
        slow.after.open()
        await task

        assert 999 == await left(limiter)


async def warm(limiter):
    """Take once, so that the bucket is known."""
    await keep(limiter, 1)


async def keep(limiter: RateLimiter, amount: int) -> None:
    """Take and keep."""
    async with limiter.acquire("user-1", "gpt-4", {"rpy": amount}):
        pass
