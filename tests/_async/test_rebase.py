"""A live bucket whose limits change: levels stay exact, and clients with old limits do not write them back."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, ValidationError

from .clients import Wrapped, another, balance_of, buckets_in, counted, take

OLD = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
MINE = Limit.per_minute("mine", 30)


@pytest.fixture
async def admin(repo):
    """Another client, which stores limits."""
    other = another(repo)
    await other.set_system_defaults([OLD])
    return other


async def available(limiter):
    return await limiter.available("user-1", "gpt-4")


async def test_raising_a_capacity_adds_no_tokens(admin, limiter, repo, clock):
    """The level is kept, and refill continues up to the new capacity."""
    await take(limiter, {"rps": 7})
    await repo.set_system_defaults([Limit.per_second("rps", 10, burst=100)])
    before_the_take = await available(limiter)
    await take(limiter, {"rps": 1})
    after = await available(limiter)
    clock.advance(9_750)
    grown = await available(limiter)
    clock.advance(60_000)

    assert ({"rps": 3}, {"rps": 2}) == (before_the_take, after)
    assert ({"rps": 99}, {"rps": 100}) == (grown, await available(limiter))


async def test_raising_the_capacity_of_a_full_bucket_adds_no_tokens(admin, limiter, repo, clock):
    """Refill beyond the old capacity was lost and does not return."""
    await take(limiter, {"rps": 1})
    clock.advance(3_600_000)
    await repo.set_system_defaults([Limit.per_second("rps", 10, burst=100)])
    await take(limiter, {"rps": 1})

    assert {"rps": 9} == await available(limiter)


async def test_lowering_a_capacity_below_the_level_cuts_the_level(admin, limiter, repo):
    """A bucket never holds more than its capacity."""
    await take(limiter, {"rps": 1})
    await repo.set_system_defaults([Limit.per_second("rps", 4)])
    before_the_take = await available(limiter)
    await take(limiter, {"rps": 1})

    assert ({"rps": 4}, {"rps": 3}) == (before_the_take, await available(limiter))


async def test_lowering_a_capacity_to_above_the_level_keeps_the_level(admin, limiter, repo):
    """A level below the new capacity does not change."""
    await take(limiter, {"rps": 8})
    await repo.set_system_defaults([Limit.per_second("rps", 4)])
    await take(limiter, {"rps": 1})

    assert {"rps": 1} == await available(limiter)


async def test_changed_rate_applies_from_the_time_of_the_change(admin, limiter, repo, clock):
    """Tokens refilled at the old rate until then are kept."""
    await take(limiter, {"rps": 10})
    clock.advance(300)
    await repo.set_system_defaults([Limit.per_second("rps", 1, burst=10)])
    await take(limiter, {"rps": 1})
    at_once = await available(limiter)
    clock.advance(1_000)

    assert ({"rps": 2}, {"rps": 3}) == (at_once, await available(limiter))


async def test_debt_survives_a_change_of_limits(admin, limiter, repo):
    """A change of limits cancels no debt."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        await lease.adjust(rps=15)
    await repo.set_system_defaults([Limit.per_second("rps", 100)])

    with pytest.raises(RateLimitExceeded):
        await take(limiter, {"rps": 1})

    assert {"rps": -15} == await available(limiter)


async def test_added_limit_starts_full(admin, limiter, repo):
    """The other limits keep their levels."""
    await take(limiter, {"rps": 4})
    await repo.set_system_defaults([OLD, TPM])
    await take(limiter, {"rps": 1, "tpm": 100})

    assert {"rps": 5, "tpm": 5_900} == await available(limiter)


async def test_removed_limit_no_longer_applies_and_cannot_be_named(admin, limiter, repo):
    """It is not reported either."""
    await repo.set_system_defaults([OLD, TPM])
    await take(limiter, {"rps": 1, "tpm": 6_000})
    await repo.set_system_defaults([OLD])

    await take(limiter, {"rps": 1})
    with pytest.raises(ValidationError):
        await take(limiter, {"tpm": 1})

    assert {"rps": 8} == await available(limiter)


async def test_limit_that_is_removed_and_added_again_keeps_its_level(admin, limiter, repo, clock):
    """A limit that was not full stays in the item, hidden, and keeps refilling."""
    await repo.set_system_defaults([OLD, TPM])
    await take(limiter, {"rps": 1, "tpm": 6_000})
    await repo.set_system_defaults([OLD])
    await take(limiter, {"rps": 1})
    clock.advance(1_000)
    await repo.set_system_defaults([OLD, TPM])
    before_the_take = await available(limiter)
    await take(limiter, {"rps": 1, "tpm": 10})

    assert ({"rps": 10, "tpm": 100}, {"rps": 9, "tpm": 90}) == (before_the_take, await available(limiter))


