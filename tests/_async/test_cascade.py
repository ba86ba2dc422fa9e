"""Cascade: child and parent are debited together, or neither is."""

from dataclasses import replace

import pytest

from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository, ValidationError
from zae_limiter.runtime.aio import Parallel

from .clients import FailingTable, another, counted, own_level

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


@pytest.fixture
async def repo_with_children(repo):
    """Two keys under one project, which has less capacity than the two together."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity("project")
    for key in ("key-1", "key-2"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    return repo


async def left(limiter, entity_id):
    return await own_level(limiter, entity_id)


async def test_cascading_acquire_debits_child_and_parent(repo_with_children, limiter):
    """The parent is debited for every child."""
    for key in ("key-1", "key-2"):
        async with limiter.acquire(key, "gpt-4", {"rpm": 2, "tpm": 100}):
            pass

    assert {"rpm": 8, "tpm": 900} == await left(limiter, "key-1")
    assert {"rpm": 6, "tpm": 800} == await left(limiter, "project")


async def test_acquire_by_a_child_without_cascade_leaves_the_parent_unchanged(repo_with_children, limiter):
    """A parent alone does not make an acquire cascade."""
    await repo_with_children.create_entity("key-3", parent_id="project")
    async with limiter.acquire("key-3", "gpt-4", {"rpm": 2}):
        pass

    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "project")


async def test_acquire_rejected_by_the_parent_leaves_the_child_unchanged(repo_with_children, limiter):
    """The error names the parent."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 8}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await limiter.acquire("key-2", "gpt-4", {"rpm": 3}).__aenter__()

    assert ["project"] == [violation.entity_id for violation in exceeded.value.violations]
    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "key-2")
    assert {"rpm": 2, "tpm": 1_000} == await left(limiter, "project")


async def test_acquire_rejected_by_the_child_leaves_the_parent_unchanged(repo_with_children, limiter):
    """The parent has enough tokens, the child does not."""
    await repo_with_children.set_limits("key-1", [Limit.per_minute("rpm", 1)])
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()

    assert {"key-1"} == {violation.entity_id for violation in exceeded.value.violations}
    assert 9 == (await left(limiter, "project"))["rpm"]


async def test_cascading_acquire_skips_limits_that_the_parent_does_not_have(repo_with_children, limiter):
    """A project may limit tokens but not requests."""
    await repo_with_children.set_limits("project", [TPM])
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    assert {"tpm": 990} == await left(limiter, "project")


async def test_acquire_of_more_than_the_parents_capacity_raises_validation_error(repo_with_children, limiter):
    """The child keeps its tokens."""
    await repo_with_children.set_limits("project", [Limit.per_minute("rpm", 3)])

    with pytest.raises(ValidationError, match="capacity"):
        await limiter.acquire("key-1", "gpt-4", {"rpm": 4}).__aenter__()

    assert 10 == (await left(limiter, "key-1"))["rpm"]


async def test_lease_methods_change_child_and_parent(repo_with_children, limiter):
    """consume, release and adjust apply to both buckets."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        await lease.consume(rpm=2)
        await lease.release(tpm=50)
        await lease.adjust(tpm=300)

        assert ["key-1", "project"] == [entry.entity_id for entry in lease.entries]
        assert [{"rpm": 3, "tpm": 350}] * 2 == [entry.consumed for entry in lease.entries]

    assert {"rpm": 7, "tpm": 650} == await left(limiter, "key-1")
    assert {"rpm": 7, "tpm": 650} == await left(limiter, "project")


async def test_exception_in_a_cascading_lease_credits_child_and_parent(repo_with_children, limiter):
    """Both buckets are restored in full."""
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}):
            raise ZeroDivisionError

    for entity_id in ("key-1", "project"):
        assert {"rpm": 10, "tpm": 1_000} == await left(limiter, entity_id)


async def test_limits_passed_to_a_cascading_acquire_apply_to_the_child_only(repo_with_children, limiter):
    """The parent uses its stored limits."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 5}, limits=[Limit.per_minute("rpm", 5)]):
        pass

    assert 5 == (await left(limiter, "project"))["rpm"]


