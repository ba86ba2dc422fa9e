"""Eventually consistent reads that miss a recent write do not cause a refusal."""

import pytest

from zae_limiter import Limit, NamespaceNotFoundError, RateLimiter, ValidationError

from .clients import Wrapped, another, take

LIMITS = [Limit.per_minute("rpm", 60)]


class LaggingTable(Wrapped):
    """A table where only consistent reads return items."""

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


async def test_limits_that_were_just_stored_apply_despite_stale_reads(repo):
    """Limits that an ordinary read misses are read again consistently."""
    await repo.set_system_defaults(LIMITS)
    limiter = lagging(repo)
    await take(limiter, {"rpm": 10})

    assert {"rpm": 50} == await RateLimiter(repo).available("user-1", "gpt-4")


async def test_passed_limits_need_no_consistent_read_of_stored_limits(repo):
    """Only the namespace is read consistently, once."""
    limiter = lagging(repo)
    for _ in range(2):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, limits=LIMITS):
            pass

    assert 1 == limiter.repository.scope.table.consistent_reads


async def test_missing_limits_are_confirmed_by_a_consistent_read(repo):
    """Then the request is refused."""
    with pytest.raises(ValidationError, match="no limits are in force"):
        await take(lagging(repo), {"rpm": 10})


async def test_deleted_namespace_is_confirmed_by_a_consistent_read(repo):
    """Then the request is refused."""
    await repo.register_namespace("tenant")
    scoped = await repo.namespace("tenant")
    limiter = lagging(scoped)
    await repo.delete_namespace("tenant")

    with pytest.raises(NamespaceNotFoundError, match="tenant"):
        await take(limiter, {"rpm": 10})