async def test_full_limit_that_is_removed_is_deleted_from_the_item(admin, limiter, repo):
    """A full limit has no state worth keeping."""
    await repo.set_system_defaults([OLD, TPM])
    await take(limiter, {"rps": 1})
    await repo.set_system_defaults([OLD])
    await take(limiter, {"rps": 1})

    assert "b_tpm_tk" not in buckets_in(repo)[0]
    assert ["rps"] == list(await available(limiter))


async def test_rebase_and_take_are_one_write(repo, admin):
    """A client with newer limits updates the bucket together with its take."""
    limiter, table = counted(repo)
    await take(limiter, {"rps": 1})
    await admin.set_system_defaults([Limit.per_second("rps", 20)])
    await limiter.invalidate_config_cache()
    table.drain()

    await take(limiter, {"rps": 2})

    assert ["batch_get", "write"] == table.drain()
    assert {"rps": 7} == await available(limiter)


async def test_rejection_after_a_change_reports_the_new_limit(repo, admin):
    """The bucket is judged by the new limits even if the request is rejected."""
    limiter = RateLimiter(another(repo))
    await take(limiter, {"rps": 9})
    new = Limit.per_second("rps", 2, burst=5)
    await admin.set_system_defaults([new])
    await limiter.invalidate_config_cache()

    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, {"rps": 3})

    status = caught.value.primary_violation
    assert (new, 1, 1.0) == (status.limit, status.available, status.retry_after_seconds)


async def test_client_with_older_limits_reads_them_again_and_never_writes_them_back(repo, admin):
    """The version stamp refuses its write; it reads the limits and retries."""
    newer = RateLimiter(another(repo))
    older, table = counted(repo)
    await take(older, {"rps": 1})
    await admin.set_system_defaults([Limit.per_second("rps", 20)])
    await take(newer, {"rps": 1})
    table.drain()

    await take(older, {"rps": 1})
    first = table.drain()
    await take(older, {"rps": 1})

    assert (["write", "batch_get", "write"], ["write"]) == (first, table.drain())
    assert 20_000 == balance_of(repo, "rps", "cp")
    assert {"rps": 6} == await available(older)


async def test_clients_with_old_and_new_limits_rebase_a_bucket_only_once(repo, admin):
    """Every write after the rebase is a plain take."""
    one, first = counted(repo)
    two, second = counted(repo)
    await take(one, {"rps": 1})
    await take(two, {"rps": 1})
    await admin.set_system_defaults([Limit.per_second("rps", 20)])
    await one.invalidate_config_cache()
    await take(one, {"rps": 1})
    await take(two, {"rps": 1})
    first.drain()
    second.drain()

    for _ in range(3):
        await take(one, {"rps": 1})
        await take(two, {"rps": 1})

    assert (["write"] * 3, ["write"] * 3) == (first.drain(), second.drain())


class RacedTable(Wrapped):
    """A table where another client acts just before each of this client's next writes."""

    def __init__(self, table):
        super().__init__(table)
        self.before = []

    async def write(self, operation, until_s=None):
        if self.before:
            await self.before.pop(0)()
        return await super().write(operation, until_s)


@pytest.mark.parametrize("times", [1, 2, 3, 6])
async def test_a_bucket_that_keeps_being_rebased_loses_no_tokens(repo, clock, times):
    """A refusal for another baseline says nothing about a full bucket, so it must not discard tokens."""
    others = RateLimiter(another(repo))
    await others.set_system_defaults([Limit.custom("rpy", 1_000, 1, 365 * 86_400)])
    limiter = RateLimiter(another(repo, RacedTable))
    await take(limiter, {"rpy": 100})

    async def rebase_and_back():
        clock.advance(1)
        async with others.acquire("user-1", "gpt-4", {"mine": 1}, [MINE]):
            pass
        await take(others, {"rpy": 1})

    limiter.repository.scope.table.before = [rebase_and_back] * times
    await take(limiter, {"rpy": 1})

    assert {"rpy": 899 - times} == await available(others)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_limits_that_change_several_times_during_one_request_are_not_written_back(repo, times):
    """If the bucket is newer than the limits that a client has read, the client reads them again."""
    others = RateLimiter(another(repo))
    await others.set_system_defaults([Limit.per_second("rps", 1_000)])
    limiter = RateLimiter(another(repo, RacedTable))
    await take(limiter, {"rps": 100})
    bursts = list(range(1_001, 1_001 + times))

    async def change():
        await others.set_system_defaults([Limit.per_second("rps", 1_000, burst=bursts.pop(0))])
        await take(others, {"rps": 1})

    limiter.repository.scope.table.before = [change] * times
    await take(limiter, {"rps": 1})

    assert 1_000_000 + 1_000 * times == balance_of(repo, "rps", "cp")
    assert {"rps": 899 - times} == await available(others)


