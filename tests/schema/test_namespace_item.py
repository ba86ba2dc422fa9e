"""A namespace has a record by id, and while it is active one by name."""

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
def test_a_namespace_survives_being_a_reverse_record(namespace: Namespace) -> None:
    """All of it can be told from the id alone."""
    assert namespace == namespace_item.from_item(namespace_item.reverse_item(namespace))


@given(some.namespaces, some.namespace_ids)
def test_an_active_namespace_survives_being_a_forward_record(name: str, namespace_id: str) -> None:
    """All of it can be told from the name alone."""
    namespace = life.register(name, namespace_id, "2024-01-01T00:00:00.000Z")

    assert namespace == namespace_item.from_item(namespace_item.forward_item(namespace))


def test_the_records_are_those_of_the_specification() -> None:
    """Both stand in the reserved namespace."""
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


def test_registering_takes_a_free_name_and_a_free_id() -> None:
    """Two who register one name at once get one namespace."""
    expected = (
        Put(namespace_item.forward_item(ACTIVE), (ItemAbsent(),)),
        Put(namespace_item.reverse_item(ACTIVE), (ItemAbsent(),)),
    )

    assert expected == namespace_item.register(ACTIVE)


def test_deleting_frees_the_name() -> None:
    """Only if the name still leads to this namespace."""
    expected = (
        Delete(FORWARD, (Equals("namespace_id", "a7x3kq00000"),)),
        Put(namespace_item.reverse_item(DELETED), (Equals("status", "active"),)),
    )

    assert expected == namespace_item.delete(DELETED)


def test_recovering_takes_the_name_back() -> None:
    """Only if nobody has registered it since."""
    expected = (
        Put(namespace_item.forward_item(ACTIVE), (ItemAbsent(),)),
        Put(namespace_item.reverse_item(ACTIVE), (Equals("status", "deleted"),)),
    )

    assert expected == namespace_item.recover(life.recover(DELETED))


@pytest.mark.parametrize("seen", [NamespaceStatus.DELETED, NamespaceStatus.PURGING])
def test_a_purge_marks_the_namespace_first(seen: NamespaceStatus) -> None:
    """From then on it cannot be recovered."""
    expected = Update(REVERSE, set={"status": "purging"}, when=(Equals("status", seen.value),))

    assert expected == namespace_item.begin_purge(life.purge(DELETED), seen)


def test_a_purge_ends_with_the_last_record() -> None:
    """Only of a namespace that is being purged."""
    assert Delete(REVERSE, (Equals("status", "purging"),)) == namespace_item.end_purge("a7x3kq00000")


def test_a_namespace_may_be_required_in_a_transaction() -> None:
    """It must be active."""
    assert Check(REVERSE, (Equals("status", "active"),)) == namespace_item.require_active("a7x3kq00000")


def test_a_namespace_may_be_required_to_stay_as_it_was() -> None:
    """In whatever part of its life it was seen."""
    assert Check(REVERSE, (Equals("status", "deleted"),)) == namespace_item.require_unchanged(DELETED)


@pytest.mark.parametrize(("namespace", "active"), [(ACTIVE, True), (DELETED, False), (life.purge(DELETED), False)])
def test_a_record_says_whether_its_namespace_is_active(namespace: Namespace, active: bool) -> None:
    """By it a client learns that its namespace was deleted."""
    assert active == namespace_item.is_active(namespace_item.reverse_item(namespace))


@pytest.mark.parametrize(
    "damage",
    [{"SK": "#OTHER"}, {"SK": 5}, {"status": "gone"}, {"status": None}, {"created_at": 5}, {"namespace": None}],
)
def test_a_damaged_record_is_a_named_error(damage: dict[str, Any]) -> None:
    """It says which attribute."""
    with pytest.raises(CorruptItemError, match=next(iter(damage))):
        namespace_item.from_item(namespace_item.reverse_item(DELETED) | damage)
