"""A task that is cancelled inside the block of a lease, or while a write is in flight."""

import asyncio
import contextlib

import pytest

from zae_limiter import RateLimiter


async def left(limiter):
    return (await limiter.available("user-1", "gpt-4"))["rpy"]


async def cancel(task, times=1):
    """Cancel a task this many times."""
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
    """Cancellation between entry and exit of a lease."""

    async def test_lease_of_a_cancelled_task_credits_everything(self, limiter):
        """A cancellation ends the block like any other exception."""
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

    async def test_lease_ended_by_a_timeout_credits_everything(self, limiter):
        """``asyncio.timeout`` may be around the lease, or inside it."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}), asyncio.timeout(0.01):
                await asyncio.Event().wait()

        assert 1_000 == await left(limiter)

    async def test_lease_with_a_timeout_that_is_caught_inside_keeps_its_tokens(self, limiter):
        """The block ends normally."""
        async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()

        assert 990 == await left(limiter)

    async def test_lease_in_a_generator_that_is_closed_early_credits_everything(self, limiter):
        """The stream was not consumed to its end."""

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

    async def test_lease_in_a_generator_that_is_exhausted_keeps_its_tokens(self, limiter):
        """The block ends normally."""

        async def stream():
            async with limiter.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                yield "all"
                await lease.adjust(rpy=1)

        assert ["all"] == [part async for part in stream()]
        assert 989 == await left(limiter)

    async def test_failed_task_of_a_group_credits_only_its_own_lease(self, limiter):
        """The other task keeps its tokens."""

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
    """Cancellation while a write is in flight."""

    @pytest.mark.parametrize("times", [1, 2, 5])
    async def test_applied_take_of_a_cancelled_acquire_is_credited(self, remote, slow, limiter, times):
        """The number of cancellations before the response makes no difference."""
        await warm(remote)
        slow.after.shut()
        task = asyncio.create_task(keep(remote, 10))
        await slow.after.reached()

        await cancel(task, times)
        still_waiting = not task.done()
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert still_waiting
        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_take_applied_after_the_cancellation_is_credited(self, remote, slow, limiter, times):
        """A write that was sent is awaited."""
        await warm(remote)
        slow.before.shut()
        task = asyncio.create_task(keep(remote, 10))
        await slow.before.reached()

        await cancel(task, times)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    async def test_refused_take_of_a_cancelled_acquire_is_not_credited(self, remote, slow, limiter):
        """Nothing was taken."""
        await warm(remote)
        slow.before.shut()
        task = asyncio.create_task(keep(remote, 10))
        await slow.before.reached()
        await keep(limiter, 995)
        await cancel(task)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 4 == await left(limiter)

    async def test_bucket_creation_of_a_cancelled_acquire_is_credited(self, remote, slow, limiter):
        """The rule holds for the first take of a bucket, too."""
        slow.after.shut()
        task = asyncio.create_task(keep(remote, 10))
        await slow.after.reached()
        await cancel(task)
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_acquire_cancelled_before_its_write_takes_nothing(self, remote, slow, limiter):
        """Only reads were made."""
        task = asyncio.create_task(keep(remote, 10))
        await asyncio.sleep(0)
        task.cancel()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_timeout_while_a_take_is_in_flight_credits_it(self, remote, slow, limiter):
        """The caller gets a TimeoutError."""
        await warm(remote)
        slow.after.shut()

        async def with_timeout():
            async with asyncio.timeout(0.01):
                # Scheduled after the timeout, so that the timeout always comes first.
                asyncio.get_running_loop().call_later(0.05, slow.after.open)
                await keep(remote, 10)

        with pytest.raises(TimeoutError):
            await with_timeout()

        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_consume_cancelled_in_flight_is_credited_once(self, remote, slow, limiter, times):
        """The lease never held the tokens, so its exit does not credit them again."""
        await warm(remote)

        async def work():
            async with remote.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                slow.after.shut()
                await lease.consume(rpy=100)

        task = asyncio.create_task(work())
        await slow.after.reached()
        await cancel(task, times)
        slow.after.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    @pytest.mark.parametrize("times", [1, 3])
    async def test_adjustment_at_exit_is_written_once_despite_cancellation(self, remote, slow, limiter, times):
        """A cancelled task completes the write of its adjustment."""

        async def work():
            async with remote.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                await lease.adjust(rpy=5)
                slow.before.shut()

        task = asyncio.create_task(work())
        await slow.before.reached()
        await cancel(task, times)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 985 == await left(limiter)

    async def test_credit_at_exit_is_written_once_despite_further_cancellation(self, remote, slow, limiter):
        """A task that is cancelled again during the credit completes it."""

        entered = asyncio.Event()

        async def work():
            async with remote.acquire("user-1", "gpt-4", {"rpy": 10}):
                slow.before.shut()
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        await cancel(task)
        await slow.before.reached()
        await cancel(task, 3)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 1_000 == await left(limiter)

    async def test_release_cancelled_in_flight_is_credited_once(self, remote, slow, limiter):
        """The release completes, and the exit does not credit it again."""
        await warm(remote)

        async def work():
            async with remote.acquire("user-1", "gpt-4", {"rpy": 10}) as lease:
                slow.before.shut()
                await lease.release(rpy=4)

        task = asyncio.create_task(work())
        await slow.before.reached()
        await cancel(task, 2)
        slow.before.open()

        assert await ended_by_cancellation(task)
        assert 999 == await left(limiter)

    async def test_consume_dict_changed_during_an_acquire_has_no_effect(self, remote, slow, limiter):
        """The amounts are those at entry."""
        await warm(remote)
        consume = {"rpy": 10}
        slow.after.shut()

        async def work():
            async with remote.acquire("user-1", "gpt-4", consume) as lease:
                await lease.release(rpy=lease.consumed["rpy"])

        task = asyncio.create_task(work())
        await slow.after.reached()
        consume["rpy"] = 500
        slow.after.open()
        await task

        assert 999 == await left(limiter)


async def warm(limiter):
    """Take once, so that the bucket is cached."""
    await keep(limiter, 1)


async def keep(limiter: RateLimiter, amount: int) -> None:
    """Acquire tokens and keep them."""
    async with limiter.acquire("user-1", "gpt-4", {"rpy": amount}):
        pass
