"""A namespace is active, then deleted and recoverable, then purging, then removed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core import namespace as life
from zae_limiter.core.errors import InvalidNameError, NamespaceStateError, ValidationError
from zae_limiter.core.namespace import Namespace, NamespaceStatus

ACTIVE = life.register("tenant", "a7x3kq00000", "2024-01-01T00:00:00.000Z")
DELETED = life.delete(ACTIVE, "2024-02-01T00:00:00.000Z")
PURGING = life.purge(DELETED)


def test_namespace_goes_from_active_to_deleted_to_purging() -> None:
    """The time of deletion is kept until recovery."""
    steps = [(one.status, one.deleted_at) for one in (ACTIVE, DELETED, PURGING)]

    assert [
        (NamespaceStatus.ACTIVE, None),
        (NamespaceStatus.DELETED, "2024-02-01T00:00:00.000Z"),
        (NamespaceStatus.PURGING, "2024-02-01T00:00:00.000Z"),
    ] == steps


def test_recovered_namespace_equals_the_original() -> None:
    """Deleting changes only the status."""
    assert ACTIVE == life.recover(DELETED)


def test_purge_of_a_purging_namespace_is_allowed() -> None:
    """An interrupted purge is continued."""
    assert PURGING == life.purge(PURGING)


@pytest.mark.parametrize(
    ("step", "namespace"),
    [
        (lambda one: life.delete(one, "now"), DELETED),
        (lambda one: life.delete(one, "now"), PURGING),
        (life.recover, ACTIVE),
        (life.recover, PURGING),
        (life.purge, ACTIVE),
    ],
)
def test_invalid_namespace_transitions_raise(step: Callable[[Namespace], Namespace], namespace: Namespace) -> None:
    """The error names the namespace and its status."""
    with pytest.raises(NamespaceStateError) as caught:
        step(namespace)

    assert ("tenant", namespace.status.value) == (caught.value.namespace, caught.value.status)


def test_registering_an_invalid_namespace_name_raises() -> None:
    """The reserved namespace is one example."""
    with pytest.raises(InvalidNameError):
        life.register("_", "a7x3kq00000", "now")


@given(st.binary(min_size=8, max_size=8))
def test_namespace_id_from_random_bytes_has_11_valid_characters(random_bytes: bytes) -> None:
    """No id starts with a hyphen, which a shell would take for an option."""
    namespace_id = life.make_namespace_id(random_bytes)

    life.check_namespace_id(namespace_id)
    assert 11 == len(namespace_id)
    assert not namespace_id.startswith("-")


def test_leading_hyphen_of_a_namespace_id_is_replaced() -> None:
    """It becomes a zero."""
    assert "0" == life.make_namespace_id(b"\xfb" * 8)[0]


@given(some.namespace_ids)
def test_valid_namespace_ids_pass_the_check(namespace_id: str) -> None:
    """Letters, digits, underscore and hyphen."""
    life.check_namespace_id(namespace_id)


@pytest.mark.parametrize(
    "value", [None, 5, "", "_", "short", "-7x3kq00000", "a7x3kq0000\n", "a7x3kq/0000", "x" * 2**20]
)
def test_invalid_namespace_ids_raise_with_a_hint(value: object) -> None:
    """A name passed as an id gets a hint to list_namespaces."""
    with pytest.raises(ValidationError, match="list_namespaces"):
        life.check_namespace_id(value)
