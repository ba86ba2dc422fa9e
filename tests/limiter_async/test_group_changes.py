"""Changes while requests wait for a common write: the store fails, limits change, buckets disappear or split."""

import asyncio

import pytest

from tests._async.shards import OtherClient, counts, total, used
from tests.limiter_async.remote import RPM, ended, staged, take, ticks
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError


@pytest.fixture
async def stage():
    async with staged() as made:
        yield made


class TestUnavailable:
    async def test_failed_group_write_raises_for_every_request_in_it(self, stage):
        """Nothing was taken."""
        await stage.warm()
        tasks = await stage.fill()
        waiting = await stage.queued(1, 2, 3)
        stage.table.unavailable = True
        stage.table.before.open()

        assert [RateLimiterUnavailable] * 3 == await ended(waiting)
        await ended(tasks)
        assert 8 == stage.counted()

    async def test_errors_of_a_failed_group_write_name_entity_and_resource(self, stage):
        """Each request gets its own error, as if it had been sent alone."""
        await stage.warm()
        stage.table.unavailable = True
        waiting = await stage.queued(1, 2)
        errors = await asyncio.gather(*waiting, return_exceptions=True)

        assert [("user-1", "gpt-4")] * 2 == [(error.entity_id, error.resource) for error in errors]
        assert errors[0] is not errors[1]

    async def test_each_request_of_a_failed_group_write_uses_its_own_on_unavailable(self, stage):
        """Some get a degraded lease, the others an error."""
        await stage.warm()
        stage.table.unavailable = True
        choices = ["allow", "block", "allow", "block"]
        tasks = [asyncio.create_task(take(stage.remote, 1, on_unavailable=choice)) for choice in choices]
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert [True, False, True, False] == [getattr(result, "degraded", False) for result in results]
        assert 0 == stage.counted()

    async def test_requests_after_the_store_is_back_are_admitted(self, stage):
        """A failure reaches the requests of its write and no others."""
        await stage.warm()
        stage.table.unavailable = True
        failed = await ended(await stage.queued(1, 2))
        stage.table.unavailable = False

        assert [RateLimiterUnavailable] * 2 == failed
        assert [None, None] == await ended(await stage.queued(4, 8))
        assert 12 == stage.counted()

    async def test_request_rejected_before_the_failure_stays_rejected(self, stage):
        """Only the requests that were still to be written get the error."""
        await stage.warm()
        await take(stage.local, 990)
        stage.table.after.shut()
        tasks = await stage.queued(4, 7, 6)
        await stage.table.after.reached()
        stage.table.unavailable = True
        stage.table.after.open()

        assert [RateLimiterUnavailable, RateLimitExceeded, RateLimiterUnavailable] == await ended(tasks)

    async def test_failed_group_settlement_raises_for_debits_and_not_for_credits(self, stage):
        """A lost credit is only logged, as for a single lease."""
        await stage.warm()

        async def work(change):
            async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 5}) as lease:
                await lease.adjust(rpm=change)
                await ticks(20)
                stage.table.unavailable = True

        assert [RateLimiterUnavailable, None] == await ended([asyncio.create_task(work(by)) for by in (3, -1)])


