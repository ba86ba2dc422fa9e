"""What a lease reports about its limits, without a call."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter

from .clients import FailingTable, another, counted

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults([RPM, TPM])


def test_lease_reports_limits_and_what_remains_of_them(limiter):
    """What a response header needs."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        limits, remaining = lease.limits, lease.remaining

    assert [RPM, TPM] == limits
    assert {"rpm": 59, "tpm": 5_500} == remaining


def test_lease_counts_adjustments_as_written(limiter):
    """What remains may be negative, and is never above the capacity."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        before = lease.adjusted
        lease.adjust(tpm=5_730)
        remaining, adjusted = lease.remaining, lease.adjusted

    assert {"rpm": 59, "tpm": -230} == remaining
    assert (False, True) == (before, adjusted)


def test_lease_reports_whether_it_keeps_what_was_taken(limiter):
    """A commit, or the choice at the acquire, keeps it even if the block raises."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
        before = lease.committed
        lease.commit()
        after = lease.committed
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_error="keep") as lease:
        chosen = lease.committed

    assert (False, True, True) == (before, after, chosen)


def test_statuses_of_a_lease_have_what_it_holds_and_none_is_exceeded(limiter):
    """A limit that the acquire did not name is listed too."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 5_000}) as lease:
        statuses = lease.statuses

    assert [("rpm", 60, 0), ("tpm", 1_000, 5_000)] == [(s.limit_name, s.available, s.requested) for s in statuses]
    assert [False, False] == [status.exceeded for status in statuses]


def test_lease_of_a_child_reports_the_least_that_remains_of_all_buckets(limiter):
    """The statuses list the parent's limits after the child's."""
    limiter.create_entity("project")
    limiter.create_entity("key", parent_id="project", cascade=True)
    limiter.set_limits("project", [Limit.per_minute("rpm", 10), Limit.per_minute("extra", 5)])

    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        remaining, entities = lease.remaining, [status.entity_id for status in lease.statuses]

    assert {"rpm": 9, "tpm": 6_000} == remaining
    assert ["key", "key", "project", "project"] == entities


def test_facts_of_a_lease_cost_no_call(repo):
    """They come from the view that the take returned."""
    limiter, table = counted(repo)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
        table.drain()
        facts = (lease.remaining, lease.limits, lease.statuses, lease.adjusted)

    assert all(facts[:3])
    assert [] == table.calls


def test_degraded_lease_reports_no_limits(repo):
    """Without the store nothing is known."""
    other = another(repo, FailingTable)
    other.scope.table.unavailable = True
    limiter = SyncRateLimiter(other)

    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        lease.adjust(tpm=100)
        facts = (lease.remaining, lease.limits, lease.statuses, lease.consumed)

    assert ({}, [], [], {"rpm": 1, "tpm": 100}) == facts


@pytest.mark.parametrize("fact", ["limits", "remaining", "statuses", "degraded", "consumed", "entries"])
def test_fact_of_a_lease_that_was_not_entered_raises(limiter, fact):
    """An acquire takes nothing before it is entered."""
    lease = limiter.acquire("user-1", "gpt-4", {"rpm": 1})

    with pytest.raises(RuntimeError, match="has not been entered"):
        getattr(lease, fact)
