"""Requests of a low priority leave a part of each capacity to others, in every write and for every client."""  # generated from _async by tools/mirror.py; do not edit

from datetime import UTC, datetime

import pytest

from zae_limiter import (
    Also,
    AmountExceedsCapacityError,
    Limit,
    SyncRateLimiter,
    RateLimitExceeded,
    ValidationError,
)

from .clients import AsynchronousTable, another, counted, own_level
from .shards import OtherClient, total

RPM = Limit.per_minute("rpm", 10)
HALF = {-1: 0.5}


@pytest.fixture(params=["in place", "at the same time"])
def limiter(request, repo):
    """A limiter with a reserve, which writes in place or at the same time."""
    repo.set_system_defaults([RPM])
    chosen = repo if request.param == "in place" else another(repo, AsynchronousTable)
    return SyncRateLimiter(chosen, priority_reserve=HALF)


def take(limiter, amount, priority=-1, entity_id="user", name="rpm", **options):
    with limiter.acquire(entity_id, "gpt-4", {name: amount}, priority=priority, **options) as lease:
        return lease


def refused(limiter, amount, priority=-1, entity_id="user", name="rpm", **options):
    """Return the error of a request that must be rejected."""
    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, amount, priority, entity_id, name, **options)
    return caught.value


def test_low_priority_is_admitted_while_the_reserve_remains_after_it(limiter):
    """Five of ten tokens are reserved, for all priorities up to the one of the reserve."""
    take(limiter, 3)
    take(limiter, 2, priority=-7)

    rejected = refused(limiter, 1)
    take(limiter, 5, priority=0)

    (status,) = rejected.statuses
    assert (5, 1, 5, 1) == (status.available, status.requested, status.reserved, status.deficit)
    assert "5 available, 1 requested, 5 reserved for a higher priority" in str(rejected)


def test_reserve_holds_for_another_client_with_an_old_view(repo, limiter):
    """The table compares its own balance, not the one that the client saw."""
    other = SyncRateLimiter(another(repo), priority_reserve=HALF)
    take(limiter, 1)
    take(other, 1)
    take(limiter, 3, priority=0)

    refused(other, 1)

    assert {"rpm": 5} == own_level(limiter, "user")


def test_retry_after_is_the_time_until_request_and_reserve_fit_together(limiter, clock):
    """One millisecond earlier, the same request is rejected."""
    take(limiter, 5)
    rejected = refused(limiter, 2)

    clock.advance(round(rejected.retry_after_seconds * 1000) - 1)
    refused(limiter, 2)
    clock.advance(1)
    take(limiter, 2)


def test_request_larger_than_the_reserve_leaves_is_never_admitted(limiter):
    """It is rejected at once, and the error names the reserve."""
    with pytest.raises(AmountExceedsCapacityError, match="must leave a reserve of 5") as caught:
        take(limiter, 6)

    assert [5] == [status.reserved for status in caught.value.statuses]
    take(limiter, 6, priority=0)


def test_lease_consume_leaves_the_reserve_and_adjust_need_not(limiter):
    """What is taken during the work has the priority of the lease. A correction is never refused."""
    with limiter.acquire("user", "gpt-4", {"rpm": 4}, priority=-1) as lease:
        with pytest.raises(RateLimitExceeded):
            lease.consume(rpm=2)
        lease.consume(rpm=1)
        lease.adjust(rpm=2)

    assert {"rpm": 3} == own_level(limiter, "user")


def test_failed_request_of_a_low_priority_gives_everything_back(limiter):
    """What was taken is credited, and not what was reserved."""
    with pytest.raises(KeyError):
        with limiter.acquire("user", "gpt-4", {"rpm": 4}, priority=-1):
            raise KeyError

    assert {"rpm": 10} == own_level(limiter, "user")


def test_reserve_applies_to_parents_and_to_also(repo, limiter):
    """Any bucket of the request may refuse it, and then none is charged."""
    repo.create_entity("team")
    repo.create_entity("child", parent_id="team", cascade=True)
    take(limiter, 5, priority=0, entity_id="team")
    take(limiter, 5, priority=0, entity_id="other")

    cascaded = refused(limiter, 1, entity_id="child")
    also = refused(limiter, 1, also=[Also("other", "gpt-4", {"rpm": 1})])

    assert {"team"} == {one.entity_id for one in cascaded.violations}
    assert {"other"} == {one.entity_id for one in also.violations}
    assert {"rpm": 10} == own_level(limiter, "child")
    assert {"rpm": 10} == own_level(limiter, "user")


