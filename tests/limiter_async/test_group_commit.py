"""Acquires of one bucket that share a write: few writes, separate leases, admission in order."""

import asyncio

import pytest

from tests.limiter_async.remote import ROOM, ended, staged, take, ticks
from zae_limiter import AmountExceedsCapacityError, Limit, RateLimitExceeded, ValidationError


@pytest.fixture
async def stage():
    async with staged() as made:
        yield made


class TestWrites:
    async def test_many_concurrent_acquires_share_few_writes(self, stage):
        """Nothing is lost or counted twice."""
        await stage.warm()
        await asyncio.gather(*(take(stage.remote, 2) for _ in range(64)))

        assert stage.table.drain() <= 8
        assert (1_000 - 128, 128) == (await stage.left(), stage.counted())

    async def test_waiting_acquires_are_sent_as_one_write(self, stage):
        """They are sent when a write in flight returns."""
        await stage.warm()
        tasks = await stage.fill() + await stage.queued(1, 2, 3, 4, 5, 6)
        before = stage.table.drain()
        stage.table.before.open()

        assert [None] * 14 == await ended(tasks)
        assert (8, 1) == (before, stage.table.drain())
        assert 29 == stage.counted()

    async def test_sequential_acquires_make_one_write_each(self, stage):
        """A single request is sent immediately."""
        await stage.warm()
        for _ in range(5):
            await take(stage.remote, 1)

        assert 5 == stage.table.drain()

    async def test_acquires_without_group_commit_make_one_write_each(self):
        """There are as many writes as requests."""
        async with staged(together=False) as stage:
            await stage.warm()
            await asyncio.gather(*(take(stage.remote, 1) for _ in range(20)))

            assert (20, 20) == (stage.table.drain(), stage.counted())

    async def test_settlements_of_leases_that_end_together_share_writes(self, stage):
        """Debits and credits are sent as one sum."""
        await stage.warm()

        async def work(number):
            async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=number - 2)

        await asyncio.gather(*(work(number) for number in range(30)))

        assert stage.table.drain() <= 16
        assert 30 * 3 + sum(range(30)) == stage.counted() == 1_000 - await stage.left()

    async def test_settlements_that_cancel_out_make_no_write(self, stage):
        """The credit of one lease covers the debit of the other."""
        await stage.warm()
        entered = asyncio.Barrier(3)

        async def work(change):
            async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=change)
                await entered.wait()

        tasks = [asyncio.create_task(work(change)) for change in (2, -2)]
        await ticks(30)
        stage.table.drain()
        await entered.wait()

        assert [None, None] == await ended(tasks)
        assert (0, 10) == (stage.table.drain(), stage.counted())

    async def test_concurrent_acquires_of_different_entities_are_counted_separately(self, stage):
        """Each entity has its own writes and tokens."""
        await asyncio.gather(*(take(stage.remote, number % 3 + 1, f"user-{number % 3}") for number in range(30)))

        assert [10, 20, 30] == [stage.counted(entity_id=f"user-{number}") for number in range(3)]


class TestSeparateLeases:
    async def test_leases_of_one_group_write_adjust_release_and_fail_separately(self, stage):
        """They shared only the take."""
        await stage.warm()

        async def work(number):
            async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 4, "tpm": 10 * number}) as lease:
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
    async def test_cancelled_request_of_a_group_write_credits_only_its_own_tokens(self, stage, leaver):
        """This holds for every position in the batch."""
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
    async def test_request_cancelled_while_it_waits_is_not_in_the_group_write(self, stage, leaver):
        """Nothing has to be credited."""
        await stage.warm()
        tasks = await stage.fill()
        waiting = await stage.queued(10, 20, 40)
        waiting[leaver].cancel()
        await ended(waiting[leaver : leaver + 1])
        stage.table.drain()
        stage.table.before.open()
        await ended(tasks + waiting)

        assert 1 == stage.table.drain()
        assert 8 + 70 - (10, 20, 40)[leaver] == stage.counted()


