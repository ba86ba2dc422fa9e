"""What changes while requests wait to travel together: the store goes away, limits change, buckets vanish or split."""

import asyncio

import pytest

from tests._async.shards import OtherClient, counts, total, used
from tests.limiter_async.far import RPM, ended, staged, take, ticks
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded


@pytest.fixture
async def stage():
    async with staged() as made:
        yield made


class TestAway:
    async def test_a_write_that_fails_is_told_to_all_of_it(self, stage):
        """Each that blocks hears of it; nothing was taken."""
        await stage.warm()
        tasks = await stage.crowd()
        waiting = await stage.queued(1, 2, 3)
        stage.table.away = True
        stage.table.before.open()

        assert [RateLimiterUnavailable] * 3 == await ended(waiting)
        await ended(tasks)
        assert 8 == stage.counted()

    async def test_each_error_tells_of_the_bucket(self, stage):
        """As one that went alone."""
        await stage.warm()
        stage.table.away = True
        waiting = await stage.queued(1, 2)
        errors = await asyncio.gather(*waiting, return_exceptions=True)

        assert [("user-1", "gpt-4")] * 2 == [(error.entity_id, error.resource) for error in errors]
        assert errors[0] is not errors[1]

    async def test_each_chooses_for_itself_what_to_do_then(self, stage):
        """Let through, unlimited, or not."""
        await stage.warm()
        stage.table.away = True
        choices = ["allow", "block", "allow", "block"]
        tasks = [asyncio.create_task(take(stage.far, 1, on_unavailable=choice)) for choice in choices]
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert [True, False, True, False] == [getattr(result, "degraded", False) for result in results]
        assert 0 == stage.counted()

    async def test_those_who_come_after_the_store_is_back_are_served(self, stage):
        """A failure reaches every waiter of its write and no other."""
        await stage.warm()
        stage.table.away = True
        failed = await ended(await stage.queued(1, 2))
        stage.table.away = False

        assert [RateLimiterUnavailable] * 2 == failed
        assert [None, None] == await ended(await stage.queued(4, 8))
        assert 12 == stage.counted()

    async def test_who_was_rejected_before_the_store_went_away_stays_rejected(self, stage):
        """Only those that were to be written then hear that it is away."""
        await stage.warm()
        await take(stage.near, 990)
        stage.table.after.shut()
        tasks = await stage.queued(4, 7, 6)
        await stage.table.after.reached()
        stage.table.away = True
        stage.table.after.open()

        assert [RateLimiterUnavailable, RateLimitExceeded, RateLimiterUnavailable] == await ended(tasks)

    async def test_a_debit_that_is_not_settled_is_told_to_those_who_owe_it(self, stage):
        """Credits that travelled with it are lost in silence, as alone."""
        await stage.warm()

        async def work(change):
            async with stage.far.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=change)
                await ticks(20)
                stage.table.away = True

        assert [RateLimiterUnavailable, None] == await ended([asyncio.create_task(work(by)) for by in (3, -1)])


class TestConfig:
    async def test_limits_that_shrink_while_requests_wait_are_obeyed(self, stage):
        """They set out by the old limits, are refused, and are judged by the new, each alone if need be."""
        await stage.warm()
        tasks = await stage.crowd()
        waiting = await stage.queued(10, 20, 30, 90)
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 50)])
        await take(stage.near, 1)
        stage.table.before.open()
        ends = await ended(tasks + waiting)
        used = 1 + sum(amount for amount, end in zip([1] * 8 + [10, 20, 30, 90], ends, strict=True) if end is None)

        assert used <= 50
        assert used == stage.counted()
        assert 50 - used == await stage.left()

    async def test_limits_that_grow_while_requests_wait_are_obeyed(self, stage):
        """All of them are admitted, and counted once."""
        await stage.warm()
        tasks = await stage.crowd()
        waiting = await stage.queued(10, 20, 30)
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 5_000)])
        await take(stage.near, 1)
        stage.table.before.open()

        assert [None] * 11 == await ended(tasks + waiting)
        assert 69 == stage.counted()

    async def test_a_bucket_that_vanishes_is_made_anew(self, stage):
        """Those who wait are served from the new one."""
        await stage.repo.create_entity("user-1")
        await stage.warm(amount=500)
        tasks = await stage.crowd()
        waiting = await stage.queued(10, 20, 30)
        await stage.repo.delete_entity("user-1")
        stage.table.before.open()
        ends = await ended(tasks + waiting)

        assert [None] * 11 == ends
        assert 68 == stage.counted()

    async def test_no_limits_are_told_to_all(self, stage):
        """To each as if it had come alone."""
        await stage.warm()
        await stage.repo.delete_system_defaults()
        stage.clock.advance(3_600_000)
        ends = await ended(await stage.queued(1, 2, 3))

        assert ["NoLimitsInForceError"] * 3 == [end.__name__ for end in ends]


class TestShards:
    @pytest.mark.parametrize("shard_count", [2, 4])
    async def test_a_bucket_that_others_split_stays_exact(self, shard_count):
        """All there is is given, and no more, though requests travel together."""
        async with staged(limits=[RPM]) as stage:
            await stage.warm(amount=1)
            await OtherClient(stage.repo).grow(shard_count)
            ends = await ended([asyncio.create_task(take(stage.far, 3)) for _ in range(400)])
            admitted = ends.count(None)

            assert {None, RateLimitExceeded} == set(ends)
            assert 999 // 3 == admitted
            assert 1 + 3 * admitted == used(stage.repo, "rpm")
            assert 1_000_000 - 1_000 * used(stage.repo, "rpm") == total(stage.repo, "rpm", stage.clock.time_ms)

    async def test_a_bucket_that_splits_while_requests_wait_stays_exact(self):
        """Those under way and those that wait are taken from it once, and given back once."""
        async with staged(limits=[RPM]) as stage:
            await stage.warm(amount=1)
            tasks = await stage.crowd()
            tasks += await stage.queued(100, 200, 300)
            await OtherClient(stage.repo).grow(2)
            stage.table.before.open()
            ends = await ended(tasks)
            limiter = RateLimiter(stage.far_repo)

            async def fail(amount):
                async with limiter.acquire("user-1", "gpt-4", {"rpm": amount}):
                    raise KeyError

            failed = await ended([asyncio.create_task(fail(amount)) for amount in (10, 20, 30)])

            assert [None] * 11 == ends
            assert [KeyError] * 3 == failed
            assert {0: 2, 1: 2} == counts(stage.repo)
            assert 609 == used(stage.repo, "rpm")
            assert 391_000 == total(stage.repo, "rpm", stage.clock.time_ms)
