"""Limits of concurrent use: slots are taken with all other limits, renewed while a lease is open, and returned."""  # generated from _async by tools/mirror.py; do not edit

import gc

import pytest

from zae_limiter import Also, LeaseExpiredError, Limit, SyncRateLimiter, RateLimitExceeded, ValidationError
from zae_limiter.runtime.threads import sleep

from .clients import AsynchronousTable, CountingTable, another, buckets_in, counted

SLOTS = Limit.concurrent("slots", 3, hold_seconds=60)
LIMITS = [Limit.per_minute("rpm", 60), SLOTS]
ONE = {"rpm": 1, "slots": 1}


class ModelError(Exception):
    """The failure of the caller's own work."""


@pytest.fixture(autouse=True)
def _limits(repo):
    repo.set_system_defaults(LIMITS)


def acquire(limiter, consume=None, **options):
    return limiter.acquire("user-1", "gpt-4", consume or ONE, **options)


def opened(limiter, number=1):
    """Return leases that are open, each with one slot."""
    leases = [acquire(limiter) for _ in range(number)]
    for lease in leases:
        lease.__enter__()
    return leases


def closed(*leases):
    for lease in leases:
        lease.__exit__(None, None, None)


def free(limiter):
    return (limiter.available("user-1", "gpt-4"))["slots"]


def fail_after_commit(lease):
    with lease as entered:
        entered.commit()
        raise ModelError


def in_use(repo):
    """Return the slots in use on all shards, by the end of their cohort."""
    found = {}
    for item in buckets_in(repo):
        for name, milli in item.items():
            if name.startswith("b_slots_h") and name[9:].isdigit() and milli:
                found[int(name[9:])] = found.get(int(name[9:]), 0) + milli // 1000
    return found


