"""A rejected cascade reports every limit of both buckets, and costs no call if both views are fresh."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, ValidationError
from zae_limiter.caches.request import AcquireRequest

from .clients import CountingTable, FailingTable, another, own_level
from .shards import OtherClient

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)
PROJECT_RPM = Limit.per_hour("rpm", 60)
CHILD, PARENT = "user-1", "project"


class AsynchronousTable(CountingTable):
    """A table whose writes may be suspended, as those of a server are."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


@pytest.fixture(params=[CountingTable, AsynchronousTable], ids=["in place", "distant"])
def client(request, repo):
    """A limiter with its own cache; its table counts calls."""
    return RateLimiter(another(repo, request.param))


@pytest.fixture(autouse=True)
async def _family(repo):
    """A child that refills in seconds, under a project that refills one token per minute."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity(PARENT)
    await repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
    await repo.set_limits(PARENT, [PROJECT_RPM])


def table_of(limiter):
    return limiter.repository.scope.table


async def drain(repo, entity_id, amount):
    """Take from one bucket only, as another client."""
    other = RateLimiter(another(repo))
    client = other._client
    request = AcquireRequest((entity_id, "gpt-4"), {"rpm": amount}, None, client.until_s(), partly=True)
    await client.carry_out(await client.prepare(request))


async def take(limiter, amount, **options):
    async with limiter.acquire(CHILD, "gpt-4", {"rpm": amount}, **options):
        pass


async def rejected(limiter, amount=1, **options):
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, amount, **options)
    return caught.value


def statuses_of(error):
    return [(one.entity_id, one.limit_name, one.available, one.exceeded) for one in error.statuses]


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_rejection_by_child_and_parent_reports_both_and_the_longest_wait(repo, client, clock, warm):
    """The child would be ready in a second, the parent in a minute."""
    if warm:
        await take(client, 1)
        clock.advance(60_000)
    await drain(repo, CHILD, 60)
    await drain(repo, PARENT, 60)
    error = await rejected(client)

    assert [(CHILD, "rpm", 0, True), (CHILD, "tpm", 6_000, False), (PARENT, "rpm", 0, True)] == statuses_of(error)
    assert 30.0 < error.retry_after_seconds <= 60.0
    assert PARENT == error.primary_violation.entity_id


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_rejection_by_the_child_reports_the_parent_as_not_exceeded(repo, client, warm):
    """The statuses include all limits that were checked."""
    if warm:
        await take(client, 1)
    await drain(repo, CHILD, 59)
    error = await rejected(client, 5)

    left = 59 if warm else 60
    assert [
        (CHILD, "rpm", 0 if warm else 1, True),
        (CHILD, "tpm", 6_000, False),
        (PARENT, "rpm", left, False),
    ] == statuses_of(error)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_rejection_by_the_parent_reports_the_child_as_not_exceeded(repo, client, warm):
    """The child keeps its tokens."""
    if warm:
        await take(client, 1)
    await drain(repo, PARENT, 59)
    error = await rejected(client, 5)

    left = 59 if warm else 60
    assert [(CHILD, "rpm", left, False), (CHILD, "tpm", 6_000, False), (PARENT, "rpm", left - 59, True)] == statuses_of(
        error
    )
    assert left == (await own_level(client, CHILD))["rpm"]


async def test_rejection_by_a_fresh_view_of_the_parent_makes_no_calls(repo, client):
    """The child has enough tokens, and is not written."""
    await repo.set_limits(CHILD, [Limit.per_minute("rpm", 600), TPM])
    await take(client, 50)
    before = await own_level(RateLimiter(repo), CHILD)
    table_of(client).drain()
    errors = [await rejected(client, 20) for _ in range(5)]

    assert [] == table_of(client).drain()
    assert [3] * 5 == [len(error.statuses) for error in errors]
    assert before == await own_level(RateLimiter(repo), CHILD)


async def test_rejection_by_a_fresh_view_of_the_child_makes_no_calls(repo, client):
    """The view of the parent is fresh too, since both were just written."""
    await repo.set_limits(PARENT, [Limit.per_hour("rpm", 600)])
    await take(client, 50)
    table_of(client).drain()
    error = await rejected(client, 20)

    assert [] == table_of(client).drain()
    assert [(CHILD, "rpm", 10, True), (CHILD, "tpm", 6_000, False), (PARENT, "rpm", 550, False)] == statuses_of(error)


async def test_new_child_of_an_exhausted_parent_is_read_but_not_written(repo, client):
    """The parent's view is fresh from another child, so the request is rejected after a read."""
    await repo.create_entity("user-2", parent_id=PARENT, cascade=True)
    await take(client, 50)
    table_of(client).drain()
    with pytest.raises(RateLimitExceeded):
        async with client.acquire("user-2", "gpt-4", {"rpm": 20}):
            pass

    assert {"batch_get", "get"} >= set(table_of(client).drain())


