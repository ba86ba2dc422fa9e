"""A live bucket whose limits change: levels stay exact, and clients with old limits do not write them back."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded, ValidationError

from .clients import Wrapped, another, balance_of, buckets_in, counted, take

OLD = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
MINE = Limit.per_minute("mine", 30)


@pytest.fixture
def admin(repo):
    """Another client, which stores limits."""
    other = another(repo)
    other.set_system_defaults([OLD])
    return other


def available(limiter):
    return limiter.available("user-1", "gpt-4")


def test_raising_a_capacity_adds_no_tokens(admin, limiter, repo, clock):
    """The level is kept, and refill continues up to the new capacity."""
    take(limiter, {"rps": 7})
    repo.set_system_defaults([Limit.per_second("rps", 10, burst=100)])
    before_the_take = available(limiter)
    take(limiter, {"rps": 1})
    after = available(limiter)
    clock.advance(9_750)
    grown = available(limiter)
    clock.advance(60_000)

    assert ({"rps": 3}, {"rps": 2}) == (before_the_take, after)
    assert ({"rps": 99}, {"rps": 100}) == (grown, available(limiter))


def test_raising_the_capacity_of_a_full_bucket_adds_no_tokens(admin, limiter, repo, clock):
    """Refill beyond the old capacity was lost and does not return."""
    take(limiter, {"rps": 1})
    clock.advance(3_600_000)
    repo.set_system_defaults([Limit.per_second("rps", 10, burst=100)])
    take(limiter, {"rps": 1})

    assert {"rps": 9} == available(limiter)


def test_lowering_a_capacity_below_the_level_cuts_the_level(admin, limiter, repo):
    """A bucket never holds more than its capacity."""
    take(limiter, {"rps": 1})
    repo.set_system_defaults([Limit.per_second("rps", 4)])
    before_the_take = available(limiter)
    take(limiter, {"rps": 1})

    assert ({"rps": 4}, {"rps": 3}) == (before_the_take, available(limiter))


def test_lowering_a_capacity_to_above_the_level_keeps_the_level(admin, limiter, repo):
    """A level below the new capacity does not change."""
    take(limiter, {"rps": 8})
    repo.set_system_defaults([Limit.per_second("rps", 4)])
    take(limiter, {"rps": 1})

    assert {"rps": 1} == available(limiter)


def test_changed_rate_applies_from_the_time_of_the_change(admin, limiter, repo, clock):
    """Tokens refilled at the old rate until then are kept."""
    take(limiter, {"rps": 10})
    clock.advance(300)
    repo.set_system_defaults([Limit.per_second("rps", 1, burst=10)])
    take(limiter, {"rps": 1})
    at_once = available(limiter)
    clock.advance(1_000)

    assert ({"rps": 2}, {"rps": 3}) == (at_once, available(limiter))


def test_debt_survives_a_change_of_limits(admin, limiter, repo):
    """A change of limits cancels no debt."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        lease.adjust(rps=15)
    repo.set_system_defaults([Limit.per_second("rps", 100)])

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 1})

    assert {"rps": -15} == available(limiter)


def test_added_limit_starts_full(admin, limiter, repo):
    """The other limits keep their levels."""
    take(limiter, {"rps": 4})
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 100})

    assert {"rps": 5, "tpm": 5_900} == available(limiter)


def test_removed_limit_no_longer_applies_and_cannot_be_named(admin, limiter, repo):
    """It is not reported either."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 6_000})
    repo.set_system_defaults([OLD])

    take(limiter, {"rps": 1})
    with pytest.raises(ValidationError):
        take(limiter, {"tpm": 1})

    assert {"rps": 8} == available(limiter)


def test_limit_that_is_removed_and_added_again_keeps_its_level(admin, limiter, repo, clock):
    """A limit that was not full stays in the item, hidden, and keeps refilling."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 6_000})
    repo.set_system_defaults([OLD])
    take(limiter, {"rps": 1})
    clock.advance(1_000)
    repo.set_system_defaults([OLD, TPM])
    before_the_take = available(limiter)
    take(limiter, {"rps": 1, "tpm": 10})

    assert ({"rps": 10, "tpm": 100}, {"rps": 9, "tpm": 90}) == (before_the_take, available(limiter))


