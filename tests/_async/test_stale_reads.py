"""Reads that do not show yet what was just written: nothing is refused for them."""

import pytest

from zae_limiter import Limit, NamespaceNotFoundError, RateLimiter, ValidationError

from .clients import Wrapped, another, take

LIMITS = [Limit.per_minute("rpm", 60)]


class LaggingTable(Wrapped):
    """A table that shows items only to whoever asks for the newest."""

    def __init__(self, table):
        super().__init__(table)
        self.index_lag_s = 1.0
        self.consistent_reads = 0

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        if not consistent:
            return [None] * len(keys)
        self.consistent_reads += 1
        return await self.table.batch_get(keys, consistent=True, until_s=until_s)


def lagging(repo):
    return RateLimiter(another(repo, LaggingTable))


async def test_limits_that_were_just_stored_are_in_force(repo):
    """What an ordinary read lacks is looked for once more."""
    await repo.set_system_defaults(LIMITS)
    limiter = lagging(repo)
    await take(limiter, {"rpm": 10})

    assert {"rpm": 50} == await RateLimiter(repo).available("user-1", "gpt-4")


async def test_a_caller_with_limits_of_its_own_needs_no_second_look_for_stored_ones(repo):
    """That there are none is nothing to wonder at; only the namespace is looked for, once."""
    limiter = lagging(repo)
    for _ in range(2):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, limits=LIMITS):
            pass

    assert 1 == limiter.repository.scope.table.consistent_reads


async def test_where_there_are_none_it_is_said(repo):
    """By the newest read."""
    with pytest.raises(ValidationError, match="no limits are in force"):
        await take(lagging(repo), {"rpm": 10})


async def test_a_namespace_that_is_gone_is_gone(repo):
    """By the newest read too."""
    await repo.register_namespace("tenant")
    scoped = await repo.namespace("tenant")
    limiter = lagging(scoped)
    await repo.delete_namespace("tenant")

    with pytest.raises(NamespaceNotFoundError, match="tenant"):
        await take(limiter, {"rpm": 10})
