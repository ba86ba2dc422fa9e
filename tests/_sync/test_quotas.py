"""Quotas: an amount for each calendar period, taken in the same write as requests and slots."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import AmountExceedsCapacityError, Limit, RateLimitExceeded, ValidationError

from .clients import AsynchronousTable, another, buckets_in, counted
from .shards import OtherClient, counts

MIDNIGHT_S = 1_700_006_400
"""The first midnight of UTC after the start of the clock, which is at 22:13:20."""

DAY_S = 86_400
RPM = Limit.per_minute("rpm", 600)
SPEND = Limit.quota("spend", 100, every="day")
SOFT = Limit.quota("trial", 10, every="day", enforce=False)
BAND = 10**18


class ModelError(Exception):
    """The failure of the caller's own work."""


@pytest.fixture(autouse=True)
def _limits(repo):
    repo.set_system_defaults([RPM, SPEND])


def acquire(limiter, consume=None, **options):
    return limiter.acquire("user-1", "gpt-4", consume or {"rpm": 1, "spend": 10}, **options)


def take(limiter, **consume):
    with acquire(limiter, consume):
        pass


def rejected(lease):
    with pytest.raises(RateLimitExceeded) as caught:
        lease.__enter__()
    return caught.value


def left(limiter, name="spend"):
    return (limiter.available("user-1", "gpt-4"))[name]


def at(clock, time_s):
    clock.time_ms = time_s * 1000