class TestAdmissionOrder:
    async def test_group_that_exceeds_the_level_is_admitted_in_order(self, stage):
        """A request that does not fit does not block those behind it; one more write is enough."""
        await stage.warm()
        await take(stage.local, 990)
        ends = await ended(await stage.queued(4, 7, 6, 1, 0))

        assert [None, RateLimitExceeded, None, RateLimitExceeded, None] == ends
        assert (1_000, 0) == (stage.counted(), await stage.left())
        assert stage.table.drain() <= 3

    async def test_rejected_request_of_a_group_reports_the_exact_level_and_wait(self, stage):
        """It is admitted after the wait, and not a millisecond earlier."""
        await stage.warm()
        await take(stage.local, 990)
        tasks = await stage.queued(4, 9, 3)
        await asyncio.wait(tasks)
        error = tasks[1].exception()
        status = error.primary_violation

        assert (3, 9) == (status.available, status.requested)
        wait_ms = round(error.retry_after_seconds * 1000)
        assert 360 == wait_ms
        stage.clock.advance(wait_ms - 1)
        with pytest.raises(RateLimitExceeded):
            await take(stage.local, 9)
        stage.clock.advance(1)
        await take(stage.local, 9)

    async def test_exhausted_bucket_is_read_once_for_all_waiting_requests(self):
        """Even without local rejection, they are not rejected one by one."""
        async with staged(reject_locally_ms=0) as stage:
            await stage.warm(amount=990)
            stage.clock.advance(60)
            ends = await ended(await stage.queued(*[12] * 50, 5, 7))

            assert [RateLimitExceeded] * 50 + [None, RateLimitExceeded] == ends
            assert stage.table.reads <= 6
            assert 995 == stage.counted()

    async def test_group_larger_than_the_capacity_is_judged_request_by_request(self, stage):
        """Each request is admitted, or rejected with its wait."""
        await stage.warm()
        ends = await ended(await stage.queued(*[400] * 6))

        assert [None] * 2 + [RateLimitExceeded] * 4 == ends
        assert 800 == stage.counted()

    @pytest.mark.parametrize("warm", [True, False])
    async def test_invalid_amounts_in_a_group_do_not_affect_the_other_requests(self, stage, warm):
        """With and without cached limits."""
        if warm:
            await stage.warm()
        ends = await ended(await stage.queued(1, 2, 1_001, 4, -5, 8, "9", None, 16, True, 32, 1.0))

        bad, above = ValidationError, AmountExceedsCapacityError
        assert [None, None, above, None, bad, None, bad, bad, None, bad, None, bad] == ends
        assert 63 == stage.counted()

    @pytest.mark.parametrize("warm", [True, False])
    async def test_unknown_limit_in_a_group_does_not_affect_the_other_requests(self, stage, warm):
        """Only the request that names it is refused."""
        if warm:
            await stage.warm()

        async def ask(consume):
            async with stage.remote.acquire("user-1", "gpt-4", consume):
                pass

        asked = [{"rpm": 1}, {"nope": 1}, {"rpm": 2, "tpm": 5}, {"tpm": 1, "nope": 1}, {"rpm": 4}]
        ends = await ended([asyncio.create_task(ask(consume)) for consume in asked])

        assert [None, ValidationError, None, ValidationError, None] == ends
        assert (7, 5) == (stage.counted(), stage.counted("tpm"))

    @pytest.mark.parametrize("entity_id", ["a#b", "", ["user-1"], None])
    @pytest.mark.parametrize("amount", [1, -1])
    async def test_acquire_with_an_invalid_entity_id_on_a_remote_table_raises(self, stage, entity_id, amount):
        """Values that cannot be hashed are refused as well."""
        with pytest.raises(ValidationError):
            await take(stage.remote, amount, entity_id)

    async def test_requests_with_passed_limits_are_not_grouped(self, stage):
        """Concurrent requests without limits are not affected."""
        own = [Limit.per_minute("rpm", 50)]
        await stage.warm("user-2")
        tasks = [asyncio.create_task(take(stage.remote, 30, "user-2", limits=own)) for _ in range(3)]
        tasks += await stage.queued(1, 2)

        assert [None, RateLimitExceeded, RateLimitExceeded, None, None] == await ended(tasks)
        assert (30, 3) == (stage.counted(entity_id="user-2"), stage.counted())

    async def test_expired_cached_limits_refuse_no_request(self, stage):
        """They may have been raised in the meantime."""
        await stage.warm()
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 5_000)])
        stage.clock.advance(3_600_000)
        ends = await ended(await stage.queued(1, 2_000))
        stage.clock.advance(60_000)

        assert [None, RateLimitExceeded] == ends
        assert [None, None] == await ended(await stage.queued(2_000, 2_000))


class TestLevels:
    """Many children share the buckets above them, which are the hot ones of a hierarchy."""

    children = 256

    async def writes_of(self, *above):
        """Let all children take, some before and most while writes are in flight; return the writes to each entity."""
        async with staged(limits=(Limit.per_minute("rpm", 100_000),)) as stage:
            parent = None
            for entity in reversed(above):
                await stage.repo.create_entity(entity, parent_id=parent, cascade=parent is not None)
                parent = entity
            keys = [f"key-{number}" for number in range(self.children)]
            for key in keys:
                await stage.repo.create_entity(key, parent_id=parent, cascade=True)
                await stage.warm(key, 1)
            stage.table.before.shut()
            tasks = []
            for key in keys:
                tasks.append(asyncio.create_task(take(stage.remote, 2, key)))
                await ticks(10 if len(tasks) <= ROOM else 0)
            await ticks(10)
            stage.table.before.open()
            await asyncio.gather(*tasks)
            counted = [stage.counted(entity_id=entity) for entity in above]
            made = [pk.partition("BUCKET#")[2].partition("#")[0] for pk in stage.table.writes]

        assert [3 * self.children] * len(above) == counted
        assert dict.fromkeys(keys, 1) == {key: made.count(key) for key in keys}
        return [made.count(entity) for entity in above]

    async def test_writes_to_each_level_above_are_grouped_as_those_to_a_parent(self):
        """256 children of a team of an organisation: to each of the two, as many writes as to the parent of 256."""
        parent, upper = await self.writes_of("parent"), await self.writes_of("team", "organisation")

        assert [ROOM + 1] == parent
        assert parent * 2 == upper
