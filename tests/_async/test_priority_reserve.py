"""Requests of a low priority leave a part of each capacity to others, in every write and for every client."""

from datetime import UTC, datetime

import pytest

from zae_limiter import (
    Also,
    AmountExceedsCapacityError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    ValidationError,
)

from .clients import AsynchronousTable, another, counted, own_level
from .shards import OtherClient, total

RPM = Limit.per_minute("rpm", 10)
HALF = {-1: 0.5}


@pytest.fixture(params=["in place", "at the same time"])
async def limiter(request, repo):
    """A limiter with a reserve, which writes in place or at the same time."""
    await repo.set_system_defaults([RPM])
    chosen = repo if request.param == "in place" else another(repo, AsynchronousTable)
    return RateLimiter(chosen, priority_reserve=HALF)


async def take(limiter, amount, priority=-1, entity_id="user", name="rpm", **options):
    async with limiter.acquire(entity_id, "gpt-4", {name: amount}, priority=priority, **options) as lease:
        return lease


async def refused(limiter, amount, priority=-1, entity_id="user", name="rpm", **options):
    """Return the error of a request that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, amount, priority, entity_id, name, **options)
    return caught.value


async def test_low_priority_is_admitted_while_the_reserve_remains_after_it(limiter):
    """Five of ten tokens are reserved, for all priorities up to the one of the reserve."""
    await take(limiter, 3)
    await take(limiter, 2, priority=-7)

    rejected = await refused(limiter, 1)
    await take(limiter, 5, priority=0)

    (status,) = rejected.statuses
    assert (5, 1, 5, 1) == (status.available, status.requested, status.reserved, status.deficit)
    assert "5 available, 1 requested, 5 reserved for a higher priority" in str(rejected)


async def test_reserve_holds_for_another_client_with_an_old_view(repo, limiter):
    """The table compares its own balance, not the one that the client saw."""
    other = RateLimiter(another(repo), priority_reserve=HALF)
    await take(limiter, 1)
    await take(other, 1)
    await take(limiter, 3, priority=0)

    await refused(other, 1)

    assert {"rpm": 5} == await own_level(limiter, "user")


async def test_retry_after_is_the_time_until_request_and_reserve_fit_together(limiter, clock):
    """One millisecond earlier, the same request is rejected."""
    await take(limiter, 5)
    rejected = await refused(limiter, 2)

    clock.advance(round(rejected.retry_after_seconds * 1000) - 1)
    await refused(limiter, 2)
    clock.advance(1)
    await take(limiter, 2)


async def test_request_larger_than_the_reserve_leaves_is_never_admitted(limiter):
    """It is rejected at once, and the error names the reserve."""
    with pytest.raises(AmountExceedsCapacityError, match="must leave a reserve of 5") as caught:
        await take(limiter, 6)

    assert [5] == [status.reserved for status in caught.value.statuses]
    await take(limiter, 6, priority=0)


async def test_lease_consume_leaves_the_reserve_and_adjust_need_not(limiter):
    """What is taken during the work has the priority of the lease. A correction is never refused."""
    async with limiter.acquire("user", "gpt-4", {"rpm": 4}, priority=-1) as lease:
        with pytest.raises(RateLimitExceeded):
            await lease.consume(rpm=2)
        await lease.consume(rpm=1)
        await lease.adjust(rpm=2)

    assert {"rpm": 3} == await own_level(limiter, "user")


async def test_failed_request_of_a_low_priority_gives_everything_back(limiter):
    """What was taken is credited, and not what was reserved."""
    with pytest.raises(KeyError):
        async with limiter.acquire("user", "gpt-4", {"rpm": 4}, priority=-1):
            raise KeyError

    assert {"rpm": 10} == await own_level(limiter, "user")


async def test_reserve_applies_to_parents_and_to_also(repo, limiter):
    """Any bucket of the request may refuse it, and then none is charged."""
    await repo.create_entity("team")
    await repo.create_entity("child", parent_id="team", cascade=True)
    await take(limiter, 5, priority=0, entity_id="team")
    await take(limiter, 5, priority=0, entity_id="other")

    cascaded = await refused(limiter, 1, entity_id="child")
    also = await refused(limiter, 1, also=[Also("other", "gpt-4", {"rpm": 1})])

    assert {"team"} == {one.entity_id for one in cascaded.violations}
    assert {"other"} == {one.entity_id for one in also.violations}
    assert {"rpm": 10} == await own_level(limiter, "child")
    assert {"rpm": 10} == await own_level(limiter, "user")


async def test_entity_with_a_bypass_leaves_no_reserve(repo, limiter):
    """No bucket rejects it."""
    await repo.create_entity("monitor")
    await repo.set_bypass("monitor", True)

    await take(limiter, 8, entity_id="monitor")

    assert {"rpm": 2} == await own_level(limiter, "monitor")


async def test_reserve_of_slots_stays_free(repo, limiter):
    """Four slots, one of which is reserved: the fourth is for other requests."""
    await repo.set_system_defaults([Limit.concurrent("calls", 4, hold_seconds=60)])
    fourth = RateLimiter(limiter.repository, priority_reserve={-1: 0.1})

    async with fourth.acquire("user", "gpt-4", {"calls": 3}, priority=-1):
        rejected = await refused(fourth, 1, name="calls")
        async with fourth.acquire("user", "gpt-4", {"calls": 1}):
            pass
        assert [1] == [status.reserved for status in rejected.statuses]


async def test_reserve_of_a_quota_stays_in_every_period(repo, limiter, clock):
    """A new period has the whole amount, and the reserve of it."""
    clock.time_ms = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1000)
    await repo.set_system_defaults([Limit.quota("calls", 10, "day")])
    for _ in range(2):
        await take(limiter, 3, name="calls")
        await refused(limiter, 3, name="calls")
        await take(limiter, 2, name="calls")
        await refused(limiter, 1, name="calls")
        await take(limiter, 5, priority=0, name="calls")
        clock.advance(86_400_000)


async def test_soft_limit_has_no_reserve(repo, limiter):
    """It never rejects."""
    await repo.set_system_defaults([Limit.per_minute("rpm", 10, enforce=False)])

    await take(limiter, 9)
    await take(limiter, 9)


async def test_reserve_of_changed_limits_is_left_by_the_write_that_changes_them(repo, limiter):
    """The floor is that of the new capacity."""
    await take(limiter, 3)
    await repo.set_system_defaults([Limit.per_minute("rpm", 12)])
    changed = RateLimiter(another(repo), priority_reserve=HALF)

    await refused(changed, 2)
    await take(changed, 1)

    assert {"rpm": 6} == await own_level(changed, "user")


async def test_reserve_of_several_shards_is_kept_by_each_of_them(repo):
    """A request that no shard admits alone is taken from several. Together they leave the reserve."""
    await repo.set_system_defaults([Limit("rpm", 16, 16, 3_600)])
    bucket = RateLimiter(another(repo), priority_reserve=HALF)
    await take(bucket, 1, entity_id="user-1")
    await OtherClient(repo).grow(4)

    await take(bucket, 6, entity_id="user-1")
    rejected = await refused(bucket, 2, entity_id="user-1")
    await take(bucket, 1, entity_id="user-1")
    await refused(RateLimiter(another(repo), priority_reserve=HALF), 1, entity_id="user-1")

    assert [8] == [status.reserved for status in rejected.statuses]
    assert 8 == total(repo, "rpm", bucket._client.now()[0]) // 1000


@pytest.mark.parametrize("back", [2, -2], ids=["charged", "credited"])
async def test_settlement_that_waits_is_written_with_a_take_that_leaves_the_reserve(repo, back):
    """The floor is above what both leave together."""
    await repo.set_system_defaults([RPM])
    limiter, table = counted(repo, settle_within_s=60.0)
    limiter = RateLimiter(limiter.repository, priority_reserve=HALF)
    async with limiter.acquire("user", "gpt-4", {"rpm": 3}, priority=-1) as lease:
        await lease.adjust(rpm=back)
    table.drain()

    if back < 0:
        await take(limiter, 4)
        assert ["write"] == table.drain()
    await refused(limiter, 1)

    assert {"rpm": 5} == await own_level(RateLimiter(another(repo)), "user")


async def test_priority_without_a_reserve_changes_nothing(repo):
    """A priority alone only orders requests that wait."""
    await repo.set_system_defaults([RPM])

    await take(RateLimiter(repo), 10, priority=-5)


async def test_decorated_function_passes_its_priority(repo, limiter):
    """A priority is passed without a wait too."""
    from zae_limiter import limited

    await take(limiter, 5, priority=0)

    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user", priority=-1)
    async def call():
        return "called"

    with pytest.raises(RateLimitExceeded):
        await call()


@pytest.mark.parametrize(
    ("reserve", "message"),
    [
        ({-1: 1.0}, "must be a fraction between 0 and 1"),
        ({-1: 0}, "must be a fraction between 0 and 1"),
        ({-1: True}, "must be a fraction between 0 and 1"),
        ({"low": 0.5}, "must be an int"),
        ({-1: 0.5, -2: 0.3}, "must be a smaller part than that of priority -2"),
        ({-1: 0.5, -2: 0.5}, "must be a smaller part than that of priority -2"),
        ([0.5], "must be a dict of priorities and fractions"),
    ],
)
async def test_invalid_reserve_is_refused_when_the_limiter_is_made(repo, reserve, message):
    """A lower priority leaves more."""
    with pytest.raises(ValidationError, match=message):
        RateLimiter(repo, priority_reserve=reserve)


async def test_invalid_priority_is_refused_by_a_limiter_with_reserves(limiter):
    """It would choose no reserve."""
    with pytest.raises(ValidationError, match="priority"):
        await take(limiter, 1, priority="low")
