"""Several entities and resources in one acquire: all or none, and one lease."""

import pytest

from zae_limiter import (
    ALL_RESOURCES,
    Also,
    AmountExceedsCapacityError,
    EntityBlockedError,
    LeaseExpiredError,
    Limit,
    NoLimitsInForceError,
    RateLimiter,
    RateLimitExceeded,
    TooManyBucketsError,
    ValidationError,
)

from .clients import AsynchronousTable, FailingTable, another, own_level

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
async def project(repo):
    """Two keys under one project."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity("project")
    for key in ("key-1", "key-2"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    return repo


async def left(repo, entity, resource="gpt-4"):
    """Return the requests left of an entity's own bucket."""
    return (await own_level(RateLimiter(repo), entity, resource))["rpm"]


async def test_all_requests_are_taken_for(project, limiter):
    """Each bucket gives what its request asks."""
    also = [Also("tool", "search", {"rpm": 3}), Also("user", "gpt-4", {"rpm": 2, "tpm": 10})]

    async with limiter.acquire("alone", "gpt-4", {"rpm": 1}, also=also) as lease:
        assert [{"rpm": 3}, {"rpm": 2, "tpm": 10}] == [part.consumed for part in lease.also]
        assert {"rpm": 1} == lease.consumed
        assert {("alone", "gpt-4"), ("tool", "search"), ("user", "gpt-4")} == {
            (one.entity_id, one.resource) for one in lease.entries
        }

    assert [59, 57, 58] == [
        await left(project, "alone"),
        await left(project, "tool", "search"),
        await left(project, "user"),
    ]


async def test_bucket_that_occurs_twice_gives_the_sum(project, limiter):
    """Both keys cascade to the project."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 5})]) as lease:
        consumed = {one.entity_id: one.consumed for one in lease.entries}

    assert {"key-1": {"rpm": 2}, "project": {"rpm": 7}, "key-2": {"rpm": 5}} == consumed
    assert [58, 55, 53] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def test_sum_of_one_bucket_must_fit(project, limiter):
    """Each request by itself would be admitted."""
    await project.set_limits("project", [Limit.per_minute("rpm", 100)])
    async with limiter.acquire("project", "gpt-4", {"rpm": 50}):
        pass
    with pytest.raises(RateLimitExceeded) as caught:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 30}, also=[Also("key-2", "gpt-4", {"rpm": 30})]):
            pass

    assert ("project", 60, 50) == (
        caught.value.primary_violation.entity_id,
        caught.value.primary_violation.requested,
        caught.value.primary_violation.available,
    )
    assert [60, 60, 50] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def test_rejection_by_any_bucket_takes_nothing(project, limiter):
    """The error has the statuses of all buckets."""
    await project.set_limits("tool", [Limit.per_minute("rpm", 1)])
    also = [Also("tool", "search", {"rpm": 1})]
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=also):
        pass

    with pytest.raises(RateLimitExceeded) as caught:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=also):
            pass

    buckets = [(one["entity_id"], one["resource"]) for one in caught.value.as_dict()["buckets"]]
    assert [("key-1", "gpt-4"), ("project", "gpt-4"), ("tool", "search")] == buckets
    assert "tool" == caught.value.primary_violation.entity_id
    assert [59, 59] == [await left(project, "key-1"), await left(project, "project")]


async def test_each_part_is_changed_by_its_own_methods(project, limiter):
    """A change of the first request reaches its ancestors, and that of another one its own."""
    also = [Also("key-2", "gpt-4", {"rpm": 5})]
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=also) as lease:
        await lease.adjust(rpm=1)
        await lease.also[0].adjust(rpm=-2)
        await lease.also[0].consume(rpm=1)
        await lease.also[0].release(rpm=1)
        assert ({"rpm": 3}, {"rpm": 3}) == (lease.consumed, lease.also[0].consumed)
        assert lease.adjusted

    assert [57, 57, 54] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def fail(limiter, *, commit):
    """Adjust the second request, and raise inside the block of the lease."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 5})]) as lease:
        await lease.also[0].adjust(rpm=1)
        if commit:
            await lease.commit()
        assert commit is lease.also[0].committed
        raise KeyError


async def test_exception_gives_everything_back(project, limiter):
    """Also what the sum of two requests has taken."""
    with pytest.raises(KeyError):
        await fail(limiter, commit=False)

    assert [60, 60, 60] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def test_committed_lease_keeps_all_parts(project, limiter):
    """The adjustments are written."""
    with pytest.raises(KeyError):
        await fail(limiter, commit=True)

    assert [58, 54, 52] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def test_bucket_that_occurs_twice_is_settled_with_once(project):
    """The changes of both requests travel together."""
    other = another(project, AsynchronousTable)
    limiter, table = RateLimiter(other), other.scope.table
    also = [Also("key-2", "gpt-4", {"rpm": 5})]
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=also) as lease:
        await lease.adjust(rpm=1)
        await lease.also[0].adjust(rpm=1)
        table.drain()

    assert ["write"] * 3 == table.drain()
    assert [57, 54, 51] == [await left(project, one) for one in ("key-1", "key-2", "project")]