class TestConfig:
    """Limits that change while requests wait."""

    async def test_limits_lowered_while_requests_wait_apply_to_them(self, stage):
        """The write with the old limits is refused, and the requests are judged by the new ones."""
        await stage.warm()
        tasks = await stage.fill()
        waiting = await stage.queued(10, 20, 30, 90)
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 50)])
        await take(stage.local, 1)
        stage.table.before.open()
        ends = await ended(tasks + waiting)
        used = 1 + sum(amount for amount, end in zip([1] * 8 + [10, 20, 30, 90], ends, strict=True) if end is None)

        assert used <= 50
        assert used == stage.counted()
        assert 50 - used == await stage.left()

    async def test_limits_raised_while_requests_wait_apply_to_them(self, stage):
        """All requests are admitted, and counted once."""
        await stage.warm()
        tasks = await stage.fill()
        waiting = await stage.queued(10, 20, 30)
        await stage.repo.set_system_defaults([Limit.per_minute("rpm", 5_000)])
        await take(stage.local, 1)
        stage.table.before.open()

        assert [None] * 11 == await ended(tasks + waiting)
        assert 69 == stage.counted()

    async def test_bucket_deleted_while_requests_wait_is_created_again(self, stage):
        """The waiting requests take from the new bucket."""
        await stage.repo.create_entity("user-1")
        await stage.warm(amount=500)
        tasks = await stage.fill()
        waiting = await stage.queued(10, 20, 30)
        await stage.repo.delete_entity("user-1")
        stage.table.before.open()
        ends = await ended(tasks + waiting)

        assert [None] * 11 == ends
        assert 68 == stage.counted()

    async def test_invalid_requests_of_a_group_add_no_writes(self):
        """They fail at once, and the valid ones share a write, even if no limits are cached."""
        async with staged(limits=[RPM], config_cache_ttl_ms=0) as stage:
            await stage.warm()

            async def acquire(**consume):
                async with stage.remote.acquire("user-1", "gpt-4", consume):
                    pass

            tasks = await stage.fill()
            stage.table.drain()
            amounts = [{"rpm": 1} if number % 2 else {"spend": 1} for number in range(40)]
            waiting = [asyncio.create_task(acquire(**consume)) for consume in amounts]
            await ticks(20)
            stage.table.before.open()
            ends = await ended(waiting)

            assert [ValidationError, None] * 20 == ends
            assert [None] * 8 == await ended(tasks)
            assert 28 == stage.counted()
            assert stage.table.drain() <= 2

    async def test_requests_of_a_group_without_limits_all_raise(self, stage):
        """Each gets the error that it would get alone."""
        await stage.warm()
        await stage.repo.delete_system_defaults()
        stage.clock.advance(3_600_000)
        ends = await ended(await stage.queued(1, 2, 3))

        assert ["NoLimitsInForceError"] * 3 == [end.__name__ for end in ends]


class TestShards:
    @pytest.mark.parametrize("shard_count", [2, 4])
    async def test_grouped_requests_take_exactly_the_total_of_a_split_bucket(self, shard_count):
        """All available tokens are admitted, and no more."""
        async with staged(limits=[RPM]) as stage:
            await stage.warm(amount=1)
            await OtherClient(stage.repo).grow(shard_count)
            ends = await ended([asyncio.create_task(take(stage.remote, 3)) for _ in range(400)])
            admitted = ends.count(None)

            assert {None, RateLimitExceeded} == set(ends)
            assert 999 // 3 == admitted
            assert 1 + 3 * admitted == used(stage.repo, "rpm")
            assert 1_000_000 - 1_000 * used(stage.repo, "rpm") == total(stage.repo, "rpm", stage.clock.time_ms)

    async def test_bucket_split_while_requests_wait_counts_every_take_once(self):
        """Requests in flight and waiting are debited once, and credited once."""
        async with staged(limits=[RPM]) as stage:
            await stage.warm(amount=1)
            tasks = await stage.fill()
            tasks += await stage.queued(100, 200, 300)
            await OtherClient(stage.repo).grow(2)
            stage.table.before.open()
            ends = await ended(tasks)
            limiter = RateLimiter(stage.remote_repo)

            async def fail(amount):
                async with limiter.acquire("user-1", "gpt-4", {"rpm": amount}):
                    raise KeyError

            failed = await ended([asyncio.create_task(fail(amount)) for amount in (10, 20, 30)])

            assert [None] * 11 == ends
            assert [KeyError] * 3 == failed
            assert {0: 2, 1: 2} == counts(stage.repo)
            assert 609 == used(stage.repo, "rpm")
            assert 391_000 == total(stage.repo, "rpm", stage.clock.time_ms)
