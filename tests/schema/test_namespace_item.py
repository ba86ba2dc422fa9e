"""A namespace has a record by id, and while it is active also one by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core import namespace as life
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.namespace import Namespace, NamespaceStatus
from zae_limiter.schema import namespace_item
from zae_limiter.schema.operations import Check, Delete, Equals, ItemAbsent, Key, Put, Update

ACTIVE = life.register("tenant", "a7x3kq00000", "2024-01-01T00:00:00.000Z")
DELETED = life.delete(ACTIVE, "2024-02-01T00:00:00.000Z")
FORWARD = Key("_/SYSTEM#", "#NAMESPACE#tenant")
REVERSE = Key("_/SYSTEM#", "#NSID#a7x3kq00000")

namespaces = st.builds(
    Namespace,
    some.namespace_ids,
    some.namespaces,
    st.sampled_from(NamespaceStatus),
    st.just("2024-01-01T00:00:00.000Z"),
    st.none() | st.just("2024-02-01T00:00:00.000Z"),
)


@given(namespaces)
def test_namespace_round_trips_through_its_record_by_id(namespace: Namespace) -> None:
    """The record contains everything."""
    assert namespace == namespace_item.from_item(namespace_item.reverse_item(namespace))


@given(some.namespaces, some.namespace_ids)
def test_active_namespace_round_trips_through_its_record_by_name(name: str, namespace_id: str) -> None:
    """The record contains everything."""
    namespace = life.register(name, namespace_id, "2024-01-01T00:00:00.000Z")

    assert namespace == namespace_item.from_item(namespace_item.forward_item(namespace))


def test_namespace_records_are_those_of_the_specification() -> None:
    """Both are in the reserved namespace."""
    shared = {"PK": "_/SYSTEM#", "GSI4PK": "_", "GSI4SK": "_/SYSTEM#", "created_at": "2024-01-01T00:00:00.000Z"}
    forward = shared | {"SK": FORWARD.sk, "namespace_id": "a7x3kq00000", "status": "active"}
    reverse = shared | {
        "SK": REVERSE.sk,
        "namespace": "tenant",
        "status": "deleted",
        "deleted_at": "2024-02-01T00:00:00.000Z",
    }

    assert forward == namespace_item.forward_item(ACTIVE)
    assert reverse == namespace_item.reverse_item(DELETED)


def test_register_requires_an_unused_name_and_id() -> None:
    """Two concurrent registrations of one name create one namespace."""
    expected = (
        Put(namespace_item.forward_item(ACTIVE), (ItemAbsent(),)),
        Put(namespace_item.reverse_item(ACTIVE), (ItemAbsent(),)),
    )

    assert expected == namespace_item.register(ACTIVE)


def test_delete_removes_the_record_by_name_of_this_namespace() -> None:
    """It requires that the name still belongs to this namespace."""
    expected = (
        Delete(FORWARD, (Equals("namespace_id", "a7x3kq00000"),)),
        Put(namespace_item.reverse_item(DELETED), (Equals("status", "active"),)),
    )

    assert expected == namespace_item.delete(DELETED)


def test_recover_requires_that_the_name_is_unused() -> None:
    """It may have been registered again."""
    expected = (
        Put(namespace_item.forward_item(ACTIVE), (ItemAbsent(),)),
        Put(namespace_item.reverse_item(ACTIVE), (Equals("status", "deleted"),)),
    )

    assert expected == namespace_item.recover(life.recover(DELETED))


@pytest.mark.parametrize("seen", [NamespaceStatus.DELETED, NamespaceStatus.PURGING])
def test_purge_first_sets_the_status_purging(seen: NamespaceStatus) -> None:
    """From then on the namespace cannot be recovered."""
    expected = Update(REVERSE, set={"status": "purging"}, when=(Equals("status", seen.value),))

    assert expected == namespace_item.begin_purge(life.purge(DELETED), seen)


def test_purge_ends_by_deleting_the_record_of_a_purging_namespace() -> None:
    """The status is a condition."""
    assert Delete(REVERSE, (Equals("status", "purging"),)) == namespace_item.end_purge("a7x3kq00000")


def test_require_active_checks_the_status_in_a_transaction() -> None:
    """The namespace must be active."""
    assert Check(REVERSE, (Equals("status", "active"),)) == namespace_item.require_active("a7x3kq00000")


def test_require_unchanged_checks_the_status_that_was_seen() -> None:
    """The namespace may have any status."""
    assert Check(REVERSE, (Equals("status", "deleted"),)) == namespace_item.require_unchanged(DELETED)


@pytest.mark.parametrize(("namespace", "active"), [(ACTIVE, True), (DELETED, False), (life.purge(DELETED), False)])
def test_is_active_is_true_only_for_an_active_namespace(namespace: Namespace, active: bool) -> None:
    """A client learns by it that its namespace was deleted."""
    assert active == namespace_item.is_active(namespace_item.reverse_item(namespace))


@pytest.mark.parametrize(
    "damage",
    [{"SK": "#OTHER"}, {"SK": 5}, {"status": "gone"}, {"status": None}, {"created_at": 5}, {"namespace": None}],
)
def test_damaged_namespace_record_raises_with_the_attribute(damage: dict[str, Any]) -> None:
    """Every attribute is checked."""
    with pytest.raises(CorruptItemError, match=next(iter(damage))):
        namespace_item.from_item(namespace_item.reverse_item(DELETED) | damage)
