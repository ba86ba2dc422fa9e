"""Cascade: child and parent are taken from together, or not at all."""

from dataclasses import replace

import pytest

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository, ValidationError
from zae_limiter.runtime.aio import Parallel

from .clients import FailingTable, another, counted, own_level

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


@pytest.fixture
async def family(repo):
    """Two keys under one project, which holds less than the two together."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity("project")
    for key in ("key-1", "key-2"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    return repo


async def left(limiter, entity_id):
    return await own_level(limiter, entity_id)


async def test_both_are_taken_from(family, limiter):
    """The parent pays for every child."""
    for key in ("key-1", "key-2"):
        async with limiter.acquire(key, "gpt-4", {"rpm": 2, "tpm": 100}):
            pass

    assert {"rpm": 8, "tpm": 900} == await left(limiter, "key-1")
    assert {"rpm": 6, "tpm": 800} == await left(limiter, "project")


async def test_without_cascade_the_parent_is_left_alone(family, limiter):
    """Being a child is not enough."""
    await family.create_entity("key-3", parent_id="project")
    async with limiter.acquire("key-3", "gpt-4", {"rpm": 2}):
        pass

    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "project")


async def test_a_refused_parent_gives_the_child_its_tokens_back(family, limiter):
    """And the error names the parent."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 8}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await limiter.acquire("key-2", "gpt-4", {"rpm": 3}).__aenter__()

    assert ["project"] == [violation.entity_id for violation in exceeded.value.violations]
    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "key-2")
    assert {"rpm": 2, "tpm": 1_000} == await left(limiter, "project")


async def test_a_refused_child_leaves_the_parent_as_it_was(family, limiter):
    """The parent has enough, the child has not."""
    await family.set_limits("key-1", [Limit.per_minute("rpm", 1)])
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()

    assert {"key-1"} == {violation.entity_id for violation in exceeded.value.violations}
    assert 9 == (await left(limiter, "project"))["rpm"]


async def test_what_the_parent_does_not_limit_is_not_asked_of_it(family, limiter):
    """A project may limit tokens and not requests."""
    await family.set_limits("project", [TPM])
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    assert {"tpm": 990} == await left(limiter, "project")


async def test_more_than_the_parent_can_ever_hold_is_refused_by_name(family, limiter):
    """And the child keeps its tokens."""
    await family.set_limits("project", [Limit.per_minute("rpm", 3)])

    with pytest.raises(ValidationError, match="capacity"):
        await limiter.acquire("key-1", "gpt-4", {"rpm": 4}).__aenter__()

    assert 10 == (await left(limiter, "key-1"))["rpm"]


async def test_a_lease_adjusts_releases_and_consumes_on_both(family, limiter):
    """Whatever changes, changes for both."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        await lease.consume(rpm=2)
        await lease.release(tpm=50)
        await lease.adjust(tpm=300)

        assert ["key-1", "project"] == [entry.entity_id for entry in lease.entries]
        assert [{"rpm": 3, "tpm": 350}] * 2 == [entry.consumed for entry in lease.entries]

    assert {"rpm": 7, "tpm": 650} == await left(limiter, "key-1")
    assert {"rpm": 7, "tpm": 650} == await left(limiter, "project")


async def test_a_failure_gives_back_to_both(family, limiter):
    """As if nothing had been."""
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}):
            raise ZeroDivisionError

    for entity_id in ("key-1", "project"):
        assert {"rpm": 10, "tpm": 1_000} == await left(limiter, entity_id)


async def test_own_limits_are_the_childs(family, limiter):
    """The parent goes by what is stored."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 5}, limits=[Limit.per_minute("rpm", 5)]):
        pass

    assert 5 == (await left(limiter, "project"))["rpm"]


async def test_a_cascade_is_two_writes(family):
    """Once both are known."""
    limiter, table = counted(family)
    for _ in range(2):
        table.drain()
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass

    assert ["write", "write"] == table.drain()


async def test_an_entity_created_anew_with_another_parent_pays_there(family, limiter):
    """A live client sees it through the stamp."""
    other = RateLimiter(another(family))
    async with other.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    await family.create_entity("project-2")
    await family.delete_entity("key-1")
    await family.create_entity("key-1", parent_id="project-2", cascade=True)

    async with other.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    assert 9 == (await left(limiter, "project"))["rpm"]
    assert 9 == (await left(limiter, "project-2"))["rpm"]


