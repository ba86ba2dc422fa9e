"""Entities: created, read, deleted, with parents and children."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import (
    EntityExistsError,
    EntityHasChildrenError,
    EntityNotFoundError,
    Limit,
    SyncRateLimiter,
    ValidationError,
)

from .clients import another

RPM = Limit.per_minute("rpm", 10)


def test_an_entity_is_as_it_was_created(repo):
    """Every fact is kept."""
    repo.create_entity("org", name="The Org")
    created = repo.create_entity("key", "A Key", "org", cascade=True, metadata={"tier": "gold", "seats": 3})

    assert created == repo.get_entity("key")
    assert ("A Key", "org", True, {"tier": "gold", "seats": 3}) == (
        created.name,
        created.parent_id,
        created.cascade,
        created.metadata,
    )
    assert created.is_child


def test_what_was_never_created_is_none(repo):
    """Asking is no error."""
    assert repo.get_entity("nobody") is None


def test_an_entity_is_created_once(repo):
    """The second time is an error, and changes nothing."""
    repo.create_entity("org", name="first")

    with pytest.raises(EntityExistsError):
        repo.create_entity("org", name="second")

    assert "first" == (repo.get_entity("org")).name


def test_a_parent_must_be_there(repo):
    """Nothing of the child is written."""
    with pytest.raises(EntityNotFoundError, match="org"):
        repo.create_entity("key", parent_id="org")

    assert repo.get_entity("key") is None


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"parent_id": "key"}, "parent_id"),
        ({"cascade": True}, "cascade"),
        ({"cascade": 1, "parent_id": "org"}, "cascade"),
        ({"metadata": {"nested": {}}}, "metadata['nested']"),
        ({"metadata": []}, "metadata"),
        ({"name": 5}, "name"),
    ],
)
def test_facts_that_cannot_be_are_refused(repo, facts, field):
    """By name, before anything is written."""
    repo.create_entity("org")

    with pytest.raises(ValidationError) as refused:
        repo.create_entity("key", **facts)

    assert field == refused.value.field
    assert repo.get_entity("key") is None


def test_children_are_listed_in_order(repo):
    """Those of this parent, and no others."""
    for parent in ("org", "other"):
        repo.create_entity(parent)
    for child in ("b", "a", "c"):
        repo.create_entity(child, parent_id="org")
    repo.create_entity("stranger", parent_id="other")

    assert ["a", "b", "c"] == [child.id for child in repo.get_children("org")]
    assert [] == repo.get_children("a")


def test_an_entity_with_children_stays(repo):
    """Until the last of them is gone."""
    repo.create_entity("org")
    repo.create_entity("key", parent_id="org")

    with pytest.raises(EntityHasChildrenError):
        repo.delete_entity("org")

    repo.delete_entity("key")
    repo.delete_entity("org")

    assert repo.get_entity("org") is None


def test_deleting_what_is_not_there_is_an_error(repo):
    """Before and after it was there."""
    repo.create_entity("org")
    repo.delete_entity("org")

    for nobody in ("org", "nobody"):
        with pytest.raises(EntityNotFoundError):
            repo.delete_entity(nobody)


def test_a_deleted_entity_takes_its_limits_and_buckets_along(repo, limiter):
    """What it had used and owed is gone with it; so is its place in the registries."""
    repo.set_system_defaults([RPM])
    repo.create_entity("user")
    for resource in ("gpt-4", "gpt-5", "_default_"):
        repo.set_limits("user", [Limit.per_minute("rpm", 2)], resource)
    with limiter.acquire("user", "gpt-4", {"rpm": 2}):
        pass

    repo.delete_entity("user")

    assert [] == repo.get_limits("user", "gpt-4")
    assert [] == repo.list_resources_with_entity_configs()
    assert {"rpm": 10} == limiter.available("user", "gpt-4")


def test_a_live_client_learns_of_the_deletion(repo, limiter):
    """It finds the bucket gone, reads the limits again, and creates it by those."""
    repo.set_system_defaults([RPM])
    repo.create_entity("user")
    repo.set_limits("user", [Limit.per_minute("rpm", 2)], "gpt-4")
    other = SyncRateLimiter(another(repo))
    with other.acquire("user", "gpt-4", {"rpm": 1}):
        pass

    repo.delete_entity("user")
    with other.acquire("user", "gpt-4", {"rpm": 1}):
        pass

    assert {"rpm": 9} == limiter.available("user", "gpt-4")


def test_changes_are_told_to_the_audit(repo):
    """With who made them."""
    repo.create_entity("org", principal="alice")
    repo.delete_entity("org", principal="bob")

    told = [(event.action, event.principal) for event in repo.get_audit_events("org")]

    assert {("entity_created", "alice"), ("entity_deleted", "bob")} == set(told)
