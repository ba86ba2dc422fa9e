"""A blocked entity is refused with the reason, and so is every entity that cascades to it."""  # generated from _async by tools/mirror.py; do not edit

from datetime import UTC, datetime, timedelta

import pytest

from zae_limiter import EntityBlock, EntityBlockedError, EntityNotFoundError, Limit, SyncRateLimiter, ValidationError

from .clients import START_MS, AsynchronousTable, another, own_level

RPM = Limit.per_minute("rpm", 60)
NOW = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
def project(repo):
    """A key under a project."""
    repo.set_system_defaults([RPM])
    repo.create_entity("project")
    repo.create_entity("key", parent_id="project", cascade=True)
    return repo


def take(limiter, entity_id="key", resource="gpt-4"):
    with limiter.acquire(entity_id, resource, {"rpm": 1}):
        pass


@pytest.mark.parametrize("blocked", ["key", "project"])
def test_blocked_entity_and_its_children_are_refused_with_the_reason(project, limiter, blocked):
    """Nothing is taken from any bucket."""
    take(limiter)
    project.block_entity(blocked, reason="unpaid invoice")
    limiter.invalidate_config_cache()

    with pytest.raises(EntityBlockedError, match="unpaid invoice") as caught:
        take(limiter)

    assert (blocked, None, "unpaid invoice", None) == caught.value.args
    # ``available`` reads the buckets themselves: both still hold what the first request left.
    assert [59, 59] == [(own_level(SyncRateLimiter(project), one))["rpm"] for one in ("key", "project")]


def test_refusal_of_a_blocked_entity_makes_no_call(project):
    """The block is cached with the limits."""
    other = another(project, AsynchronousTable)
    project.block_entity("project")
    limiter = SyncRateLimiter(other)
    with pytest.raises(EntityBlockedError):
        take(limiter)
    other.scope.table.drain()

    with pytest.raises(EntityBlockedError):
        take(limiter)

    assert [] == other.scope.table.drain()


def test_block_of_a_resource_leaves_others_open(project, limiter):
    """Each resource has at most one block."""
    project.block_entity("key", "gpt-4", reason="abuse")

    take(limiter, resource="small")
    with pytest.raises(EntityBlockedError, match="for resource 'gpt-4'"):
        take(limiter)


def test_block_ends_by_the_clock_of_the_server(project, limiter, clock):
    """The end is not part of the block."""
    until = NOW + timedelta(seconds=30)
    project.block_entity("key", until=until)

    with pytest.raises(EntityBlockedError) as caught:
        take(limiter)
    clock.advance(30_000)
    take(limiter)

    assert until.replace(microsecond=123_000) == caught.value.until


def test_block_reaches_other_clients_within_the_lifetime_of_their_limits(project, clock):
    """They read the record again with their limits."""
    other = SyncRateLimiter(another(project))
    take(other)
    project.block_entity("project")

    take(other)
    clock.advance(60_000)
    with pytest.raises(EntityBlockedError):
        take(other)


def test_unblocked_entity_is_admitted(project, limiter):
    """Without a resource, all blocks are removed."""
    project.block_entity("key", "gpt-4")
    project.block_entity("key")
    project.unblock_entity("key")
    project.unblock_entity("key")
    limiter.invalidate_config_cache()

    take(limiter)

    events = [event.action for event in project.get_audit_events("key")]
    assert ["entity_unblocked", "entity_blocked", "entity_blocked", "entity_created"] == events


def test_blocks_are_shown_with_the_entity_and_in_lists(project):
    """So an operator finds them."""
    project.block_entity("key", "gpt-4", reason="abuse", principal="ops")

    found = project.get_entity("key")
    listed, _ = project.list_entities()
    assert (EntityBlock("gpt-4", "abuse", None),) == found.blocks
    assert {"key": 1, "project": 0} == {one.id: len(one.blocks) for one in listed}
    assert ["blocks"] == list((project.get_version_record()).kinds)
    assert ("ops", {"reason": "abuse", "until": None}) == (
        (project.get_audit_events("key"))[0].principal,
        (project.get_audit_events("key"))[0].details,
    )


def test_available_of_a_blocked_entity_is_zero_and_no_time_is_told(project, limiter):
    """Waiting does not help."""
    project.block_entity("project")

    assert {"rpm": 0} == limiter.available("key", "gpt-4")
    with pytest.raises(EntityBlockedError):
        limiter.time_until_available("key", "gpt-4", {"rpm": 1})


def test_open_lease_of_a_blocked_entity_settles(project, limiter):
    """A block refuses new requests only."""
    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        project.block_entity("key")
        limiter.invalidate_config_cache()
        lease.adjust(rpm=4)

    assert 55 == (own_level(SyncRateLimiter(project), "key"))["rpm"]


def test_unknown_entity_cannot_be_blocked(project):
    """An entity has to be created first."""
    with pytest.raises(EntityNotFoundError):
        project.block_entity("nobody")
    with pytest.raises(EntityNotFoundError):
        project.unblock_entity("nobody")


def test_block_that_ends_in_the_past_is_an_error(project):
    """It would block nothing."""
    with pytest.raises(ValidationError, match="in the future"):
        project.block_entity("key", until=NOW - timedelta(seconds=1))
