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
    """What was there stays, and refill goes on to the new capacity."""
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
    """Overflow of the old capacity was never there."""
    take(limiter, {"rps": 1})
    clock.advance(3_600_000)
    repo.set_system_defaults([Limit.per_second("rps", 10, burst=100)])
    take(limiter, {"rps": 1})

    assert {"rps": 9} == available(limiter)


def test_lowering_a_capacity_cuts_the_level(admin, limiter, repo):
    """A bucket never holds more than its capacity."""
    take(limiter, {"rps": 1})
    repo.set_system_defaults([Limit.per_second("rps", 4)])
    before_the_take = available(limiter)
    take(limiter, {"rps": 1})

    assert ({"rps": 4}, {"rps": 3}) == (before_the_take, available(limiter))


def test_lowering_a_capacity_below_the_level_keeps_what_is_less(admin, limiter, repo):
    """A level under the new capacity is not touched."""
    take(limiter, {"rps": 8})
    repo.set_system_defaults([Limit.per_second("rps", 4)])
    take(limiter, {"rps": 1})

    assert {"rps": 1} == available(limiter)


def test_another_rate_counts_from_the_change_on(admin, limiter, repo, clock):
    """What the old rate had offered until then is kept."""
    take(limiter, {"rps": 10})
    clock.advance(300)
    repo.set_system_defaults([Limit.per_second("rps", 1, burst=10)])
    take(limiter, {"rps": 1})
    at_once = available(limiter)
    clock.advance(1_000)

    assert ({"rps": 2}, {"rps": 3}) == (at_once, available(limiter))


def test_debt_survives_a_change_of_limits(admin, limiter, repo):
    """Changing limits forgives nothing."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        lease.adjust(rps=15)
    repo.set_system_defaults([Limit.per_second("rps", 100)])

    with pytest.raises(RateLimitExceeded):
        take(limiter, {"rps": 1})

    assert {"rps": -15} == available(limiter)


def test_a_limit_that_is_added_starts_full(admin, limiter, repo):
    """And the others stay as they were."""
    take(limiter, {"rps": 4})
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 100})

    assert {"rps": 5, "tpm": 5_900} == available(limiter)


def test_a_limit_that_is_removed_limits_no_more(admin, limiter, repo):
    """It is not told, and cannot be named."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 6_000})
    repo.set_system_defaults([OLD])

    take(limiter, {"rps": 1})
    with pytest.raises(ValidationError):
        take(limiter, {"tpm": 1})

    assert {"rps": 8} == available(limiter)


def test_removing_a_limit_and_adding_it_again_refills_nothing(admin, limiter, repo, clock):
    """A limit that was not full waits, hidden, and goes on earning."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1, "tpm": 6_000})
    repo.set_system_defaults([OLD])
    take(limiter, {"rps": 1})
    clock.advance(1_000)
    repo.set_system_defaults([OLD, TPM])
    before_the_take = available(limiter)
    take(limiter, {"rps": 1, "tpm": 10})

    assert ({"rps": 10, "tpm": 100}, {"rps": 9, "tpm": 90}) == (before_the_take, available(limiter))


def test_a_full_limit_that_is_removed_is_gone(admin, limiter, repo):
    """There is nothing to remember of it."""
    repo.set_system_defaults([OLD, TPM])
    take(limiter, {"rps": 1})
    repo.set_system_defaults([OLD])
    take(limiter, {"rps": 1})

    assert "b_tpm_tk" not in buckets_in(repo)[0]
    assert ["rps"] == list(available(limiter))


def test_a_rebase_is_one_write_and_takes_in_it(repo, admin):
    """A client with newer limits brings the bucket up to date on its way."""
    limiter, table = counted(repo)
    take(limiter, {"rps": 1})
    admin.set_system_defaults([Limit.per_second("rps", 20)])
    limiter.invalidate_config_cache()
    table.drain()

    take(limiter, {"rps": 2})

    assert ["batch_get", "write"] == table.drain()
    assert {"rps": 7} == available(limiter)


def test_a_rejection_after_a_change_tells_the_new_limit(repo, admin):
    """The bucket is put on the new limits though the request is rejected."""
    limiter = SyncRateLimiter(another(repo))
    take(limiter, {"rps": 9})
    new = Limit.per_second("rps", 2, burst=5)
    admin.set_system_defaults([new])
    limiter.invalidate_config_cache()

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"rps": 3})

    status = caught.value.primary_violation
    assert (new, 1, 1.0) == (status.limit, status.available, status.retry_after_seconds)


def test_a_client_with_older_limits_reads_again_and_does_not_write_them_back(repo, admin):
    """Refused by the stamp it asks for the limits, and from then on agrees."""
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


def test_clients_with_old_and_new_limits_do_not_flip_flop(repo, admin):
    """One rebase, whoever comes when: every write after it is a plain one."""
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


class Interfered(Wrapped):
    """A table where somebody else gets in just before this client's writes, as often as there are calls to make."""

    def __init__(self, table):
        super().__init__(table)
        self.before = []

    def write(self, operation, until_s=None):
        if self.before:
            self.before.pop(0)()
        return super().write(operation, until_s)


