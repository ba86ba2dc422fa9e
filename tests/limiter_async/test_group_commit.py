"""Acquires of one bucket that travel as one write: few writes, each lease its own, admitted in order."""

import asyncio

import pytest

from tests.limiter_async.far import ended, staged, take, ticks
from zae_limiter import Limit, RateLimitExceeded, ValidationError


@pytest.fixture
async def stage():
    async with staged() as made:
        yield made


class TestWrites:
    async def test_many_at_once_need_few_writes(self, stage):
        """Those who start together travel together; nothing is lost or counted twice."""
        await stage.warm()
        await asyncio.gather(*(take(stage.far, 2) for _ in range(64)))

        assert stage.table.drain() <= 8
        assert (1_000 - 128, 128) == (await stage.left(), stage.counted())

    async def test_those_who_wait_travel_as_one(self, stage):
        """When a write returns, all of them go out."""
        await stage.warm()
        tasks = await stage.crowd() + await stage.queued(1, 2, 3, 4, 5, 6)
        before = stage.table.drain()
        stage.table.before.open()

        assert [None] * 14 == await ended(tasks)
        assert (8, 1) == (before, stage.table.drain())
        assert 29 == stage.counted()

    async def test_one_alone_is_written_at_once(self, stage):
        """One after the other, each is one write."""
        await stage.warm()
        for _ in range(5):
            await take(stage.far, 1)

        assert 5 == stage.table.drain()

    async def test_without_group_commit_each_request_is_a_write(self):
        """As many as there are requests."""
        async with staged(together=False) as stage:
            await stage.warm()
            await asyncio.gather(*(take(stage.far, 1) for _ in range(20)))

            assert (20, 20) == (stage.table.drain(), stage.counted())

    async def test_settlements_of_leases_that_end_together_travel_together(self, stage):
        """Up and down, in one sum."""
        await stage.warm()

        async def work(number):
            async with stage.far.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=number - 2)

        await asyncio.gather(*(work(number) for number in range(30)))

        assert stage.table.drain() <= 16
        assert 30 * 3 + sum(range(30)) == stage.counted() == 1_000 - await stage.left()

    async def test_settlements_that_even_out_write_nothing(self, stage):
        """What one gives back another takes."""
        await stage.warm()
        entered = asyncio.Barrier(3)

        async def work(change):
            async with stage.far.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=change)
                await entered.wait()

        tasks = [asyncio.create_task(work(change)) for change in (2, -2)]
        await ticks(30)
        stage.table.drain()
        await entered.wait()

        assert [None, None] == await ended(tasks)
        assert (0, 10) == (stage.table.drain(), stage.counted())

    async def test_different_entities_do_not_mix(self, stage):
        """Each has its own writes, and its own tokens."""
        await asyncio.gather(*(take(stage.far, number % 3 + 1, f"user-{number % 3}") for number in range(30)))

        assert [10, 20, 30] == [stage.counted(entity_id=f"user-{number}") for number in range(3)]


class TestEachItsOwn:
    async def test_each_lease_adjusts_releases_and_fails_for_itself(self, stage):
        """Though all were taken in one write."""
        await stage.warm()

        async def work(number):
            async with stage.far.acquire("user-1", "gpt-4", {"rpm": 4, "tpm": 10 * number}) as lease:
                await asyncio.sleep(0)
                match number % 4:
                    case 0:
                        await lease.adjust(rpm=-1, tpm=number)
                    case 1:
                        await lease.release(rpm=3)
                    case 2:
                        raise KeyError(number)
                    case _:
                        await lease.consume(rpm=2)
            return lease.consumed

        results = await asyncio.gather(*(work(number) for number in range(40)), return_exceptions=True)
        kept = [result for result in results if isinstance(result, dict)]

        assert 30 == len(kept)
        assert 10 * (3 + 1 + 6) == sum(lease["rpm"] for lease in kept) == stage.counted()
        assert sum(lease["tpm"] for lease in kept) == stage.counted("tpm") == 60_000 - await stage.left("tpm")

    @pytest.mark.parametrize("leaver", range(8))
    async def test_one_that_is_cancelled_takes_only_its_own(self, stage, leaver):
        """Leading or led, queued or under way."""
        await stage.warm()
        stage.table.after.shut()
        amounts = [1, 2, 4, 8, 16, 32, 64, 128]
        tasks = await stage.queued(*amounts)
        tasks[leaver].cancel()
        await asyncio.sleep(0)
        stage.table.after.open()
        ends = await ended(tasks)

        assert [asyncio.CancelledError] == [end for end in ends if end is not None]
        assert 255 - amounts[leaver] == stage.counted() == 1_000 - await stage.left()

    @pytest.mark.parametrize("leaver", [0, 1, 2])
    async def test_one_that_is_cancelled_while_it_waits_was_never_taken(self, stage, leaver):
        """It is not in the sum that sets out, and no write gives anything back."""
        await stage.warm()
        tasks = await stage.crowd()
        waiting = await stage.queued(10, 20, 40)
        waiting[leaver].cancel()
        await ended(waiting[leaver : leaver + 1])
        stage.table.drain()
        stage.table.before.open()
        await ended(tasks + waiting)

        assert 1 == stage.table.drain()
        assert 8 + 70 - (10, 20, 40)[leaver] == stage.counted()