def spent(repo, name="spend"):
    """Return what the shards have recorded as spent in their newest epoch, and that epoch."""
    numbers = [item[f"b_{name}_qk"] for item in buckets_in(repo)]
    newest = max((BAND // 2 - number) // BAND for number in numbers)
    return sum(-BAND * newest - number for number in numbers if (BAND // 2 - number) // BAND == newest), newest


def fail(lease):
    with lease:
        raise ModelError


def test_quota_admits_its_amount_and_no_more(either_limiter):
    """The amount of a period is a hard bound."""
    for _ in range(10):
        take(either_limiter, rpm=1, spend=10)
    refused = rejected(acquire(either_limiter, {"rpm": 1, "spend": 1}))

    assert ["spend"] == [one.limit_name for one in refused.violations]
    assert {"rpm": 590, "spend": 0} == either_limiter.available("user-1", "gpt-4")


def test_wait_for_a_quota_is_exactly_the_time_until_its_next_edge(either_limiter, clock):
    """Nothing is refilled before."""
    take(either_limiter, spend=95)
    refused = rejected(acquire(either_limiter))
    status = refused.primary_violation

    assert MIDNIGHT_S - clock.time_ms / 1000 == pytest.approx(refused.retry_after_seconds, abs=0.001)
    assert (MIDNIGHT_S, True) == (status.resets_at, status.exact)
    assert refused.retry_after_seconds == either_limiter.time_until_available("user-1", "gpt-4", {"spend": 6})


def test_full_amount_is_available_at_an_edge_and_not_a_millisecond_before(either_limiter, clock):
    """The start of a period needs no write."""
    take(either_limiter, spend=100)
    clock.time_ms = MIDNIGHT_S * 1000 - 1
    early = left(either_limiter)
    rejected(acquire(either_limiter))
    clock.advance(1)
    late = left(either_limiter)
    take(either_limiter, spend=100)

    assert (0, 100, 0) == (early, late, left(either_limiter))


def test_unused_amounts_and_overdrafts_end_with_the_period(either_limiter, clock):
    """Neither is carried over."""
    with acquire(either_limiter) as lease:
        lease.adjust(spend=500)
    overdrawn = left(either_limiter)
    at(clock, MIDNIGHT_S)
    after = left(either_limiter)
    at(clock, MIDNIGHT_S + DAY_S)

    assert (-410, 100, 100) == (overdrawn, after, left(either_limiter))


def test_failed_lease_gives_back_what_it_took_from_a_quota(either_limiter, repo):
    """The block was not executed, or its result is not used."""
    with pytest.raises(ModelError):
        fail(acquire(either_limiter))

    assert (100, 0) == (left(either_limiter), spent(repo)[0])


def test_adjustments_consume_and_release_change_what_is_spent(either_limiter, repo):
    """All verbs of a lease work for quotas."""
    with acquire(either_limiter) as lease:
        lease.consume(spend=20)
        seen = [left(either_limiter)]
        lease.release(spend=5)
        seen.append(left(either_limiter))
        lease.adjust(spend=-15)

    assert ([70, 75], 90, 10) == (seen, left(either_limiter), spent(repo)[0])


def fail_after(lease, work):
    with lease:
        work()
        raise ModelError


def test_lease_that_was_released_in_part_gives_back_only_the_rest(either_limiter, repo):
    """What was given back once is not given back again."""
    lease = acquire(either_limiter, {"rpm": 1, "spend": 30})

    def work():
        lease.consume(spend=10)
        lease.release(spend=25)

    with pytest.raises(ModelError):
        fail_after(lease, work)

    assert (100, 0) == (left(either_limiter), spent(repo)[0])


def test_credit_of_an_ended_period_does_not_fill_the_next_one(either_limiter, repo, clock):
    """What was taken yesterday is not available today as well."""
    old = acquire(either_limiter, {"spend": 60})
    old.__enter__()
    at(clock, MIDNIGHT_S)
    take(either_limiter, spend=50)
    old.__exit__(ModelError, ModelError(), None)

    assert (50, 50) == (left(either_limiter), spent(repo)[0])


def test_debit_of_a_lease_that_spans_an_edge_is_charged_to_the_new_period(either_limiter, clock):
    """Otherwise a long lease would be free."""
    with acquire(either_limiter) as lease:
        at(clock, MIDNIGHT_S)
        lease.adjust(spend=25)

    assert 75 == left(either_limiter)


def test_lease_that_took_in_two_periods_gives_back_to_the_newest_first(either_limiter, repo, clock):
    """A credit reaches the period that is still open."""
    lease = acquire(either_limiter, {"spend": 40})

    def work():
        at(clock, MIDNIGHT_S)
        lease.consume(spend=30)
        take(either_limiter, spend=5)

    with pytest.raises(ModelError):
        fail_after(lease, work)

    assert (95, 5) == (left(either_limiter), spent(repo)[0])


def test_raised_amount_applies_to_the_current_period_and_keeps_what_was_spent(either_limiter, repo):
    """Only the amount changes."""
    take(either_limiter, spend=90)
    either_limiter.set_system_defaults([RPM, Limit.quota("spend", 120, every="day")])
    take(either_limiter, spend=20)

    assert (10, 110) == (left(either_limiter), spent(repo)[0])


def test_lowered_amount_rejects_until_the_next_edge(either_limiter, repo, clock):
    """What was spent stays spent."""
    take(either_limiter, spend=90)
    either_limiter.set_system_defaults([RPM, Limit.quota("spend", 50, every="day")])
    refused = rejected(acquire(either_limiter, {"spend": 1}))
    at(clock, MIDNIGHT_S)

    assert (-40, 50) == (refused.primary_violation.available, left(either_limiter))


def test_changed_schedule_keeps_what_was_spent_until_its_own_edge(either_limiter, repo, clock):
    """A change is no refill."""
    take(either_limiter, spend=90)
    either_limiter.set_system_defaults([RPM, Limit.quota("spend", 100, every="hour", starts=30)])
    rejected(acquire(either_limiter, {"spend": 11}))
    take(either_limiter, spend=10)
    at(clock, 1_700_001_000)
    seen = [left(either_limiter)]
    take(either_limiter, spend=100)
    at(clock, 1_700_001_000 + 3_600)

    assert [100, 100] == [*seen, left(either_limiter)]
    assert 2 * 1_700_001_000 == spent(repo)[1]


def test_removed_quota_that_is_added_again_is_not_full(either_limiter, repo, clock):
    """It is dormant until its period ends."""
    take(either_limiter, rpm=1, spend=90)
    either_limiter.set_system_defaults([RPM])
    take(either_limiter, rpm=1)
    (dormant,) = buckets_in(repo)
    either_limiter.set_system_defaults([RPM, SPEND])
    again = left(either_limiter)
    either_limiter.set_system_defaults([RPM])
    at(clock, MIDNIGHT_S)
    take(either_limiter, rpm=1)
    (dropped,) = buckets_in(repo)

    assert (True, 10) == (dormant["b_spend_dm"], again)
    assert not [name for name in dropped if name.startswith("b_spend")]


def test_limit_that_becomes_a_quota_under_the_same_name_is_a_named_error(either_limiter, repo):
    """The two balances mean different things."""
    take(either_limiter, rpm=600)
    either_limiter.set_system_defaults([Limit.quota("rpm", 100), SPEND])
    with pytest.raises(ValidationError, match="is a rate limit in this bucket and would become a quota"):
        take(either_limiter, rpm=1)


def test_request_above_the_amount_is_never_admitted(either_limiter):
    """No period has that much."""
    with pytest.raises(AmountExceedsCapacityError):
        take(either_limiter, spend=101)


def test_take_with_a_quota_is_one_write_and_the_settlement_is_another(repo):
    """A quota costs nothing of its own."""
    limiter, table = counted(repo)
    take(limiter, rpm=1, spend=1)
    table.drain()
    take(limiter, rpm=1, spend=1)
    taken = table.drain()
    with acquire(limiter) as lease:
        lease.adjust(spend=-3, rpm=1)

    assert (["write"], ["write", "write"]) == (taken, table.drain())


def test_exhausted_quota_rejects_again_without_a_call(repo):
    """A fresh view is enough."""
    limiter, table = counted(repo)
    take(limiter, spend=100)
    rejected(acquire(limiter))
    table.drain()
    rejected(acquire(limiter))

    assert [] == table.drain()


def test_bucket_that_another_client_knows_to_be_in_a_later_period_is_used_in_that_period(
    either_limiter, repo, clock
):
    """The bucket proves the time to a client whose clock is behind."""
    take(either_limiter, spend=100)
    at(clock, MIDNIGHT_S)
    take(either_limiter, spend=30)
    clock.advance(-5_000)
    take(either_limiter, spend=30)
    rejected(acquire(either_limiter, {"spend": 41}))

    assert (60, 2 * MIDNIGHT_S) == spent(repo)


def test_soft_quota_counts_beyond_its_amount_and_rejects_nothing(either_limiter, repo):
    """It shows what would be rejected if it were enforced."""
    either_limiter.set_system_defaults([RPM, SOFT])
    with acquire(either_limiter, {"rpm": 1, "trial": 25}) as lease:
        (status,) = [one for one in lease.statuses if one.limit_name == "trial"]
    take(either_limiter, trial=15)
    (state,) = [one for one in repo.get_buckets("user-1") if one.limit_name == "trial"]

    assert (True, -15, 25) == (status.exceeded, status.available, status.requested)
    assert (-30, 40_000, False) == (state.tokens, state.total_consumed_milli, state.enforce)


def test_soft_rate_limit_is_charged_while_it_has_tokens_and_counts_everything(either_limiter, repo):
    """So enforcing it later blocks for one fill time at most."""
    either_limiter.set_system_defaults([Limit.per_minute("rpm", 10, enforce=False)])
    for amount in (6, 6, 4, 900):
        take(either_limiter, rpm=amount)
    (state,) = repo.get_buckets("user-1")

    assert (0, 916_000) == (state.tokens, state.total_consumed_milli)


def test_credit_of_a_soft_rate_limit_returns_only_what_was_charged(either_limiter, repo):
    """A use that was only counted gives no tokens back."""
    either_limiter.set_system_defaults([Limit.per_minute("rpm", 10, enforce=False)])
    take(either_limiter, rpm=6)
    with pytest.raises(ModelError):
        fail(acquire(either_limiter, {"rpm": 6}))
    (counted_only,) = repo.get_buckets("user-1")
    with pytest.raises(ModelError):
        fail(acquire(either_limiter, {"rpm": 4}))
    (charged,) = repo.get_buckets("user-1")

    assert (4, 6_000) == (counted_only.tokens, counted_only.total_consumed_milli)
    assert (4, 6_000) == (charged.tokens, charged.total_consumed_milli)


def test_debit_of_a_soft_rate_limit_leaves_a_debt_of_one_capacity_at_most(either_limiter, repo):
    """A limit on trial must not block for days once it is enforced."""
    either_limiter.set_system_defaults([Limit.per_minute("rpm", 10, enforce=False)])
    with acquire(either_limiter, {"rpm": 5}) as lease:
        lease.adjust(rpm=1_000)
    (state,) = repo.get_buckets("user-1")

    assert (-10, 1_005_000) == (state.tokens, state.total_consumed_milli)


def test_enforcing_a_soft_limit_does_not_touch_its_balance(either_limiter, repo):
    """Switching is a flag."""
    either_limiter.set_system_defaults([RPM, SOFT])
    take(either_limiter, trial=7)
    either_limiter.set_system_defaults([RPM, Limit.quota("trial", 10, every="day")])
    refused = rejected(acquire(either_limiter, {"trial": 4}))
    take(either_limiter, trial=3)
    either_limiter.set_system_defaults([RPM, SOFT])
    take(either_limiter, trial=3)

    assert (3, 13) == (refused.primary_violation.available, spent(repo, "trial")[0])


def test_soft_slots_are_counted_beyond_their_capacity(either_limiter, repo):
    """The number in use may exceed the capacity."""
    either_limiter.set_system_defaults([Limit.concurrent("slots", 1, enforce=False)])
    with acquire(either_limiter, {"slots": 2}), acquire(either_limiter, {"slots": 1}):
        inside = left(either_limiter, "slots")

    assert (-2, 1) == (inside, left(either_limiter, "slots"))


def test_quota_on_shards_is_used_up_to_the_last_unit_and_no_further(either_limiter, repo):
    """A request takes from as many shards as it needs."""
    take(either_limiter, spend=1)
    OtherClient(repo).split()
    for amount in (40, 30, 28, 1):
        take(either_limiter, spend=amount)
    rejected(acquire(either_limiter, {"spend": 1}))

    assert ({0: 2, 1: 2}, 0, 100) == (counts(repo), left(either_limiter), spent(repo)[0])


def test_credit_after_a_split_is_given_to_shards_that_have_room(either_limiter, repo):
    """A split moves a part of what was spent."""
    lease = acquire(either_limiter, {"rpm": 1, "spend": 90})
    lease.__enter__()
    OtherClient(repo).split()
    lease.__exit__(ModelError, ModelError(), None)

    assert (100, 0) == (left(either_limiter), spent(repo)[0])


def test_shards_in_different_periods_are_one_quota(either_limiter, repo, clock):
    """A shard that nothing was taken from since the edge is full."""
    take(either_limiter, spend=100)
    OtherClient(repo).split()
    at(clock, MIDNIGHT_S)
    take(either_limiter, spend=30)
    seen = left(either_limiter)
    take(either_limiter, spend=70)
    rejected(acquire(either_limiter, {"spend": 1}))

    assert (70, 100) == (seen, spent(repo)[0])


def test_quota_of_a_parent_is_charged_by_all_children(either_limiter, repo):
    """Budgets are shared by cascade."""
    repo.create_entity("team")
    for child in ("a", "b"):
        repo.create_entity(child, parent_id="team", cascade=True)
        repo.set_limits(child, [RPM, Limit.quota("spend", 1_000, every="day")])
    for child in ("a", "b", "a"):
        with either_limiter.acquire(child, "gpt-4", {"rpm": 1, "spend": 30}):
            pass
    with pytest.raises(RateLimitExceeded) as caught:
        either_limiter.acquire("b", "gpt-4", {"rpm": 1, "spend": 30}).__enter__()

    assert ("team", "spend") == (caught.value.primary_violation.entity_id, caught.value.primary_violation.limit_name)
    assert 597 == (either_limiter.available("team", "gpt-4"))["rpm"]


def test_batch_of_requests_fits_into_a_quota_exactly(repo):
    """Requests that wait together are one write, and none is admitted beyond the amount."""
    from zae_limiter import SyncRateLimiter
    from zae_limiter.runtime.threads import Parallel

    limiter = SyncRateLimiter(another(repo, AsynchronousTable))
    take(limiter, spend=1)
    admitted = []

    def one():
        try:
            take(limiter, rpm=1, spend=10)
        except RateLimitExceeded:
            return
        admitted.append(1)

    Parallel().run([one for _ in range(20)])

    assert (9, 91) == (len(admitted), spent(repo)[0])


def test_item_with_a_spent_quota_lives_longer_than_its_period(either_limiter, repo):
    """An item that expired would forget what was spent."""
    either_limiter.set_system_defaults([Limit.quota("spend", 100, every="month")])
    take(either_limiter, spend=60)
    (item,) = buckets_in(repo)

    assert item["ttl"] - 1_700_000_000 >= 2 * 32 * DAY_S


def test_largest_amounts_are_exact(either_limiter, repo):
    """Numbers of 28 digits are stored and added exactly."""
    most = 10**15
    either_limiter.set_system_defaults([Limit.quota("spend", most, every="month")])
    take(either_limiter, spend=most - 1)
    rejected(acquire(either_limiter, {"spend": 2}))
    with acquire(either_limiter, {"spend": 1}) as lease:
        lease.adjust(spend=most)

    assert (-most, 2 * most) == (left(either_limiter), spent(repo)[0])


def test_buckets_and_capacity_report_a_quota_with_its_period(either_limiter, repo):
    """Reports know when it is full again."""
    take(either_limiter, spend=40)
    (state,) = [one for one in repo.get_buckets("user-1") if one.limit_name == "spend"]
    capacity = repo.get_resource_capacity("gpt-4", "spend")

    assert (60, 100, MIDNIGHT_S) == (state.tokens, state.capacity, state.resets_at)
    assert (100, 60) == (capacity.total_capacity, capacity.total_available)
    assert state.limit == SPEND