def test_entity_with_a_bypass_leaves_no_reserve(repo, limiter):
    """No bucket rejects it."""
    repo.create_entity("monitor")
    repo.set_bypass("monitor", True)

    take(limiter, 8, entity_id="monitor")

    assert {"rpm": 2} == own_level(limiter, "monitor")


def test_reserve_of_slots_stays_free(repo, limiter):
    """Four slots, one of which is reserved: the fourth is for other requests."""
    repo.set_system_defaults([Limit.concurrent("calls", 4, hold_seconds=60)])
    fourth = SyncRateLimiter(limiter.repository, priority_reserve={-1: 0.1})

    with fourth.acquire("user", "gpt-4", {"calls": 3}, priority=-1):
        rejected = refused(fourth, 1, name="calls")
        with fourth.acquire("user", "gpt-4", {"calls": 1}):
            pass
        assert [1] == [status.reserved for status in rejected.statuses]


def test_reserve_of_a_quota_stays_in_every_period(repo, limiter, clock):
    """A new period has the whole amount, and the reserve of it."""
    clock.time_ms = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1000)
    repo.set_system_defaults([Limit.quota("calls", 10, "day")])
    for _ in range(2):
        take(limiter, 3, name="calls")
        refused(limiter, 3, name="calls")
        take(limiter, 2, name="calls")
        refused(limiter, 1, name="calls")
        take(limiter, 5, priority=0, name="calls")
        clock.advance(86_400_000)


def test_soft_limit_has_no_reserve(repo, limiter):
    """It never rejects."""
    repo.set_system_defaults([Limit.per_minute("rpm", 10, enforce=False)])

    take(limiter, 9)
    take(limiter, 9)


def test_reserve_of_changed_limits_is_left_by_the_write_that_changes_them(repo, limiter):
    """The floor is that of the new capacity."""
    take(limiter, 3)
    repo.set_system_defaults([Limit.per_minute("rpm", 12)])
    changed = SyncRateLimiter(another(repo), priority_reserve=HALF)

    refused(changed, 2)
    take(changed, 1)

    assert {"rpm": 6} == own_level(changed, "user")


def test_reserve_of_several_shards_is_kept_by_each_of_them(repo):
    """A request that no shard admits alone is taken from several. Together they leave the reserve."""
    repo.set_system_defaults([Limit("rpm", 16, 16, 3_600)])
    bucket = SyncRateLimiter(another(repo), priority_reserve=HALF)
    take(bucket, 1, entity_id="user-1")
    OtherClient(repo).grow(4)

    take(bucket, 6, entity_id="user-1")
    rejected = refused(bucket, 2, entity_id="user-1")
    take(bucket, 1, entity_id="user-1")
    refused(SyncRateLimiter(another(repo), priority_reserve=HALF), 1, entity_id="user-1")

    assert [8] == [status.reserved for status in rejected.statuses]
    assert 8 == total(repo, "rpm", bucket._client.now()[0]) // 1000


@pytest.mark.parametrize("back", [2, -2], ids=["charged", "credited"])
def test_settlement_that_waits_is_written_with_a_take_that_leaves_the_reserve(repo, back):
    """The floor is above what both leave together."""
    repo.set_system_defaults([RPM])
    limiter, table = counted(repo, settle_within_s=60.0)
    limiter = SyncRateLimiter(limiter.repository, priority_reserve=HALF)
    with limiter.acquire("user", "gpt-4", {"rpm": 3}, priority=-1) as lease:
        lease.adjust(rpm=back)
    table.drain()

    if back < 0:
        take(limiter, 4)
        assert ["write"] == table.drain()
    refused(limiter, 1)

    assert {"rpm": 5} == own_level(SyncRateLimiter(another(repo)), "user")


def test_priority_without_a_reserve_changes_nothing(repo):
    """A priority alone only orders requests that wait."""
    repo.set_system_defaults([RPM])

    take(SyncRateLimiter(repo), 10, priority=-5)


def test_decorated_function_passes_its_priority(repo, limiter):
    """A priority is passed without a wait too."""
    from zae_limiter import limited

    take(limiter, 5, priority=0)

    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user", priority=-1)
    def call():
        return "called"

    with pytest.raises(RateLimitExceeded):
        call()


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
def test_invalid_reserve_is_refused_when_the_limiter_is_made(repo, reserve, message):
    """A lower priority leaves more."""
    with pytest.raises(ValidationError, match=message):
        SyncRateLimiter(repo, priority_reserve=reserve)


def test_invalid_priority_is_refused_by_a_limiter_with_reserves(limiter):
    """It would choose no reserve."""
    with pytest.raises(ValidationError, match="priority"):
        take(limiter, 1, priority="low")