def whole(repo):
    """Return the free slots and those in use, which together are always the capacity."""
    return sum(item["b_slots_tk"] // 1000 for item in buckets_in(repo)) + sum(in_use(repo).values())


def rejected(lease):
    with pytest.raises(RateLimitExceeded) as caught:
        lease.__enter__()
    return caught.value


def test_open_leases_up_to_the_capacity_are_admitted_and_no_more(either_limiter):
    """The capacity is the number of leases that may be open at a time."""
    leases = opened(either_limiter, 3)
    refused = rejected(acquire(either_limiter))
    closed(leases[0])
    (again,) = opened(either_limiter)

    assert (["slots"], 3) == ([one.limit_name for one in refused.violations], refused.primary_violation.in_use)
    assert not again.lost


def test_request_without_a_free_slot_takes_no_request_either(either_limiter):
    """All limits are taken in one write, or none of them."""
    opened(either_limiter, 3)
    rejected(acquire(either_limiter))

    assert {"rpm": 57, "slots": 0} == either_limiter.available("user-1", "gpt-4")


def test_slot_of_an_ended_lease_is_free_again_and_its_request_stays_taken(either_limiter, repo):
    """Only slots are returned at the end of a lease that has succeeded."""
    closed(*opened(either_limiter, 2))

    assert {"rpm": 58, "slots": 3} == either_limiter.available("user-1", "gpt-4")
    assert {} == in_use(repo)


def test_slot_and_request_of_a_failed_lease_are_given_back(either_limiter):
    """A block that raises gives everything back."""
    with pytest.raises(ModelError):
        with acquire(either_limiter):
            raise ModelError

    assert {"rpm": 60, "slots": 3} == either_limiter.available("user-1", "gpt-4")


def test_committed_lease_that_fails_keeps_its_request_and_returns_its_slot(either_limiter):
    """A commit keeps what has a cost. The slot is not used any more."""
    with pytest.raises(ModelError):
        fail_after_commit(acquire(either_limiter))

    assert {"rpm": 59, "slots": 3} == either_limiter.available("user-1", "gpt-4")


def test_lease_left_twice_returns_its_slot_once(either_limiter, repo):
    """A second exit does nothing."""
    (lease,) = opened(either_limiter)
    closed(lease, lease)

    assert (3, 3) == (free(either_limiter), whole(repo))


def test_lease_with_slots_takes_and_returns_more_of_them(either_limiter, repo):
    """``consume`` and ``release`` work as for other limits."""
    with acquire(either_limiter) as lease:
        lease.consume(slots=2)
        seen = [free(either_limiter)]
        lease.release(slots=1)
        seen.append(free(either_limiter))

    assert ([0, 1], 3) == (seen, free(either_limiter))
    assert {} == in_use(repo)


def test_lease_without_slots_returns_those_it_takes_later(either_limiter):
    """They are renewed and returned like those of the acquire."""
    with acquire(either_limiter, {"rpm": 1}) as lease:
        lease.consume(slots=2)
        seen = free(either_limiter)

    assert (1, 3) == (seen, free(either_limiter))


def test_adjusting_slots_is_an_error_that_names_the_verbs(either_limiter):
    """A use that is known only afterwards has no meaning for slots."""
    with acquire(either_limiter) as lease:
        with pytest.raises(ValidationError, match=r"call consume\(\) to take more slots, and release\(\)"):
            lease.adjust(slots=1)


def test_ended_lease_takes_no_slots(either_limiter):
    """Nothing would return them."""
    with acquire(either_limiter) as lease:
        pass
    with pytest.raises(LeaseExpiredError):
        lease.consume(slots=1)

    assert 3 == free(either_limiter)


def test_slots_of_a_holder_that_is_gone_are_free_after_their_hold(either_limiter, repo, clock):
    """A process that crashed cannot return them."""
    opened(either_limiter, 3)
    clock.advance(60_000 - 1)
    early = free(either_limiter)
    clock.advance(30_000)
    late = free(either_limiter)
    others = opened(either_limiter, 3)

    assert (0, 3, 3) == (early, late, len(others))
    assert 3 == whole(repo)


def test_renewed_slots_stay_in_use_for_as_long_as_the_lease_is_open(either_limiter, repo, clock):
    """One write renews all slots of a process."""
    leases = opened(either_limiter, 2)
    for _ in range(30):
        clock.advance(10_000)
        either_limiter._client.slots.renew_due()

    assert (1, False) == (free(either_limiter), leases[0].lost)
    closed(*leases)
    assert (3, {}) == (free(either_limiter), in_use(repo))


def test_renewal_of_several_leases_is_one_transaction(repo, clock):
    """It costs two write units per process, bucket and half hold, however many leases are open."""
    limiter, table = counted(repo)
    leases = opened(limiter, 3)
    table.drain()
    clock.advance(59_000)
    limiter._client.slots.renew_due()

    assert ["transact"] == table.drain()
    assert 3 == len(leases)


def test_short_lease_is_never_renewed(repo, clock):
    """A call that is shorter than half the hold costs no renewal."""
    limiter, table = counted(repo)
    (lease,) = opened(limiter, 1)
    table.drain()
    clock.advance(29_999)
    limiter._client.slots.renew_due()

    assert [] == table.drain()
    assert not lease.lost


def test_lease_that_is_dropped_without_an_exit_is_not_renewed(either_limiter, repo, clock):
    """Its slots are free after their hold, as those of a process that crashed."""
    opened(either_limiter, 2)
    gc.collect()
    for _ in range(9):
        clock.advance(10_000)
        either_limiter._client.slots.renew_due()

    assert 3 == free(either_limiter)


def test_lease_that_was_not_renewed_in_time_is_lost_and_says_so(either_limiter, clock):
    """The caller's work is not cancelled, but others may use the slot."""
    told = []
    lease = acquire(either_limiter, on_lost=told.append)
    lease.__enter__()
    clock.advance(90_000)
    lost = lease.lost
    either_limiter._client.slots.renew_due()
    # The callback runs in the loop of the lease.
    sleep(0)

    assert (True, [lease]) == (lost, told)


@pytest.mark.parametrize("adjusted", [0, 5])
def test_lease_that_was_lost_says_so_after_its_end(either_limiter, clock, adjusted):
    """The caller may ask only then whether its work was alone."""
    lost, kept = opened(either_limiter, 2)
    closed(kept)
    clock.advance(91_000)
    if adjusted:
        lost.adjust(rpm=adjusted)
    closed(lost)

    assert (True, False) == (lost.lost, kept.lost)


def test_lost_lease_never_frees_the_slot_of_another_holder(either_limiter, repo, clock):
    """It settles its other limits as usual."""
    (lost,) = opened(either_limiter, 1)
    clock.advance(91_000)
    holders = opened(either_limiter, 3)
    lost.adjust(rpm=5)
    closed(lost)

    assert (0, 3) == (free(either_limiter), len(holders))
    assert 3 == whole(repo)
    assert 52 <= (either_limiter.available("user-1", "gpt-4"))["rpm"] <= 60


def test_slots_of_a_deleted_bucket_are_not_returned_to_its_successor(either_limiter, repo):
    """The bucket that replaced it has another birth number."""
    repo.create_entity("user-1")
    (old,) = opened(either_limiter, 1)
    repo.delete_entity("user-1")
    holders = opened(either_limiter, 2)
    closed(old)

    assert (1, 2) == (free(either_limiter), len(holders))
    assert 3 == whole(repo)


def test_lowered_capacity_admits_only_once_enough_slots_are_returned(either_limiter, repo):
    """Slots in use stay in use, so the free ones may be negative for a while."""
    leases = opened(either_limiter, 3)
    repo.set_system_defaults([LIMITS[0], Limit.concurrent("slots", 1, hold_seconds=60)])
    either_limiter._client.caches.forget_limits()
    rejected(acquire(either_limiter))
    closed(*leases[:2])
    rejected(acquire(either_limiter))
    closed(leases[2])
    (again,) = opened(either_limiter, 1)

    assert (1, 0) == (whole(repo), (either_limiter.available("user-1", "gpt-4"))["slots"])
    closed(again)


def test_raised_capacity_admits_more_at_once(either_limiter, repo):
    """The difference is added to the free slots in the write that takes."""
    opened(either_limiter, 3)
    repo.set_system_defaults([LIMITS[0], Limit.concurrent("slots", 5, hold_seconds=60)])
    either_limiter._client.caches.forget_limits()
    opened(either_limiter, 2)
    rejected(acquire(either_limiter))

    assert 5 == whole(repo)


def test_removed_slots_in_use_are_remembered_until_they_are_returned(either_limiter, repo):
    """A limit that is removed and added again does not forget its holders."""
    leases = opened(either_limiter, 3)
    repo.set_system_defaults([LIMITS[0]])
    either_limiter._client.caches.forget_limits()
    with acquire(either_limiter, {"rpm": 1}):
        pass
    repo.set_system_defaults(LIMITS)
    either_limiter._client.caches.forget_limits()
    rejected(acquire(either_limiter))
    closed(*leases)
    opened(either_limiter, 3)

    assert 3 == whole(repo)


def test_limit_that_changes_its_kind_while_in_use_is_a_named_error(either_limiter, repo):
    """The two kinds would use the same attributes."""
    opened(either_limiter, 1)
    repo.set_system_defaults([LIMITS[0], Limit.per_minute("slots", 10)])
    either_limiter._client.caches.forget_limits()
    with pytest.raises(ValidationError, match="Choose another name, or delete the limit and wait"):
        acquire(either_limiter).__enter__()


def test_parent_with_slots_bounds_all_its_children(either_limiter, repo):
    """Slots cascade like other limits, and all levels get them back."""
    repo.create_entity("team")
    for child in ("a", "b"):
        repo.create_entity(child, parent_id="team", cascade=True)
    leases = [either_limiter.acquire(child, "gpt-4", ONE) for child in ("a", "b", "a")]
    for lease in leases:
        lease.__enter__()
    error = rejected(either_limiter.acquire("b", "gpt-4", ONE))

    assert ["team"] == [one.entity_id for one in error.violations]
    closed(*leases)
    assert [3, 3, 3] == [(either_limiter.available(one, "gpt-4"))["slots"] for one in ("a", "b", "team")]


def test_also_of_the_same_bucket_divides_its_slots_among_the_requests(either_limiter, repo):
    """Each part of the lease returns its own."""
    also = [Also("user-1", "gpt-4", {"slots": 1})]
    with acquire(either_limiter, also=also) as lease:
        seen = [free(either_limiter)]
        lease.also[0].release(slots=1)
        seen.append(free(either_limiter))

    assert ([1, 2], 3) == (seen, free(either_limiter))
    assert {} == in_use(repo)


def test_wait_for_a_slot_is_the_longest_possible_and_not_exact(either_limiter):
    """Slots are returned at any time, so the wait is at most the rest of the hold."""
    opened(either_limiter, 3)
    error = rejected(acquire(either_limiter))
    status = error.primary_violation

    assert (False, 3) == (status.exact, status.in_use)
    assert 60 <= status.retry_after_seconds <= 90


def test_item_with_slots_expires_no_earlier_than_its_slots(either_limiter, repo, clock):
    """A bucket that is created again would not know its holders."""
    opened(either_limiter, 1)
    (item,) = buckets_in(repo)

    assert item["ttl"] >= max(in_use(repo))
    assert item["tf"] >= 90_000


@pytest.mark.parametrize("numbers", [(0, 60), (5, 4), (5, 86_401), (5, 1.5)])
def test_invalid_slots_are_refused(numbers):
    """The capacity is at least 1, and the hold from 5 seconds to a day."""
    with pytest.raises(ValidationError):
        Limit.concurrent("slots", *numbers)


def test_slots_with_a_refill_are_refused():
    """Slots are returned, not refilled."""
    with pytest.raises(ValidationError, match="slots are returned and not refilled"):
        Limit("slots", 5, 1, 1, 60)


def test_settlement_with_a_slot_is_one_write(repo):
    """An adjustment and the return of a slot travel together."""
    for kind in (CountingTable, AsynchronousTable):
        wrapped = another(repo, kind)
        limiter = SyncRateLimiter(wrapped)
        closed(*opened(limiter, 1))
        wrapped.scope.table.drain()
        with acquire(limiter) as lease:
            lease.adjust(rpm=1)

        assert ["write", "write"] == wrapped.scope.table.drain()


def test_slots_are_returned_at_once_even_if_settlements_are_put_off(repo):
    """Another caller may wait for the slot."""
    limiter = SyncRateLimiter(another(repo, settle_within_s=60.0))
    with acquire(limiter) as lease:
        lease.adjust(rpm=3)
    with acquire(limiter, {"rpm": 1}) as lease:
        lease.adjust(rpm=3)
    with acquire(limiter) as lease:
        pass

    assert {} == in_use(repo)
    limiter._client.finish()


def test_limits_of_the_caller_with_slots_allow_their_kind_on_an_embedded_table(repo):
    """The first bucket with slots is not written before older clients refuse the table."""
    limiter = SyncRateLimiter(another(repo))
    repo.set_system_defaults([LIMITS[0]])
    record = repo.get_version_record()
    with acquire(limiter, limits=LIMITS):
        pass

    assert "slots" in record.kinds
    assert "slots" in (repo.get_version_record()).kinds


class InterruptedTable(CountingTable):
    """A table on which an interrupt comes just after a write was applied, once it is armed."""

    armed = False

    def write(self, operation, until_s=None):
        outcome = super().write(operation, until_s)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return outcome


def test_release_that_an_interrupt_follows_is_not_sent_again(repo):
    """Its slot may belong to another holder by then."""
    limiter = SyncRateLimiter(another(repo, InterruptedTable))
    leases = opened(limiter, 2)
    limiter._client._table.armed = True
    with pytest.raises(KeyboardInterrupt):
        closed(leases[0])

    assert [1] == list(in_use(repo).values())
    assert 3 == whole(repo)
    closed(leases[1])
