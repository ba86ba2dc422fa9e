"""A limited generator has one lease for the whole iteration, and is charged from its first item on."""

import asyncio
import gc

import pytest

from zae_limiter import RateLimitExceeded, ValidationError, limited


def of_item(item):
    return None if item is None else {"tpm": item}


@pytest.fixture
def numbers(sync_limiter):
    """Return a limited generator of some numbers, each of which costs itself; an error is raised."""

    @limited(sync_limiter, "gpt-4", consume={"rpm": 1, "tpm": 500}, key="user-1", cost=of_item)
    def iterate(*items):
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item
        return "the end"

    return iterate


@pytest.fixture
def async_numbers(limiter):
    """Return the same as an async generator."""

    @limited(limiter, "gpt-4", consume={"rpm": 1, "tpm": 500}, key="user-1", cost=of_item)
    async def iterate(*items):
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item

    return iterate


class TestGenerators:
    """With a SyncRateLimiter."""

    def test_iteration_is_charged_for_the_sum_of_its_items(self, numbers, sync_limiter):
        """An item without a cost counts nothing."""
        assert [100, None, 20, 3] == list(numbers(100, None, 20, 3))
        assert {"rpm": 9, "tpm": 877} == sync_limiter.available("user-1", "gpt-4")

    def test_iteration_without_any_cost_keeps_what_was_taken(self, numbers, sync_limiter):
        """Models report their usage with the last item, which may never come."""
        assert [None] == list(numbers(None))
        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_iteration_without_items_keeps_what_was_taken(self, numbers, sync_limiter):
        """It has succeeded."""
        assert [] == list(numbers())
        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_generator_takes_with_the_first_item(self, numbers, sync_limiter):
        """One that is never iterated takes nothing."""
        items = numbers(1, 2)

        assert 10 == sync_limiter.available("user-1", "gpt-4")["rpm"]
        next(items)
        assert {"rpm": 9, "tpm": 500} == sync_limiter.available("user-1", "gpt-4")

    def test_rejected_generator_raises_with_the_first_item(self, numbers):
        """The generator itself does not run."""
        first = numbers(1, 2)
        next(first)
        second = numbers(1, 2)
        next(second)

        with pytest.raises(RateLimitExceeded):
            next(numbers(1, 2))

    def test_iteration_closed_early_is_charged_for_what_was_used(self, numbers, sync_limiter):
        """The items up to there."""
        items = numbers(100, 20, 3)
        next(items), next(items)
        items.close()

        assert {"rpm": 9, "tpm": 880} == sync_limiter.available("user-1", "gpt-4")

    def test_generator_that_fails_before_the_first_item_gives_back(self, numbers, sync_limiter):
        """Nothing was used."""
        with pytest.raises(OSError, match="none"):
            next(numbers(OSError("none")))
        assert {"rpm": 10, "tpm": 1000} == sync_limiter.available("user-1", "gpt-4")

    def test_generator_that_fails_after_an_item_is_charged(self, numbers, sync_limiter):
        """The items up to there."""
        with pytest.raises(OSError, match="cut off"):
            list(numbers(100, OSError("cut off")))
        assert {"rpm": 9, "tpm": 900} == sync_limiter.available("user-1", "gpt-4")

    def test_abandoned_generator_is_settled_when_it_is_collected(self, numbers, sync_limiter):
        """Python closes it then."""
        items = numbers(100, 20, 3)
        next(items)
        del items
        gc.collect()

        assert 900 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_cost_that_fails_closes_the_generator_and_charges(self, sync_limiter):
        """What was taken is kept."""
        closed = []

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=lambda item: {"spend": 1})
        def iterate():
            try:
                yield 1
            finally:
                closed.append(True)

        with pytest.raises(ValidationError, match="spend"):
            next(iterate())
        assert [True] == closed
        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_values_and_errors_reach_the_generator(self, sync_limiter):
        """``send``, ``throw`` and the returned value pass through, and their items are counted."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 0}, key="user-1", cost=of_item)
        def iterate():
            sent = yield 1
            try:
                yield sent
            except KeyError as error:
                yield error.args[0]
            return "the end"

        items = iterate()

        assert (1, 20, 300) == (next(items), items.send(20), items.throw(KeyError(300)))
        with pytest.raises(StopIteration, match="the end"):
            next(items)
        assert 679 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_limited_generator_can_be_delegated_to(self, numbers):
        """``yield from`` returns what it returns."""

        def outer():
            return (yield from numbers(1, 2))

        items = outer()

        assert [1, 2] == [next(items), next(items)]
        with pytest.raises(StopIteration, match="the end"):
            next(items)


class TestAsyncGenerators:
    """With a RateLimiter."""

    async def test_iteration_is_charged_for_the_sum_of_its_items(self, async_numbers, limiter):
        """An item without a cost counts nothing."""
        assert [100, None, 20, 3] == [item async for item in async_numbers(100, None, 20, 3)]
        assert {"rpm": 9, "tpm": 877} == await limiter.available("user-1", "gpt-4")

    async def test_iteration_without_items_keeps_what_was_taken(self, async_numbers, limiter):
        """It has succeeded."""
        assert [] == [item async for item in async_numbers()]
        assert 500 == (await limiter.available("user-1", "gpt-4"))["tpm"]

    async def test_generator_takes_with_the_first_item(self, async_numbers, limiter):
        """One that is never iterated takes nothing."""
        items = async_numbers(1, 2)

        assert 10 == (await limiter.available("user-1", "gpt-4"))["rpm"]
        await anext(items)
        assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "gpt-4")
        await items.aclose()

    async def test_iteration_closed_early_is_charged_for_what_was_used(self, async_numbers, limiter):
        """The items up to there."""
        items = async_numbers(100, 20, 3)
        await anext(items)
        await anext(items)
        await items.aclose()

        assert {"rpm": 9, "tpm": 880} == await limiter.available("user-1", "gpt-4")

    async def test_generator_that_fails_before_the_first_item_gives_back(self, async_numbers, limiter):
        """Nothing was used."""
        with pytest.raises(OSError, match="none"):
            await anext(async_numbers(OSError("none")))
        assert {"rpm": 10, "tpm": 1000} == await limiter.available("user-1", "gpt-4")

    async def test_generator_that_fails_after_an_item_is_charged(self, async_numbers, limiter):
        """The items up to there."""
        with pytest.raises(OSError, match="cut off"):
            [item async for item in async_numbers(100, OSError("cut off"))]
        assert {"rpm": 9, "tpm": 900} == await limiter.available("user-1", "gpt-4")

    @pytest.mark.parametrize(("items_before", "left"), [(0, 1000), (1, 900)])
    async def test_cancelled_generator_is_charged_from_its_first_item_on(self, limiter, items_before, left):
        """Before it, everything is given back."""
        waiting, closed = asyncio.Event(), []

        @limited(limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=of_item)
        async def iterate():
            try:
                for _ in range(items_before):
                    yield 100
                waiting.set()
                await asyncio.Event().wait()
                yield 1
            finally:
                closed.append(True)

        async def consume_all():
            return [item async for item in iterate()]

        task = asyncio.create_task(consume_all())
        await waiting.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert [True] == closed
        assert left == (await limiter.available("user-1", "gpt-4"))["tpm"]

    async def test_abandoned_generator_is_settled_when_it_is_collected(self, limiter):
        """The event loop closes it then."""
        closed = asyncio.Event()

        @limited(limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=of_item)
        async def iterate():
            try:
                yield 100
                yield 20
            finally:
                closed.set()

        async for _ in iterate():
            break
        gc.collect()
        await closed.wait()
        # The loop closes it in a task of its own, which also settles.
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

        assert 900 == (await limiter.available("user-1", "gpt-4"))["tpm"]

    async def test_values_and_errors_reach_the_generator(self, limiter):
        """``asend`` and ``athrow`` pass through, and their items are counted."""

        @limited(limiter, "gpt-4", consume={"tpm": 0}, key="user-1", cost=of_item)
        async def iterate():
            sent = yield 1
            try:
                yield sent
            except KeyError as error:
                yield error.args[0]

        items = iterate()

        assert (1, 20) == (await anext(items), await items.asend(20))
        assert 300 == await items.athrow(KeyError(300))
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        assert 679 == (await limiter.available("user-1", "gpt-4"))["tpm"]

    async def test_error_that_the_generator_does_not_catch_comes_back(self, async_numbers, limiter):
        """The iteration has ended, and its items are charged."""
        items = async_numbers(100, 20)
        await anext(items)

        with pytest.raises(KeyError):
            await items.athrow(KeyError("thrown"))
        assert 900 == (await limiter.available("user-1", "gpt-4"))["tpm"]
        with pytest.raises(StopAsyncIteration):
            await anext(items)

    async def test_cost_that_fails_closes_the_generator_and_charges(self, limiter):
        """What was taken is kept."""
        closed = []

        @limited(limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=lambda item: {"spend": 1})
        async def iterate():
            try:
                yield 1
            finally:
                closed.append(True)

        with pytest.raises(ValidationError, match="spend"):
            await anext(iterate())
        assert [True] == closed
        assert 500 == (await limiter.available("user-1", "gpt-4"))["tpm"]