class WaitingTable(FailingTable):
    """A table whose writes are not done in place."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


@pytest.mark.parametrize("mode", ["auto", "threadpool", "serial"])
@pytest.mark.filterwarnings("ignore:.*CPU")
async def test_on_a_table_that_waits_both_are_written_at_once(family, limiter, mode):
    """In every mode, with the same outcome: both or none."""
    client = another(family, WaitingTable)
    parallel = replace(client.scope.client, parallel=Parallel(mode))
    waiting = RateLimiter(Repository(parallel.scope("default", client.scope.namespace_id), owns_table=False))
    for _ in range(3):
        async with waiting.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            await lease.release(rpm=0)
    async with waiting.acquire("key-2", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await waiting.acquire("key-2", "gpt-4", {"rpm": 8}).__aenter__()

    assert {"project"} == {violation.entity_id for violation in exceeded.value.violations}
    assert [7, 9, 6] == [(await left(limiter, one))["rpm"] for one in ("key-1", "key-2", "project")]


async def test_two_rejections_at_once_are_told_together(family):
    """Child and parent both lack the tokens."""
    await family.set_limits("key-1", [Limit.per_minute("rpm", 10)])
    waiting = RateLimiter(another(family, WaitingTable))
    async with waiting.acquire("key-1", "gpt-4", {"rpm": 10}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await waiting.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()

    assert {"key-1", "project"} == {violation.entity_id for violation in exceeded.value.violations}


async def test_a_store_that_goes_away_is_told_of_the_child(family):
    """Or lets the request through, if that is allowed."""
    limiter = RateLimiter(another(family, WaitingTable))
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    limiter.repository.scope.table.away = True

    with pytest.raises(RateLimiterUnavailable):
        await limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
        assert [] == lease.entries


class LeavingTable(FailingTable):
    """A table that goes away after so many writes, and comes back for the writes that settle."""

    def __init__(self, table):
        super().__init__(table)
        self.reads_left = None

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        self.away = self.reads_left == 0
        try:
            return await super().batch_get(keys, consistent=consistent, until_s=until_s)
        finally:
            self.away = False
            self.reads_left = None if self.reads_left is None else self.reads_left - 1


async def test_a_parent_out_of_reach_leaves_the_child_uncharged(family, limiter):
    """A lease that is let through then owes nothing and gives nothing back, whatever happens in it."""
    limits = [RPM, TPM]
    careful = RateLimiter(another(family, LeavingTable))
    careful.repository.scope.table.reads_left = 1

    lease = careful.acquire("key-1", "gpt-4", {"rpm": 4}, limits, on_unavailable="allow")
    await lease.__aenter__()
    await lease.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    assert lease.degraded
    assert 10 == (await left(limiter, "key-1"))["rpm"]


class VanishingTable(FailingTable):
    """A table that carries out so many writes more, and no other."""

    def __init__(self, table):
        super().__init__(table)
        self.writes_left = [True] * 100

    async def write(self, operation, until_s=None):
        # Two writers may come at once; a list gives each of them one or none.
        try:
            self.writes_left.pop()
        except IndexError:
            self.away = True
        return await super().write(operation, until_s)


@pytest.mark.parametrize("inline", [True, False])
async def test_a_store_that_vanishes_between_child_and_parent_is_told_as_that(family, inline):
    """What cannot be given back stays charged; the caller hears of the store, or is let through."""
    limiter = RateLimiter(another(family, VanishingTable))
    table = limiter.repository.scope.table
    table.inline = inline
    limiter = RateLimiter(limiter.repository)
    for entity_id in ("key-1", "key-2"):
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    table.writes_left = [True]

    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
    table.away, table.writes_left = False, [True]
    with pytest.raises(RateLimiterUnavailable):
        await limiter.acquire("key-2", "gpt-4", {"rpm": 1}).__aenter__()


async def test_a_limit_taken_out_of_the_parent_meanwhile_is_not_given_back_to_it(family, limiter):
    """What the parent did not give, it does not get."""
    await family.set_limits("project", [RPM, TPM])
    lease = limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10})
    await lease.__aenter__()
    await family.set_limits("project", [TPM])
    await lease.consume(rpm=5)
    await lease.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    await family.set_limits("project", [RPM, TPM])

    assert {"rpm": 9, "tpm": 1_000} == await left(limiter, "project")
    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "key-1")
