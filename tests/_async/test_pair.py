"""A child and its parent that a client has never seen: one transaction; afterwards two writes at once."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

from .clients import CountingTable, another, own_level, take


class FarTable(CountingTable):
    """A table whose writes may be suspended half done, as those of a server are."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


def far(repo, wrap=FarTable):
    """Return a limiter with a memory of its own, and the table that counts its calls."""
    other = another(repo, wrap)
    return RateLimiter(other), other.scope.table


@pytest.fixture
async def family(repo):
    """A child with room for 100 under a parent with room for 10."""
    await repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    await repo.create_entity("project")
    await repo.create_entity("user-1", parent_id="project", cascade=True)
    await repo.set_limits("project", [Limit.per_minute("rpm", 10)])
    return RateLimiter(repo)


async def available(limiter):
    child = await own_level(limiter, "user-1")
    parent = await own_level(limiter, "project")
    return child["rpm"], parent["rpm"]


async def test_a_first_touch_of_both_is_one_transaction(repo, family):
    """Both are read, one after the other, and taken from at once."""
    limiter, table = far(repo)

    await take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "transact"] == table.drain()
    assert (97, 7) == await available(family)


async def test_the_second_time_they_are_written_to_at_once(repo, family):
    """What was learnt from the first time is enough: no read, no transaction."""
    limiter, table = far(repo)
    await take(limiter, {"rpm": 3})
    table.drain()

    await take(limiter, {"rpm": 3})

    assert ["write", "write"] == table.drain()
    assert (94, 4) == await available(family)


async def test_buckets_of_others_are_taken_from_in_one_transaction_too(repo, family):
    """They are new to this client, not to the table."""
    await take(family, {"rpm": 1})
    limiter, table = far(repo)

    await take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "transact"] == table.drain()
    assert (96, 6) == await available(family)


async def test_a_parent_that_lacks_the_tokens_leaves_the_child_alone(repo, family):
    """Nothing is written to either."""
    await take(family, {"rpm": 8})
    limiter, table = far(repo)

    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, {"rpm": 3})

    assert "project" == caught.value.primary_violation.entity_id
    assert ["batch_get", "batch_get"] == table.drain()
    assert (92, 2) == await available(family)


async def test_a_parent_without_limits_is_not_waited_for(repo, family):
    """The child is taken from by itself."""
    await repo.delete_limits("project")
    await repo.delete_system_defaults()
    await repo.set_limits("user-1", [Limit.per_minute("rpm", 100)])
    limiter, table = far(repo)

    await take(limiter, {"rpm": 3})

    assert ["batch_get", "batch_get", "write"] == table.drain()[:3]


async def test_an_entity_without_a_parent_costs_what_it_did(repo, family):
    """One read and one write."""
    limiter, table = far(repo)

    await take(limiter, {"rpm": 3}, "user-2")

    assert ["batch_get", "write"] == table.drain()


async def test_others_that_come_in_between_are_reckoned_with(repo, family):
    """A transaction that was refused is followed by takes one by one; nothing is charged twice."""

    class Overtaken(FarTable):
        async def transact(self, operations, token, *, until_s=None):
            await take(family, {"rpm": 2})
            return await super().transact(operations, token, until_s=until_s)

    limiter, _ = far(repo, Overtaken)

    await take(limiter, {"rpm": 3})

    assert (95, 5) == await available(family)


async def test_an_adjustment_goes_to_both(repo, family):
    """Child and parent are charged when the lease ends."""
    limiter, table = far(repo)

    async with limiter.acquire("user-1", "gpt-4", {"rpm": 3}) as lease:
        await lease.adjust(rpm=2)
        table.drain()

    assert ["write", "write"] == table.drain()
    assert (95, 5) == await available(family)


async def test_an_exception_gives_both_back(repo, family):
    """All or nothing, afterwards too."""
    limiter, _ = far(repo)

    with pytest.raises(KeyError):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 3}):
            raise KeyError

    assert (100, 10) == await available(family)
