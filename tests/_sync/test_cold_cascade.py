"""Cascade to a child and a parent that are not cached: two reads, and then both writes at the same time."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded

from .clients import AsynchronousTable, another, own_level, take


def counted_client(repo, wrap=AsynchronousTable):
    """Return a limiter with its own cache, and the table that counts its calls."""
    other = another(repo, wrap)
    return SyncRateLimiter(other), other.scope.table


@pytest.fixture
def limiter_with_parent(repo):
    """A child with a capacity of 100 under a parent with a capacity of 10."""
    repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    repo.create_entity("project")
    repo.create_entity("user-1", parent_id="project", cascade=True)
    repo.set_limits("project", [Limit.per_minute("rpm", 10)])
    return SyncRateLimiter(repo)


def available(limiter):
    child = own_level(limiter, "user-1")
    parent = own_level(limiter, "project")
    return child["rpm"], parent["rpm"]


def test_cold_cascade_reads_child_and_parent_and_writes_both(repo, limiter_with_parent):
    """The two are read one after the other, each with its bucket."""
    limiter, table = counted_client(repo)

    take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "write", "write"] == table.drain()
    assert (97, 7) == available(limiter_with_parent)


def test_warm_cascade_makes_two_writes_without_a_read(repo, limiter_with_parent):
    """The views from the first acquire are enough."""
    limiter, table = counted_client(repo)
    take(limiter, {"rpm": 3})
    table.drain()

    take(limiter, {"rpm": 3})

    assert ["write", "write"] == table.drain()
    assert (94, 4) == available(limiter_with_parent)


def test_cold_cascade_to_existing_buckets_makes_two_reads_and_two_writes(repo, limiter_with_parent):
    """The buckets are new to this client, not to the table."""
    take(limiter_with_parent, {"rpm": 1})
    limiter, table = counted_client(repo)

    take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "write", "write"] == table.drain()
    assert (96, 6) == available(limiter_with_parent)


def test_cold_cascade_rejected_by_the_parent_writes_nothing(repo, limiter_with_parent):
    """Neither bucket is written."""
    take(limiter_with_parent, {"rpm": 8})
    limiter, table = counted_client(repo)

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"rpm": 3})

    assert "project" == caught.value.primary_violation.entity_id
    assert ["batch_get", "batch_get"] == table.drain()
    assert (92, 2) == available(limiter_with_parent)


def test_cold_cascade_rejected_by_the_child_reads_each_bucket_once(repo, limiter_with_parent):
    """The parent is read together with its limits, so its statuses in the error cost no further read."""
    repo.set_limits("user-1", [Limit.per_minute("rpm", 5)])
    take(limiter_with_parent, {"rpm": 4})
    limiter, table = counted_client(repo)

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, {"rpm": 3})

    assert [("user-1", 1), ("project", 6)] == [(one.entity_id, one.available) for one in caught.value.statuses]
    assert ["batch_get", "batch_get"] == table.drain()


def test_cold_cascade_to_a_parent_with_cached_limits_reads_its_bucket(repo, limiter_with_parent):
    """The limits of the parent were read for a report, and its bucket was found absent."""
    limiter, table = counted_client(repo)
    limiter.available("project", "gpt-4")
    table.drain()

    take(limiter, {"rpm": 3})

    assert ["batch_get", "get", "write", "write"] == sorted(table.drain())
    assert (97, 7) == available(limiter_with_parent)


def test_cold_cascade_to_a_parent_without_limits_writes_the_child_only(repo, limiter_with_parent):
    """No transaction is needed."""
    repo.delete_limits("project")
    repo.delete_system_defaults()
    repo.set_limits("user-1", [Limit.per_minute("rpm", 100)])
    limiter, table = counted_client(repo)

    take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "write"] == table.drain()[:3]


def test_cold_acquire_without_a_parent_makes_one_read_and_one_write(repo, limiter_with_parent):
    """Cascades add no cost to other entities."""
    limiter, table = counted_client(repo)

    take(limiter, {"rpm": 3}, "user-2")

    assert ["batch_get", "write"] == table.drain()


def test_cold_cascade_that_loses_a_race_takes_each_bucket_once(repo, limiter_with_parent):
    """Another client creates both buckets after they were found absent; nothing is debited twice."""

    class RacedTable(AsynchronousTable):
        def write(self, operation, until_s=None):
            if "write" not in self.calls:
                self.calls.append("write")
                take(limiter_with_parent, {"rpm": 2})
            return super().write(operation, until_s)

    limiter, _ = counted_client(repo, RacedTable)

    take(limiter, {"rpm": 3})

    assert (95, 5) == available(limiter_with_parent)


def test_cold_cascade_uses_the_time_that_is_known_after_the_last_read(repo, limiter_with_parent):
    """A bucket that is created with an earlier time would have earned tokens since, and so forget the take."""

    class CorrectedTable(AsynchronousTable):
        """Its clock is ten minutes behind until the second response corrects it."""

        def __init__(self, table):
            super().__init__(table)
            self.now = self._known_time

        def _known_time(self):
            early, late = self.table.now()
            behind_ms = 600_000 if self.calls.count("batch_get") < 2 else 0
            return early - behind_ms, late - behind_ms

    limiter, _ = counted_client(repo, CorrectedTable)

    take(limiter, {"rpm": 3})

    assert (97, 7) == available(limiter_with_parent)


def test_adjust_of_a_cold_cascade_debits_child_and_parent_at_exit(repo, limiter_with_parent):
    """One write per bucket."""
    limiter, table = counted_client(repo)

    with limiter.acquire("user-1", "gpt-4", {"rpm": 3}) as lease:
        lease.adjust(rpm=2)
        table.drain()

    assert ["write", "write"] == table.drain()
    assert (95, 5) == available(limiter_with_parent)


def test_exception_in_a_cold_cascade_credits_child_and_parent(repo, limiter_with_parent):
    """Both buckets are restored in full."""
    limiter, _ = counted_client(repo)

    with pytest.raises(KeyError):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 3}):
            raise KeyError

    assert (100, 10) == available(limiter_with_parent)
