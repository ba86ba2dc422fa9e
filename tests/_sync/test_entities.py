"""Entities: creation, reading and deletion, with parents and children."""  # generated from _async by tools/mirror.py; do not edit

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


def test_get_entity_returns_the_entity_as_it_was_created(repo):
    """All attributes are stored."""
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


def test_nested_metadata_is_a_copy_of_what_was_given(repo):
    """Neither the caller's dictionary nor one that was read changes what is stored."""
    given = {"share": 0.1, "tags": ["a"], "seats": 3}
    created = repo.create_entity("key", metadata=given)
    given["tags"].append("changed")
    (repo.get_entity("key")).metadata["tags"].append("changed")

    assert {"share": 0.1, "tags": ["a"], "seats": 3} == created.metadata == (repo.get_entity("key")).metadata


def test_get_entity_of_an_unknown_id_returns_none(repo):
    """An unknown id is not an error."""
    assert repo.get_entity("nobody") is None


def test_create_of_an_existing_entity_raises_and_changes_nothing(repo):
    """The first entity is kept."""
    repo.create_entity("org", name="first")

    with pytest.raises(EntityExistsError):
        repo.create_entity("org", name="second")

    assert "first" == (repo.get_entity("org")).name


def test_create_with_a_missing_parent_raises_and_writes_nothing(repo):
    """A parent must exist before its children."""
    with pytest.raises(EntityNotFoundError, match="org"):
        repo.create_entity("key", parent_id="org")

    assert repo.get_entity("key") is None


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"parent_id": "key"}, "parent_id"),
        ({"cascade": True}, "cascade"),
        ({"cascade": 1, "parent_id": "org"}, "cascade"),
        ({"metadata": {"nested": {"a": [float("nan")]}}}, "metadata['nested']['a'][0]"),
        ({"metadata": []}, "metadata"),
        ({"name": 5}, "name"),
    ],
)
def test_create_entity_with_an_invalid_argument_raises_with_its_field(repo, facts, field):
    """Arguments are checked before anything is written."""
    repo.create_entity("org")

    with pytest.raises(ValidationError) as refused:
        repo.create_entity("key", **facts)

    assert field == refused.value.field
    assert repo.get_entity("key") is None


def test_get_children_returns_the_children_of_one_parent_in_order(repo):
    """Children of other parents are left out."""
    for parent in ("org", "other"):
        repo.create_entity(parent)
    for child in ("b", "a", "c"):
        repo.create_entity(child, parent_id="org")
    repo.create_entity("stranger", parent_id="other")

    assert ["a", "b", "c"] == [child.id for child in repo.get_children("org")]
    assert [] == repo.get_children("a")


def test_delete_of_an_entity_with_children_raises(repo):
    """It succeeds once the last child is deleted."""
    repo.create_entity("org")
    repo.create_entity("key", parent_id="org")

    with pytest.raises(EntityHasChildrenError):
        repo.delete_entity("org")

    repo.delete_entity("key")
    repo.delete_entity("org")

    assert repo.get_entity("org") is None


def test_delete_of_a_missing_entity_raises(repo):
    """The error is the same for a deleted and an unknown entity."""
    repo.create_entity("org")
    repo.delete_entity("org")

    for nobody in ("org", "nobody"):
        with pytest.raises(EntityNotFoundError):
            repo.delete_entity(nobody)


def test_delete_entity_deletes_its_limits_and_buckets(repo, limiter):
    """Its entries in the registries are removed too."""
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


def test_running_client_uses_default_limits_after_the_entity_was_deleted(repo, limiter):
    """It finds the bucket missing, reads the limits again, and creates the bucket with them."""
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


def test_entity_changes_record_audit_events_with_the_principal(repo):
    """Creation and deletion are audited."""
    repo.create_entity("org", principal="alice")
    repo.delete_entity("org", principal="bob")

    recorded = [(event.action, event.principal) for event in repo.get_audit_events("org")]

    assert {("entity_created", "alice"), ("entity_deleted", "bob")} == set(recorded)