async def test_rejection_with_a_stale_view_of_the_parent_reads_it_once(repo, client, clock):
    """The parent was seen two seconds ago, the child just now."""
    await take(client, 50)
    clock.advance(2_000)
    await client._client.buckets.look(((CHILD, "gpt-4"), 0), None, client._client.until_s())
    table_of(client).drain()
    error = await rejected(client, 20)

    assert ["get"] == table_of(client).drain()
    assert [CHILD, CHILD, PARENT] == [one.entity_id for one in error.statuses]


async def test_rejected_lease_consume_reports_child_and_parent(client):
    """A consume is checked like an acquire."""
    async with client.acquire(CHILD, "gpt-4", {"rpm": 50}) as lease:
        with pytest.raises(RateLimitExceeded) as caught:
            await lease.consume(rpm=20)

    assert [CHILD, CHILD, PARENT] == [one.entity_id for one in caught.value.statuses]


async def test_rejection_with_passed_limits_reports_the_parents_stored_limits(repo, client):
    """Passed limits replace the child's; the parent keeps its stored ones."""
    await drain(repo, PARENT, 60)
    error = await rejected(client, limits=[Limit.per_minute("rpm", 5)])

    assert [(CHILD, "rpm", 5, False), (PARENT, "rpm", 0, True)] == statuses_of(error)


async def test_rejection_by_a_sharded_parent_with_fresh_views_makes_no_calls(repo, client):
    """The sum of the cached shard levels is enough to reject."""
    await take(client, 1)
    await drain(repo, PARENT, 57)
    other = OtherClient(repo)._client
    place = ((PARENT, "gpt-4"), 0)
    await other.shards.split(place, await other.buckets.look(place, None, other.until_s()), other.until_s())
    await rejected(client, 20)
    table_of(client).drain()
    error = await rejected(client, 20)

    assert [] == table_of(client).drain()
    assert [(CHILD, "rpm", 59, False), (CHILD, "tpm", 6_000, False), (PARENT, "rpm", 2, True)] == statuses_of(error)


async def test_rejection_omits_a_parent_without_limits(repo, client):
    """Nothing is taken from such a parent."""
    await repo.delete_limits(PARENT)
    await repo.delete_system_defaults()
    await repo.set_limits(CHILD, [RPM])
    await drain(repo, CHILD, 60)

    assert [(CHILD, "rpm", 0, True)] == statuses_of(await rejected(client))


async def test_rejection_with_an_unreadable_parent_reports_the_cached_statuses(repo, clock):
    """The child's rejection is reported even if the parent cannot be read."""
    limiter = RateLimiter(another(repo, FailingTable))
    await take(limiter, 60)
    clock.advance(1_500)
    await limiter._client.buckets.look(((CHILD, "gpt-4"), 0), None, limiter._client.until_s())
    table_of(limiter).unavailable = True

    error = await rejected(limiter, 30)
    assert [CHILD, CHILD, PARENT] == [one.entity_id for one in error.statuses]
    limiter._client.caches.of((PARENT, "gpt-4")).view = None
    error = await rejected(limiter, 30)
    assert [CHILD, CHILD] == [one.entity_id for one in error.statuses]


async def test_available_of_a_cascading_child_is_the_minimum_of_child_and_parent(repo, client):
    """Limits that only the parent has are left out."""
    await repo.set_limits(PARENT, [PROJECT_RPM, Limit.per_hour("other", 5)])
    await drain(repo, PARENT, 55)

    assert {"rpm": 5, "tpm": 6_000} == await client.available(CHILD, "gpt-4")
    await drain(repo, CHILD, 58)
    assert {"rpm": 2, "tpm": 6_000} == await client.available(CHILD, "gpt-4")
    assert 5 == (await client.available(PARENT, "gpt-4"))["rpm"]


async def test_time_until_available_of_a_cascading_child_is_the_longest_wait(repo, client):
    """Every bucket that an acquire debits must have the tokens."""
    await drain(repo, PARENT, 60)
    await drain(repo, CHILD, 60)

    assert 30.0 < await client.time_until_available(CHILD, "gpt-4", {"rpm": 1}) <= 60.0
    assert 0.0 == await client.time_until_available(CHILD, "gpt-4", {"tpm": 1})
    with pytest.raises(ValidationError):
        await client.time_until_available(CHILD, "gpt-4", {"rpm": 61})