async def test_passed_limits_replace_the_stored_ones_for_one_call(admin, limiter):
    """They rebase the bucket, and the next call without them rebases it back."""
    await take(limiter, {"rps": 2})
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1, "mine": 2}, [Limit.per_second("rps", 5), MINE]):
        own = await limiter.available("user-1", "gpt-4", [Limit.per_second("rps", 5), MINE])
    await take(limiter, {"rps": 1})

    assert ({"mine": 28, "rps": 4}, {"rps": 3}) == (own, await available(limiter))


async def test_passed_limits_need_no_stored_limits(limiter):
    """Nothing has to be configured."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD]):
        pass

    assert {"rps": 9} == await limiter.available("user-1", "gpt-4", [OLD])


async def test_passed_limits_in_another_order_do_not_rebase_the_bucket(repo):
    """The order of limits has no meaning."""
    limiter = RateLimiter(another(repo))
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD, TPM]):
        pass
    before = buckets_in(repo)[0]
    async with limiter.acquire("user-1", "gpt-4", {"rps": 1}, (TPM, OLD)):
        pass
    after = buckets_in(repo)[0]

    assert (before["ld"], before["rf"]) == (after["ld"], after["rf"])


async def test_alternating_passed_and_stored_limits_refills_nothing(admin, limiter):
    """Limits that are removed and added again keep their levels."""
    await take(limiter, {"rps": 10})
    for _ in range(5):
        async with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [MINE]):
            pass
        await take(limiter, {"rps": 0})

    assert {"rps": 0} == await available(limiter)
    assert {"mine": 25} == await limiter.available("user-1", "gpt-4", [MINE])


async def test_lease_adjust_after_a_change_of_limits_debits_the_current_bucket(admin, limiter, repo):
    """The bucket may have been rebased during the lease."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 3}) as lease:
        await repo.set_system_defaults([Limit.per_second("rps", 10, burst=50)])
        await take(limiter, {"rps": 1})
        await lease.adjust(rps=4)

    assert {"rps": 2} == await available(limiter)


async def test_lease_adjust_of_a_removed_limit_settles_the_other_limits(admin, limiter, repo):
    """Limits that the bucket no longer has are skipped."""
    await repo.set_system_defaults([OLD, TPM])
    async with limiter.acquire("user-1", "gpt-4", {"rps": 3, "tpm": 0}) as lease:
        await repo.set_system_defaults([OLD])
        await take(limiter, {"rps": 1})
        await lease.adjust(rps=-2, tpm=5)

    assert {"rps": 8} == await available(limiter)


@pytest.mark.parametrize(("level", "expires"), [("system", True), ("resource", True), ("entity", False)])
async def test_only_buckets_with_default_limits_expire(limiter, repo, level, expires):
    """A bucket with the entity's own limits has no ttl."""
    if level == "system":
        await repo.set_system_defaults([OLD])
    elif level == "resource":
        await repo.set_resource_defaults("gpt-4", [OLD])
    else:
        await repo.set_limits("user-1", [OLD])
    await take(limiter, {"rps": 1})

    assert expires == ("ttl" in buckets_in(repo)[0])


async def test_bucket_expires_seven_fill_times_after_its_last_use(limiter, repo, clock):
    """The ttl is in seconds, rounded up."""
    await repo.set_system_defaults([Limit.per_second("rps", 1, burst=60)])
    await take(limiter, {"rps": 1})
    clock.advance(5_000)
    await take(limiter, {"rps": 1})

    assert (clock.now_ms() + 7 * 60_000) // 1000 + 1 == buckets_in(repo)[0]["ttl"]


async def test_a_bucket_in_debt_does_not_expire(admin, limiter, repo):
    """Expiry would cancel the debt."""
    async with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        await lease.adjust(rps=1)

    assert "ttl" not in buckets_in(repo)[0]