class TestInOrder:
    async def test_a_group_that_is_too_much_is_admitted_in_order(self, stage):
        """As far as the level reaches, in one more write; one that does not fit holds up none behind it."""
        await stage.warm()
        await take(stage.near, 990)
        ends = await ended(await stage.queued(4, 7, 6, 1, 0))

        assert [None, RateLimitExceeded, None, RateLimitExceeded, None] == ends
        assert (1_000, 0) == (stage.counted(), await stage.left())
        assert stage.table.drain() <= 3

    async def test_what_is_rejected_is_told_what_is_truly_there_and_when_to_come_again(self, stage):
        """After those that were admitted: then it is admitted, a millisecond earlier it is not."""
        await stage.warm()
        await take(stage.near, 990)
        tasks = await stage.queued(4, 9, 3)
        await asyncio.wait(tasks)
        error = tasks[1].exception()
        status = error.primary_violation

        assert (3, 9) == (status.available, status.requested)
        wait_ms = round(error.retry_after_seconds * 1000)
        assert 360 == wait_ms
        stage.clock.advance(wait_ms - 1)
        with pytest.raises(RateLimitExceeded):
            await take(stage.near, 9)
        stage.clock.advance(1)
        await take(stage.near, 9)

    async def test_an_exhausted_bucket_is_looked_at_once_for_all_who_wait(self):
        """However wary of rejecting by memory: they are not rejected one after the other."""
        async with staged(reject_locally_ms=0) as stage:
            await stage.warm(amount=990)
            stage.clock.advance(60)
            ends = await ended(await stage.queued(*[12] * 50, 5, 7))

            assert [RateLimitExceeded] * 50 + [None, RateLimitExceeded] == ends
            assert stage.table.reads <= 6
            assert 995 == stage.counted()

    async def test_what_is_more_than_the_capacity_together_is_not_refused_for_it(self, stage):
        """Each that fits alone is admitted or told when to come again."""
        await stage.warm()
        ends = await ended(await stage.queued(*[400] * 6))

        assert [None] * 2 + [RateLimitExceeded] * 4 == ends
        assert 800 == stage.counted()

    @pytest.mark.parametrize("warm", [True, False])
    async def test_what_can_never_be_admitted_harms_no_other(self, stage, warm):
        """Whether or not the limits are known when it comes."""
        if warm:
            await stage.warm()
        ends = await ended(await stage.queued(1, 2, 1_001, 4, -5, 8, "9", None, 16, True, 32, 1.0))

        bad = ValidationError
        assert [None, None, bad, None, bad, None, bad, bad, None, bad, None, bad] == ends
        assert 63 == stage.counted()

    @pytest.mark.parametrize("warm", [True, False])
    async def test_a_limit_that_is_not_there_harms_no_other(self, stage, warm):
        """It is refused by itself."""
        if warm:
            await stage.warm()

        async def ask(consume):
            async with stage.far.acquire("user-1", "gpt-4", consume):
                pass

        asked = [{"rpm": 1}, {"nope": 1}, {"rpm": 2, "tpm": 5}, {"tpm": 1, "nope": 1}, {"rpm": 4}]
        ends = await ended([asyncio.create_task(ask(consume)) for consume in asked])

        assert [None, ValidationError, None, ValidationError, None] == ends
        assert (7, 5) == (stage.counted(), stage.counted("tpm"))

    @pytest.mark.parametrize("entity_id", ["a#b", "", ["user-1"], None])
    @pytest.mark.parametrize("amount", [1, -1])
    async def test_names_that_are_none_are_refused(self, stage, entity_id, amount):
        """As on any other table, those that cannot be hashed too."""
        with pytest.raises(ValidationError):
            await take(stage.far, amount, entity_id)

    async def test_those_who_bring_limits_of_their_own_go_alone(self, stage):
        """Whatever others ask for at the time."""
        own = [Limit.per_minute("rpm", 50)]
        await stage.warm("user-2")
        tasks = [asyncio.create_task(take(stage.far, 30, "user-2", limits=own)) for _ in range(3)]
        tasks += await stage.queued(1, 2)

        assert [None, RateLimitExceeded, RateLimitExceeded, None, None] == await ended(tasks)
        assert (30, 3) == (stage.counted(entity_id="user-2"), stage.counted())

    async def test_limits_that_are_to_be_read_again_refuse_nothing(self, stage):
        """They may have been raised since."""
        await stage.warm()
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 5_000)])
        stage.clock.advance(3_600_000)
        ends = await ended(await stage.queued(1, 2_000))
        stage.clock.advance(60_000)

        assert [None, RateLimitExceeded] == ends
        assert [None, None] == await ended(await stage.queued(2_000, 2_000))
