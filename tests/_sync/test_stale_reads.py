"""Reads that do not show yet what was just written: nothing is refused for them."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, NamespaceNotFoundError, SyncRateLimiter, ValidationError

from .clients import Wrapped, another, take

LIMITS = [Limit.per_minute("rpm", 60)]


class LaggingTable(Wrapped):
    """A table that shows items only to whoever asks for the newest."""

    def __init__(self, table):
        super().__init__(table)
        self.index_lag_s = 1.0
        self.consistent_reads = 0

    def batch_get(self, keys, *, consistent=False, until_s=None):
        if not consistent:
            return [None] * len(keys)
        self.consistent_reads += 1
        return self.table.batch_get(keys, consistent=True, until_s=until_s)


def lagging(repo):
    return SyncRateLimiter(another(repo, LaggingTable))


def test_limits_that_were_just_stored_are_in_force(repo):
    """What an ordinary read lacks is looked for once more."""
    repo.set_system_defaults(LIMITS)
    limiter = lagging(repo)
    take(limiter, {"rpm": 10})

    assert {"rpm": 50} == SyncRateLimiter(repo).available("user-1", "gpt-4")


def test_a_caller_with_limits_of_its_own_needs_no_second_look_for_stored_ones(repo):
    """That there are none is nothing to wonder at; only the namespace is looked for, once."""
    limiter = lagging(repo)
    for _ in range(2):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, limits=LIMITS):
            pass

    assert 1 == limiter.repository.scope.table.consistent_reads


def test_where_there_are_none_it_is_said(repo):
    """By the newest read."""
    with pytest.raises(ValidationError, match="no limits are in force"):
        take(lagging(repo), {"rpm": 10})


def test_a_namespace_that_is_gone_is_gone(repo):
    """By the newest read too."""
    repo.register_namespace("tenant")
    scoped = repo.namespace("tenant")
    limiter = lagging(scoped)
    repo.delete_namespace("tenant")

    with pytest.raises(NamespaceNotFoundError, match="tenant"):
        take(limiter, {"rpm": 10})
