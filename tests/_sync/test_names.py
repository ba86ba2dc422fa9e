"""Names with slashes, pipes, colons and other signs, from limits through acquire to reports."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from tests.real_names import ALIKE, ENTITY, PARENT, RESOURCES
from zae_limiter import Limit, RateLimitExceeded

LIMITS = [Limit.per_day("rpd", 10)]
OWN = [Limit.per_day("rpd", 7)]

every_resource = pytest.mark.parametrize("resource", RESOURCES)


def take(limiter, entity_id, resource, amount):
    """Acquire tokens and keep them."""
    with limiter.acquire(entity_id, resource, {"rpd": amount}):
        pass


@every_resource
def test_a_request_with_signs_in_its_names_takes_from_its_bucket(limiter, resource):
    """A second request finds the same bucket, and the rejection names it."""
    limiter.set_resource_defaults(resource, LIMITS)
    take(limiter, ENTITY, resource, 6)
    with pytest.raises(RateLimitExceeded) as rejected:
        take(limiter, ENTITY, resource, 6)

    assert {"rpd": 4} == limiter.available(ENTITY, resource)
    assert [(ENTITY, resource)] == [(one.entity_id, one.resource) for one in rejected.value.statuses]
    assert [(ENTITY, resource, 4)] == [
        (one.entity_id, one.resource, one.tokens) for one in limiter.get_buckets(ENTITY)
    ]


@every_resource
def test_a_cascade_with_signs_in_its_names_takes_from_both_buckets(limiter, resource):
    """Parent and child are found by their ids."""
    limiter.set_system_defaults(LIMITS)
    limiter.create_entity(PARENT)
    limiter.create_entity(ENTITY, parent_id=PARENT, cascade=True)
    take(limiter, ENTITY, resource, 3)
    capacity = limiter.get_resource_capacity(resource, "rpd")

    assert [ENTITY] == [child.id for child in limiter.get_children(PARENT)]
    assert {ENTITY: 7, PARENT: 7} == {one.entity_id: one.available for one in capacity.entities}


@every_resource
def test_stored_limits_with_signs_in_their_names_are_found_and_listed(limiter, resource):
    """The most specific level applies."""
    limiter.set_resource_defaults(resource, LIMITS)
    limiter.set_limits(ENTITY, OWN, resource)

    assert [resource] == limiter.list_resources_with_defaults()
    assert [resource] == limiter.list_resources_with_entity_configs()
    assert ([ENTITY], None) == limiter.list_entities_with_custom_limits(resource)
    assert (OWN, "entity") == (limiter.resolve_limits(ENTITY, resource))[::2]
    assert (LIMITS, "resource") == (limiter.resolve_limits(PARENT, resource))[::2]


@every_resource
def test_a_list_with_signs_in_its_names_continues_after_its_cursor(limiter, resource):
    """A cursor contains the resource and the last entity."""
    ids = sorted([ENTITY, PARENT, "team/a", "team/a|", "team/a|b/c"])
    for entity_id in ids:
        limiter.set_limits(entity_id, OWN, resource)
    found, cursor = limiter.list_entities_with_custom_limits(resource, 2)
    rest, end = limiter.list_entities_with_custom_limits(resource, 9, cursor)

    assert (ids, None) == (found + rest, end)


@every_resource
def test_usage_with_signs_in_its_names_is_found_by_entity_and_resource(limiter, resource):
    """Both filters find the same windows."""
    limiter.set_system_defaults(LIMITS)
    take(limiter, ENTITY, resource, 3)
    by_entity, _ = limiter.get_usage_snapshots(ENTITY, resource, "daily")
    by_resource, _ = limiter.get_usage_snapshots(resource=resource, window_type="daily")

    assert [(ENTITY, resource, {"rpd": 3})] == [(one.entity_id, one.resource, one.counters) for one in by_entity]
    assert by_entity == by_resource


@every_resource
def test_audit_events_with_signs_in_their_names_are_found(limiter, resource):
    """Those of a resource are apart from those of an entity."""
    limiter.set_resource_defaults(resource, LIMITS)
    limiter.set_limits(ENTITY, OWN, resource)
    events = [
        event
        for audit_id in (ENTITY, f"$RESOURCE:{resource}", resource.lstrip("@"))
        for event in limiter.get_audit_events(audit_id)
    ]

    assert [
        ("limits_set", ENTITY, resource),
        ("resource_defaults_set", f"$RESOURCE:{resource}", resource),
    ] == [(event.action, event.entity_id, event.resource) for event in events]


def test_names_that_begin_alike_are_kept_apart(limiter):
    """Each bucket, limit and snapshot belongs to exactly one name."""
    for number, name in enumerate(ALIKE, 1):
        limiter.set_resource_defaults(name, [Limit.per_day("rpd", 100 + number)])
        take(limiter, name, name, number)
        take(limiter, ENTITY, name, number)

    assert sorted(ALIKE) == limiter.list_resources_with_defaults()
    for number, name in enumerate(ALIKE, 1):
        assert [100 + number] == [one.capacity for one in limiter.get_buckets(name)]
        assert [100 + number] == [one.capacity for one in limiter.get_buckets(ENTITY, name)]
        found, _ = limiter.get_usage_snapshots(ENTITY, name, "daily")
        assert [(name, number)] == [(one.resource, one.counters["rpd"]) for one in found]
        found, _ = limiter.get_usage_snapshots(name, window_type="daily")
        assert [(name, number)] == [(one.resource, one.counters["rpd"]) for one in found]


def test_a_purge_of_a_namespace_leaves_alike_names_of_others(repo, limiter):
    """A name may contain the id of another namespace."""
    purged = repo.register_namespace("purged")
    hostile = f"a/{purged}/BUCKET"
    limiter.set_system_defaults(LIMITS)
    take(limiter, hostile, f"@{purged}/ENTITY", 3)
    repo.delete_namespace("purged")
    repo.purge_namespace(purged)

    assert [7] == [one.tokens for one in limiter.get_buckets(hostile)]