async def test_warm_cascading_acquire_makes_two_writes(repo_with_children):
    """One write per bucket, once both are cached."""
    limiter, table = counted(repo_with_children)
    for _ in range(2):
        table.drain()
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass

    assert ["write", "write"] == table.drain()


async def test_entity_recreated_with_another_parent_debits_the_new_parent(repo_with_children, limiter):
    """A running client notices the change when it finds the bucket of the entity gone, and then uses the new parent."""
    other = RateLimiter(another(repo_with_children))
    async with other.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    await repo_with_children.create_entity("project-2")
    await repo_with_children.delete_entity("key-1")
    await repo_with_children.create_entity("key-1", parent_id="project-2", cascade=True)

    for _ in range(2):
        async with other.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass

    assert 8 == (await left(limiter, "project"))["rpm"]
    assert 9 == (await left(limiter, "project-2"))["rpm"]


class AsynchronousTable(FailingTable):
    """A table whose writes are not carried out inline."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


@pytest.mark.parametrize("mode", ["auto", "threadpool", "serial"])
@pytest.mark.filterwarnings("ignore:.*CPU")
async def test_cascade_on_an_asynchronous_table_debits_both_or_neither_in_every_mode(repo_with_children, limiter, mode):
    """Child and parent are written at the same time, with the same outcome in every mode."""
    client = another(repo_with_children, AsynchronousTable)
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


async def test_acquire_rejected_by_child_and_parent_reports_both(repo_with_children):
    """Both buckets lack the tokens."""
    await repo_with_children.set_limits("key-1", [Limit.per_minute("rpm", 10)])
    waiting = RateLimiter(another(repo_with_children, AsynchronousTable))
    async with waiting.acquire("key-1", "gpt-4", {"rpm": 10}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await waiting.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()

    assert {"key-1", "project"} == {violation.entity_id for violation in exceeded.value.violations}


async def test_cascading_acquire_on_an_unavailable_store_raises_or_is_degraded(repo_with_children):
    """``on_unavailable`` decides which."""
    limiter = RateLimiter(another(repo_with_children, AsynchronousTable))
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    limiter.repository.scope.table.unavailable = True

    with pytest.raises(RateLimiterUnavailable):
        await limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__aenter__()
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
        assert [] == lease.entries


class UnreadableTable(FailingTable):
    """A table whose batch read fails after ``reads_left`` more; writes succeed."""

    def __init__(self, table):
        super().__init__(table)
        self.reads_left = None

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        self.unavailable = self.reads_left == 0
        try:
            return await super().batch_get(keys, consistent=consistent, until_s=until_s)
        finally:
            self.unavailable = False
            self.reads_left = None if self.reads_left is None else self.reads_left - 1


async def test_degraded_lease_with_an_unreadable_parent_leaves_the_child_unchanged(repo_with_children, limiter):
    """The lease has taken nothing, so an exception in it credits nothing."""
    limits = [RPM, TPM]
    client = RateLimiter(another(repo_with_children, UnreadableTable))
    client.repository.scope.table.reads_left = 1

    lease = client.acquire("key-1", "gpt-4", {"rpm": 4}, limits, on_unavailable="allow")
    await lease.__aenter__()
    await lease.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    assert lease.degraded
    assert 10 == (await left(limiter, "key-1"))["rpm"]


class FewWritesTable(FailingTable):
    """A table that becomes unavailable after ``writes_left`` more writes."""

    def __init__(self, table):
        super().__init__(table)
        self.writes_left = [True] * 100

    async def write(self, operation, until_s=None):
        # Two writes may run at the same time; popping from a list is atomic.
        try:
            self.writes_left.pop()
        except IndexError:
            self.unavailable = True
        return await super().write(operation, until_s)


@pytest.mark.parametrize("inline", [True, False])
async def test_store_lost_between_child_and_parent_raises_unavailable_or_is_degraded(repo_with_children, inline):
    """Tokens that cannot be credited stay debited; the caller gets the error or a degraded lease."""
    limiter = RateLimiter(another(repo_with_children, FewWritesTable))
    table = limiter.repository.scope.table
    table.inline = inline
    limiter = RateLimiter(limiter.repository)
    for entity_id in ("key-1", "key-2"):
        async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    table.writes_left = [True]

    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
    table.unavailable, table.writes_left = False, [True]
    with pytest.raises(RateLimiterUnavailable):
        await limiter.acquire("key-2", "gpt-4", {"rpm": 1}).__aenter__()


async def test_limit_removed_from_the_parent_during_a_lease_is_not_credited_more_than_taken(
    repo_with_children, limiter
):
    """A parent is credited only for what it was debited."""
    await repo_with_children.set_limits("project", [RPM, TPM])
    lease = limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10})
    await lease.__aenter__()
    await repo_with_children.set_limits("project", [TPM])
    await lease.consume(rpm=5)
    await lease.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    await repo_with_children.set_limits("project", [RPM, TPM])

    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "project")
    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "key-1")


@pytest.fixture
async def repo_without_limits(repo):
    """A key under a project; no limits are stored at all."""
    await repo.create_entity("project")
    for key in ("key-1", "key-2"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    return repo


async def test_limits_of_a_call_also_apply_to_a_parent_without_stored_limits(repo_without_limits, limiter):
    """Otherwise such a parent would limit nothing."""
    for key, amount in (("key-1", 6), ("key-2", 4)):
        async with limiter.acquire(key, "gpt-4", {"rpm": amount}, [RPM]):
            pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        await limiter.acquire("key-2", "gpt-4", {"rpm": 1}, [RPM]).__aenter__()

    assert ["project"] == [violation.entity_id for violation in exceeded.value.violations]
    assert {"rpm": 0} == await limiter.available("key-2", "gpt-4", [RPM])
    assert 5 < await limiter.time_until_available("key-2", "gpt-4", {"rpm": 1}, [RPM]) <= 6


async def test_limits_of_a_call_do_not_replace_the_stored_limits_of_a_parent(repo_without_limits, limiter):
    """An operator has chosen the limits of the parent."""
    await limiter.set_limits("project", [Limit.per_minute("rpm", 100)])

    async with limiter.acquire("key-1", "gpt-4", {"rpm": 6}, [RPM]):
        pass
    async with limiter.acquire("key-2", "gpt-4", {"rpm": 6}, [RPM]):
        pass

    assert 88 == (await left(limiter, "project"))["rpm"]


async def test_call_under_a_parent_without_limits_takes_from_the_child_alone(repo_without_limits, limiter):
    """A parent that no limits apply to admits everything."""
    await limiter.set_limits("key-1", [RPM])

    async with limiter.acquire("key-1", "gpt-4", {"rpm": 6}) as lease:
        entities = [entry.entity_id for entry in lease.entries]

    assert ["key-1"] == entities


async def test_limits_of_a_call_apply_to_a_parent_whose_stored_limits_were_just_deleted(repo_without_limits, limiter):
    """The client still has the deleted limits in its cache."""
    await limiter.set_limits("project", [Limit.per_minute("rpm", 50)])
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, [RPM]):
        pass
    other = RateLimiter(another(repo_without_limits))
    await other.delete_limits("project")
    async with other.acquire("key-1", "gpt-4", {"rpm": 1}, [RPM]):
        pass

    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, [RPM]) as lease:
        entities = [entry.entity_id for entry in lease.entries]

    assert ["key-1", "project"] == entities


async def test_limit_that_a_parent_gains_during_a_lease_is_given_back(repo_with_children, limiter):
    """It was taken from the parent by ``consume``, not on entry."""
    await limiter.set_limits("project", [RPM])
    lease = limiter.acquire("key-1", "gpt-4", {"rpm": 1})
    await lease.__aenter__()
    await limiter.set_limits("project", [RPM, TPM])
    await lease.consume(tpm=100)
    inside = await left(limiter, "project")
    await lease.__aexit__(OSError, OSError(), None)

    assert {"rpm": 9, "tpm": 900} == inside
    assert {"rpm": 10, "tpm": 1_000} == await left(limiter, "project")
