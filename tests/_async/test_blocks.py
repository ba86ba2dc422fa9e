"""A blocked entity is refused with the reason, and so is every entity that cascades to it."""

from datetime import UTC, datetime, timedelta

import pytest

from zae_limiter import EntityBlock, EntityBlockedError, EntityNotFoundError, Limit, RateLimiter, ValidationError

from .clients import START_MS, AsynchronousTable, another, own_level

RPM = Limit.per_minute("rpm", 60)
NOW = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
async def project(repo):
    """A key under a project."""
    await repo.set_system_defaults([RPM])
    await repo.create_entity("project")
    await repo.create_entity("key", parent_id="project", cascade=True)
    return repo


async def take(limiter, entity_id="key", resource="gpt-4"):
    async with limiter.acquire(entity_id, resource, {"rpm": 1}):
        pass


@pytest.mark.parametrize("blocked", ["key", "project"])
async def test_blocked_entity_and_its_children_are_refused_with_the_reason(project, limiter, blocked):
    """Nothing is taken from any bucket."""
    await take(limiter)
    await project.block_entity(blocked, reason="unpaid invoice")
    await limiter.invalidate_config_cache()

    with pytest.raises(EntityBlockedError, match="unpaid invoice") as caught:
        await take(limiter)

    assert (blocked, None, "unpaid invoice", None) == caught.value.args
    # ``available`` reads the buckets themselves: both still hold what the first request left.
    assert [59, 59] == [(await own_level(RateLimiter(project), one))["rpm"] for one in ("key", "project")]


async def test_refusal_of_a_blocked_entity_makes_no_call(project):
    """The block is cached with the limits."""
    other = another(project, AsynchronousTable)
    await project.block_entity("project")
    limiter = RateLimiter(other)
    with pytest.raises(EntityBlockedError):
        await take(limiter)
    other.scope.table.drain()

    with pytest.raises(EntityBlockedError):
        await take(limiter)

    assert [] == other.scope.table.drain()


async def test_block_of_a_resource_leaves_others_open(project, limiter):
    """Each resource has at most one block."""
    await project.block_entity("key", "gpt-4", reason="abuse")

    await take(limiter, resource="small")
    with pytest.raises(EntityBlockedError, match="for resource 'gpt-4'"):
        await take(limiter)


async def test_block_ends_by_the_clock_of_the_server(project, limiter, clock):
    """The end is not part of the block."""
    until = NOW + timedelta(seconds=30)
    await project.block_entity("key", until=until)

    with pytest.raises(EntityBlockedError) as caught:
        await take(limiter)
    clock.advance(30_000)
    await take(limiter)

    assert until.replace(microsecond=123_000) == caught.value.until


async def test_block_reaches_other_clients_within_the_lifetime_of_their_limits(project, clock):
    """They read the record again with their limits."""
    other = RateLimiter(another(project))
    await take(other)
    await project.block_entity("project")

    await take(other)
    clock.advance(60_000)
    with pytest.raises(EntityBlockedError):
        await take(other)


async def test_unblocked_entity_is_admitted(project, limiter):
    """Without a resource, all blocks are removed."""
    await project.block_entity("key", "gpt-4")
    await project.block_entity("key")
    await project.unblock_entity("key")
    await project.unblock_entity("key")
    await limiter.invalidate_config_cache()

    await take(limiter)

    events = [event.action for event in await project.get_audit_events("key")]
    assert ["entity_unblocked", "entity_blocked", "entity_blocked", "entity_created"] == events


async def test_blocks_are_shown_with_the_entity_and_in_lists(project):
    """So an operator finds them."""
    await project.block_entity("key", "gpt-4", reason="abuse", principal="ops")

    found = await project.get_entity("key")
    listed, _ = await project.list_entities()
    assert (EntityBlock("gpt-4", "abuse", None),) == found.blocks
    assert {"key": 1, "project": 0} == {one.id: len(one.blocks) for one in listed}
    assert ["blocks"] == list((await project.get_version_record()).kinds)
    assert ("ops", {"reason": "abuse", "until": None}) == (
        (await project.get_audit_events("key"))[0].principal,
        (await project.get_audit_events("key"))[0].details,
    )


async def test_available_of_a_blocked_entity_is_zero_and_no_time_is_told(project, limiter):
    """Waiting does not help."""
    await project.block_entity("project")

    assert {"rpm": 0} == await limiter.available("key", "gpt-4")
    with pytest.raises(EntityBlockedError):
        await limiter.time_until_available("key", "gpt-4", {"rpm": 1})


async def test_open_lease_of_a_blocked_entity_settles(project, limiter):
    """A block refuses new requests only."""
    async with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        await project.block_entity("key")
        await limiter.invalidate_config_cache()
        await lease.adjust(rpm=4)

    assert 55 == (await own_level(RateLimiter(project), "key"))["rpm"]


async def test_unknown_entity_cannot_be_blocked(project):
    """An entity has to be created first."""
    with pytest.raises(EntityNotFoundError):
        await project.block_entity("nobody")
    with pytest.raises(EntityNotFoundError):
        await project.unblock_entity("nobody")


async def test_block_that_ends_in_the_past_is_an_error(project):
    """It would block nothing."""
    with pytest.raises(ValidationError, match="in the future"):
        await project.block_entity("key", until=NOW - timedelta(seconds=1))