def test_full_limit_that_is_removed_is_deleted_from_the_item(admin, limiter, repo):
    """A full limit has no state worth keeping."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1})
    repo.set_system_defaults([OLD])
    take(limiter, {"rps": 1})

    assert "b_tpm_tk" not in buckets_in(repo)[0]
    assert ["rps"] == list(available(limiter))


def test_rebase_and_take_are_one_write(repo, admin):
    """A client with newer limits updates the bucket together with its take."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    admin.set_system_defaults([Limit.per_second("rps", 20)])
    limiter.invalidate_config_cache()
    table.drain()

    take(limiter, {"rps": 2})

    assert ["batch_get", "write"] == table.drain()
    assert {"rps": 7} == available(limiter)


def test_rejection_after_a_change_reports_the_new_limit(repo, admin):
    """The bucket is judged by the new limits even if the request is rejected."""
    limiter = SyncRateLimiter(another(repo))
    take(limiter, {"rps": 9})
    new = Limit.per_second("rps", 2, burst=5)
    admin.set_system_defaults([new])
    limiter.invalidate_config_cache()

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"rps": 3})

    status = caught.value.primary_violation
    assert (new, 1, 1.0) == (status.limit, status.available, status.retry_after_seconds)


def test_client_with_older_limits_reads_them_again_and_never_writes_them_back(repo, admin):
    """The version stamp refuses its write; it reads the limits and retries."""
    newer = SyncRateLimiter(another(repo))
    older, table = counted(repo)
    take(older, {"rps": 1})
    admin.set_system_defaults([Limit.per_second("rps", 20)])
    take(newer, {"rps": 1})
    table.drain()

    take(older, {"rps": 1})
    first = table.drain()
    take(older, {"rps": 1})

    assert (["write", "batch_get", "write"], ["write"]) == (first, table.drain())
    assert 20_000 == balance_of(repo, "rps", "cp")
    assert {"rps": 6} == available(older)


def test_clients_with_old_and_new_limits_rebase_a_bucket_only_once(repo, admin):
    """Every write after the rebase is a plain take."""
    one, first = counted(repo)
    two, second = counted(repo)
    take(one, {"rps": 1})
    take(two, {"rps": 1})
    admin.set_system_defaults([Limit.per_second("rps", 20)])
    one.invalidate_config_cache()
    take(one, {"rps": 1})
    take(two, {"rps": 1})
    first.drain()
    second.drain()

    for _ in range(3):
        take(one, {"rps": 1})
        take(two, {"rps": 1})

    assert (["write"] * 3, ["write"] * 3) == (first.drain(), second.drain())


class RacedTable(Wrapped):
    """A table where another client acts just before each of this client's next writes."""

    def __init__(self, table):
        super().__init__(table)
        self.before = []

    def write(self, operation, until_s=None):
        if self.before:
            self.before.pop(0)()
        return super().write(operation, until_s)


@pytest.mark.parametrize("times", [1, 2, 3, 6])
def test_a_bucket_that_keeps_being_rebased_loses_no_tokens(repo, clock, times):
    """A refusal for another baseline says nothing about a full bucket, so it must not discard tokens."""
    others = SyncRateLimiter(another(repo))
    others.set_system_defaults([Limit.custom("rpy", 1_000, 1, 365 * 86_400)])
    limiter = SyncRateLimiter(another(repo, RacedTable))
    take(limiter, {"rpy": 100})

    def rebase_and_back():
        clock.advance(1)
        with others.acquire("user-1", "gpt-4", {"mine": 1}, [MINE]):
            pass
        take(others, {"rpy": 1})

    limiter.repository.scope.table.before = [rebase_and_back] * times
    take(limiter, {"rpy": 1})

    assert {"rpy": 899 - times} == available(others)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_limits_that_change_several_times_during_one_request_are_not_written_back(repo, times):
    """If the bucket is newer than the limits that a client has read, the client reads them again."""
    others = SyncRateLimiter(another(repo))
    others.set_system_defaults([Limit.per_second("rps", 1_000)])
    limiter = SyncRateLimiter(another(repo, RacedTable))
    take(limiter, {"rps": 100})
    bursts = list(range(1_001, 1_001 + times))

    def change():
        others.set_system_defaults([Limit.per_second("rps", 1_000, burst=bursts.pop(0))])
        take(others, {"rps": 1})

    limiter.repository.scope.table.before = [change] * times
    take(limiter, {"rps": 1})

    assert 1_000_000 + 1_000 * times == balance_of(repo, "rps", "cp")
    assert {"rps": 899 - times} == available(others)


