"""Names with slashes, pipes, colons and other signs, from limits through acquire to reports."""

import pytest

from tests.real_names import ALIKE, ENTITY, PARENT, RESOURCES
from zae_limiter import Limit, RateLimitExceeded

LIMITS = [Limit.per_day("rpd", 10)]
OWN = [Limit.per_day("rpd", 7)]

every_resource = pytest.mark.parametrize("resource", RESOURCES)


async def take(limiter, entity_id, resource, amount):
    """Acquire tokens and keep them."""
    async with limiter.acquire(entity_id, resource, {"rpd": amount}):
        pass


@every_resource
async def test_a_request_with_signs_in_its_names_takes_from_its_bucket(limiter, resource):
    """A second request finds the same bucket, and the rejection names it."""
    await limiter.set_resource_defaults(resource, LIMITS)
    await take(limiter, ENTITY, resource, 6)
    with pytest.raises(RateLimitExceeded) as rejected:
        await take(limiter, ENTITY, resource, 6)

    assert {"rpd": 4} == await limiter.available(ENTITY, resource)
    assert [(ENTITY, resource)] == [(one.entity_id, one.resource) for one in rejected.value.statuses]
    assert [(ENTITY, resource, 4)] == [
        (one.entity_id, one.resource, one.tokens) for one in await limiter.get_buckets(ENTITY)
    ]


@every_resource
async def test_a_cascade_with_signs_in_its_names_takes_from_both_buckets(limiter, resource):
    """Parent and child are found by their ids."""
    await limiter.set_system_defaults(LIMITS)
    await limiter.create_entity(PARENT)
    await limiter.create_entity(ENTITY, parent_id=PARENT, cascade=True)
    await take(limiter, ENTITY, resource, 3)
    capacity = await limiter.get_resource_capacity(resource, "rpd")

    assert [ENTITY] == [child.id for child in await limiter.get_children(PARENT)]
    assert {ENTITY: 7, PARENT: 7} == {one.entity_id: one.available for one in capacity.entities}


@every_resource
async def test_stored_limits_with_signs_in_their_names_are_found_and_listed(limiter, resource):
    """The most specific level applies."""
    await limiter.set_resource_defaults(resource, LIMITS)
    await limiter.set_limits(ENTITY, OWN, resource)

    assert [resource] == await limiter.list_resources_with_defaults()
    assert [resource] == await limiter.list_resources_with_entity_configs()
    assert ([ENTITY], None) == await limiter.list_entities_with_custom_limits(resource)
    assert (OWN, "entity") == (await limiter.resolve_limits(ENTITY, resource))[::2]
    assert (LIMITS, "resource") == (await limiter.resolve_limits(PARENT, resource))[::2]


@every_resource
async def test_a_list_with_signs_in_its_names_continues_after_its_cursor(limiter, resource):
    """A cursor contains the resource and the last entity."""
    ids = sorted([ENTITY, PARENT, "team/a", "team/a|", "team/a|b/c"])
    for entity_id in ids:
        await limiter.set_limits(entity_id, OWN, resource)
    found, cursor = await limiter.list_entities_with_custom_limits(resource, 2)
    rest, end = await limiter.list_entities_with_custom_limits(resource, 9, cursor)

    assert (ids, None) == (found + rest, end)


@every_resource
async def test_usage_with_signs_in_its_names_is_found_by_entity_and_resource(limiter, resource):
    """Both filters find the same windows."""
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, ENTITY, resource, 3)
    by_entity, _ = await limiter.get_usage_snapshots(ENTITY, resource, "daily")
    by_resource, _ = await limiter.get_usage_snapshots(resource=resource, window_type="daily")

    assert [(ENTITY, resource, {"rpd": 3})] == [(one.entity_id, one.resource, one.counters) for one in by_entity]
    assert by_entity == by_resource


@every_resource
async def test_audit_events_with_signs_in_their_names_are_found(limiter, resource):
    """Those of a resource are apart from those of an entity."""
    await limiter.set_resource_defaults(resource, LIMITS)
    await limiter.set_limits(ENTITY, OWN, resource)
    events = [
        event
        for audit_id in (ENTITY, f"$RESOURCE:{resource}", resource.lstrip("@"))
        for event in await limiter.get_audit_events(audit_id)
    ]

    assert [
        ("limits_set", ENTITY, resource),
        ("resource_defaults_set", f"$RESOURCE:{resource}", resource),
    ] == [(event.action, event.entity_id, event.resource) for event in events]


async def test_names_that_begin_alike_are_kept_apart(limiter):
    """Each bucket, limit and snapshot belongs to exactly one name."""
    for number, name in enumerate(ALIKE, 1):
        await limiter.set_resource_defaults(name, [Limit.per_day("rpd", 100 + number)])
        await take(limiter, name, name, number)
        await take(limiter, ENTITY, name, number)

    assert sorted(ALIKE) == await limiter.list_resources_with_defaults()
    for number, name in enumerate(ALIKE, 1):
        assert [100 + number] == [one.capacity for one in await limiter.get_buckets(name)]
        assert [100 + number] == [one.capacity for one in await limiter.get_buckets(ENTITY, name)]
        found, _ = await limiter.get_usage_snapshots(ENTITY, name, "daily")
        assert [(name, number)] == [(one.resource, one.counters["rpd"]) for one in found]
        found, _ = await limiter.get_usage_snapshots(name, window_type="daily")
        assert [(name, number)] == [(one.resource, one.counters["rpd"]) for one in found]


async def test_a_purge_of_a_namespace_leaves_alike_names_of_others(repo, limiter):
    """A name may contain the id of another namespace."""
    purged = await repo.register_namespace("purged")
    hostile = f"a/{purged}/BUCKET"
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, hostile, f"@{purged}/ENTITY", 3)
    await repo.delete_namespace("purged")
    await repo.purge_namespace(purged)

    assert [7] == [one.tokens for one in await limiter.get_buckets(hostile)]