async def test_parts_end_with_the_lease(project, limiter):
    """Their methods then raise."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 5})]) as lease:
        part = lease.also[0]

    with pytest.raises(LeaseExpiredError):
        await part.adjust(rpm=1)


async def test_limits_of_the_call_do_not_apply_to_others(repo, limiter):
    """Each of the others needs stored limits."""
    with pytest.raises(NoLimitsInForceError, match="tool"):
        async with limiter.acquire("key", "gpt-4", {"rpm": 1}, [RPM], also=[Also("tool", "search", {"rpm": 1})]):
            pass


async def test_limits_across_resources_count_every_resource_of_the_call(repo, limiter):
    """The bucket across resources occurs twice."""
    await repo.set_system_defaults([RPM])
    await repo.set_limits("key", [Limit.per_minute("rpm", 10)], resource=ALL_RESOURCES)

    async with limiter.acquire("key", "gpt-4", {"rpm": 3}, also=[Also("key", "search", {"rpm": 4})]):
        pass

    assert {"rpm": 3} == {one.limit_name: one.tokens for one in await repo.get_buckets("key", ALL_RESOURCES)}


async def test_same_bucket_twice_is_one_bucket(project, limiter):
    """The request is for the sum."""
    async with limiter.acquire(
        "key-1", "gpt-4", {"rpm": 3}, also=[Also("key-1", "gpt-4", {"rpm": 4, "tpm": 5})]
    ) as lease:
        assert {"key-1": {"rpm": 7, "tpm": 5}, "project": {"rpm": 7, "tpm": 5}} == {
            one.entity_id: one.consumed for one in lease.entries
        }

    assert [53, 53] == [await left(project, "key-1"), await left(project, "project")]


async def test_limits_of_the_call_apply_to_another_request_of_the_same_bucket(repo, limiter):
    """Stored limits have one more name. Its amount would be charged to nothing, so it is an error."""
    await repo.set_limits("user", [RPM, Limit.per_minute("tpm", 6_000)])
    limits = [Limit.per_minute("rpm", 10)]

    with pytest.raises(ValidationError, match="the limits in force are: rpm"):
        async with limiter.acquire("user", "gpt-4", {"rpm": 1}, limits, also=[Also("user", "gpt-4", {"tpm": 500})]):
            pass
    async with limiter.acquire("user", "gpt-4", {"rpm": 1}, limits, also=[Also("user", "gpt-4", {"rpm": 2})]) as lease:
        await lease.also[0].consume(rpm=3)
        left = {status.limit_name: status.available for status in lease.statuses}

    assert {"rpm": 4} == left


async def test_blocked_entity_of_another_request_refuses_all(project, limiter):
    """Nothing is taken."""
    await project.block_entity("key-2")

    with pytest.raises(EntityBlockedError, match="key-2"):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=[Also("key-2", "gpt-4", {"rpm": 1})]):
            pass

    assert 60 == await left(project, "key-1")


async def test_amount_above_a_capacity_names_the_statuses_of_all_buckets(project, limiter):
    """It can never be admitted."""
    with pytest.raises(AmountExceedsCapacityError) as caught:
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=[Also("tool", "search", {"rpm": 61})]):
            pass

    assert {"key-1", "project", "tool"} == {status.entity_id for status in caught.value.statuses}


async def test_more_than_sixteen_buckets_are_an_error(project, limiter):
    """Nothing is taken."""
    also = [Also(f"tool-{number}", "search", {"rpm": 1}) for number in range(15)]

    with pytest.raises(TooManyBucketsError, match="17 buckets"):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=also):
            pass


@pytest.mark.parametrize(
    "also",
    [
        5,
        "ab",
        [("key-2", "gpt-4", {"rpm": 1})],
        [Also("key-2", "gpt-4", {})],
        [Also("key-2", "gpt-4", {"rpm": -1})],
        [Also("key-2", "gpt-4", {"rpm": 1.5})],
        [Also("key-2", "gpt-4", {"nope": 1})],
        [Also("key 2", "gpt-4", {"rpm": 1})],
        [Also("key-2", ALL_RESOURCES, {"rpm": 1})],
    ],
)
async def test_invalid_requests_are_an_error(project, limiter, also):
    """Nothing is taken."""
    with pytest.raises(ValidationError):
        async with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, also=also):
            pass

    assert 60 == await left(project, "key-1")


async def test_unavailable_store_with_allow_degrades_the_whole_lease(project):
    """All parts accept adjustments, which are not written."""
    other = another(project, FailingTable)
    other.scope.table.unavailable = True

    also = [Also("key-2", "gpt-4", {"rpm": 1})]
    async with RateLimiter(other).acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow", also=also) as lease:
        await lease.also[0].adjust(rpm=1)

    assert lease.degraded
    assert [] == lease.entries


async def test_statuses_have_every_bucket_once(project, limiter):
    """The project occurs in both requests."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 5})]) as lease:
        statuses = {(one.entity_id, one.limit_name): one.available for one in lease.statuses}

    assert {"key-1": 58, "project": 53, "key-2": 55} == {
        entity: available for (entity, name), available in statuses.items() if name == "rpm"
    }


async def test_lease_without_other_requests_has_no_parts(project, limiter):
    """The usual case."""
    async with limiter.acquire("key-1", "gpt-4", {"rpm": 2}, also=[]) as lease:
        assert () == lease.also


async def test_long_list_is_refused_before_all_of_it_was_read(project):
    """Each request is read until there are too many buckets."""
    other = another(project, AsynchronousTable)
    also = [Also(f"key-{number}", "gpt-4", {"rpm": 1}) for number in range(200)]

    with pytest.raises(TooManyBucketsError):
        async with RateLimiter(other).acquire("key", "gpt-4", {"rpm": 1}, also=also):
            pass

    assert 17 == len(other.scope.table.drain())