@pytest.mark.parametrize("times", [1, 2, 3, 6])
def test_a_bucket_that_keeps_being_rebased_loses_no_tokens(repo, clock, times):
    """A refusal for another baseline says nothing of full or not full, so it is no reason to give tokens away."""
    others = SyncRateLimiter(another(repo))
    others.set_system_defaults([Limit.custom("rpy", 1_000, 1, 365 * 86_400)])
    limiter = SyncRateLimiter(another(repo, Interfered))
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
    """Whenever the bucket is ahead of what a client has read, the client reads again."""
    others = SyncRateLimiter(another(repo))
    others.set_system_defaults([Limit.per_second("rps", 1_000)])
    limiter = SyncRateLimiter(another(repo, Interfered))
    take(limiter, {"rps": 100})
    bursts = list(range(1_001, 1_001 + times))

    def change():
        others.set_system_defaults([Limit.per_second("rps", 1_000, burst=bursts.pop(0))])
        take(others, {"rps": 1})

    limiter.repository.scope.table.before = [change] * times
    take(limiter, {"rps": 1})

    assert 1_000_000 + 1_000 * times == balance_of(repo, "rps", "cp")
    assert {"rps": 899 - times} == available(others)


def test_own_limits_stand_in_for_the_stored_ones(admin, limiter):
    """A caller's limits rebase the bucket, and the next call without them goes back."""
    take(limiter, {"rps": 2})
    with limiter.acquire("user-1", "gpt-4", {"rps": 1, "mine": 2}, [Limit.per_second("rps", 5), MINE]):
        own = limiter.available("user-1", "gpt-4", [Limit.per_second("rps", 5), MINE])
    take(limiter, {"rps": 1})

    assert ({"mine": 28, "rps": 4}, {"rps": 3}) == (own, available(limiter))


def test_own_limits_need_no_stored_ones(limiter):
    """Nothing need be configured."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD]):
        pass

    assert {"rps": 9} == limiter.available("user-1", "gpt-4", [OLD])


def test_own_limits_in_any_order_are_the_same_limits(repo):
    """The bucket is not rebased when only the order differs."""
    limiter = SyncRateLimiter(another(repo))
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD, TPM]):
        pass
    before = buckets_in(repo)[0]
    with limiter.acquire("user-1", "gpt-4", {"rps": 1}, (TPM, OLD)):
        pass
    after = buckets_in(repo)[0]

    assert (before["ld"], before["rf"]) == (after["ld"], after["rf"])


def test_going_to_own_limits_and_back_refills_nothing(admin, limiter):
    """Limits that come and go keep their level."""
    take(limiter, {"rps": 10})
    for _ in range(5):
        with limiter.acquire("user-1", "gpt-4", {"mine": 1}, [MINE]):
            pass
        take(limiter, {"rps": 0})

    assert {"rps": 0} == available(limiter)
    assert {"mine": 25} == limiter.available("user-1", "gpt-4", [MINE])


def test_a_lease_outlives_a_change_of_limits(admin, limiter, repo):
    """What it adjusts is charged to the bucket as it is then."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 3}) as lease:
        repo.set_system_defaults([Limit.per_second("rps", 10, burst=50)])
        take(limiter, {"rps": 1})
        lease.adjust(rps=4)

    assert {"rps": 2} == available(limiter)


def test_a_lease_on_a_limit_that_is_gone_settles_the_rest(admin, limiter, repo):
    """What the bucket no longer has is left out."""
    repo.set_system_defaults([OLD, TPM])
    with limiter.acquire("user-1", "gpt-4", {"rps": 3, "tpm": 0}) as lease:
        repo.set_system_defaults([OLD])
        take(limiter, {"rps": 1})
        lease.adjust(rps=-2, tpm=5)

    assert {"rps": 8} == available(limiter)


@pytest.mark.parametrize(("level", "expires"), [("system", True), ("resource", True), ("entity", False)])
def test_only_buckets_of_default_limits_expire(limiter, repo, level, expires):
    """A bucket of an entity's own limits stays."""
    if level == "system":
        repo.set_system_defaults([OLD])
    elif level == "resource":
        repo.set_resource_defaults("gpt-4", [OLD])
    else:
        repo.set_limits("user-1", [OLD])
    take(limiter, {"rps": 1})

    assert expires == ("ttl" in buckets_in(repo)[0])


def test_a_bucket_expires_some_fill_times_after_its_last_use(limiter, repo, clock):
    """Seven by default, counted in seconds and rounded up."""
    repo.set_system_defaults([Limit.per_second("rps", 1, burst=60)])
    take(limiter, {"rps": 1})
    clock.advance(5_000)
    take(limiter, {"rps": 1})

    assert (clock.now_ms() + 7 * 60_000) // 1000 + 1 == buckets_in(repo)[0]["ttl"]


def test_a_bucket_in_debt_does_not_expire(admin, limiter, repo):
    """Expiry would forgive the debt."""
    with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        lease.adjust(rps=1)

    assert "ttl" not in buckets_in(repo)[0]