def test_passed_limits_replace_the_stored_ones_for_one_call(admin, limiter):
    """They rebase the bucket, and the next call without them rebases it back."""
    take(limiter, {"rps": 2})
    with limiter.acquire("user-1", "gpt-4", {"rps": 1, "mine": 2}, [Limit.per_second("rps", 5), MINE]):
        own = limiter.available("user-1", "gpt-4", [Limit.per_second("rps", 5), MINE])
    take(limiter, {"rps": 1})

    assert ({"mine": 28, "rps": 4}, {"rps": 3}) == (own, available(limiter))


def test_passed_limits_need_no_stored_limits(limiter):
    """Nothing has to be configured."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD]):
        pass

    assert {"rps": 9} == limiter.available("user-1", "gpt-4", [OLD])


def test_passed_limits_in_another_order_do_not_rebase_the_bucket(repo):
    """The order of limits has no meaning."""
    limiter = SyncRateLimiter(another(repo))
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD, TPM]):
        pass
    before = buckets_in(repo)[0]
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, (TPM, OLD)):
        pass
    after = buckets_in(repo)[0]

    assert (before["ld"], before["rf"]) == (after["ld"], after["rf"])


def test_alternating_passed_and_stored_limits_refills_nothing(admin, limiter):
    """Limits that are removed and added again keep their levels."""
    take(limiter, {"rps": 10})
    for _ in range(5):
        with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [MINE]):
            pass
        take(limiter, {"rps": 0})

    assert {"rps": 0} == available(limiter)
    assert {"mine": 25} == limiter.available("user-1", "gpt-4", [MINE])


def test_lease_adjust_after_a_change_of_limits_debits_the_current_bucket(admin, limiter, repo):
    """The bucket may have been rebased during the lease."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 3}) as lease:
        repo.set_system_defaults([Limit.per_second("rps", 10, burst=50)])
        take(limiter, {"rps": 1})
        lease.adjust(rps=4)

    assert {"rps": 2} == available(limiter)


def test_lease_adjust_of_a_removed_limit_settles_the_other_limits(admin, limiter, repo):
    """Limits that the bucket no longer has are skipped."""
    repo.set_system_defaults([OLD, TPM])
    with limiter.acquire("user-1", "gpt-4", {"rps": 3, "tpm": 0}) as lease:
        repo.set_system_defaults([OLD])
        take(limiter, {"rps": 1})
        lease.adjust(rps=-2, tpm=5)

    assert {"rps": 8} == available(limiter)


@pytest.mark.parametrize(("level", "expires"), [("system", True), ("resource", True), ("entity", False)])
def test_only_buckets_with_default_limits_expire(limiter, repo, level, expires):
    """A bucket with the entity's own limits has no ttl."""
    if level == "system":
        repo.set_system_defaults([OLD])
    elif level == "resource":
        repo.set_resource_defaults("gpt-4", [OLD])
    else:
        repo.set_limits("user-1", [OLD])
    take(limiter, {"rps": 1})

    assert expires == ("ttl" in buckets_in(repo)[0])


def test_bucket_expires_seven_fill_times_after_its_last_use(limiter, repo, clock):
    """The ttl is in seconds, rounded up."""
    repo.set_system_defaults([Limit.per_second("rps", 1, burst=60)])
    take(limiter, {"rps": 1})
    clock.advance(5_000)
    take(limiter, {"rps": 1})

    assert (clock.now_ms() + 7 * 60_000) // 1000 + 1 == buckets_in(repo)[0]["ttl"]


def test_a_bucket_in_debt_does_not_expire(admin, limiter, repo):
    """Expiry would cancel the debt."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        lease.adjust(rps=1)

    assert "ttl" not in buckets_in(repo)[0]
