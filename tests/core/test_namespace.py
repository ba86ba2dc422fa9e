"""A namespace is active, then deleted and recoverable, then purging, then gone."""

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


def test_each_step_leads_to_the_next() -> None:
    """The time of deletion is kept until recovery."""
    steps = [(one.status, one.deleted_at) for one in (ACTIVE, DELETED, PURGING)]

    assert [
        (NamespaceStatus.ACTIVE, None),
        (NamespaceStatus.DELETED, "2024-02-01T00:00:00.000Z"),
        (NamespaceStatus.PURGING, "2024-02-01T00:00:00.000Z"),
    ] == steps


def test_a_deleted_namespace_comes_back_as_it_was() -> None:
    """Deleting hides; it does not change."""
    assert ACTIVE == life.recover(DELETED)


def test_a_purge_may_be_taken_up_again() -> None:
    """One that was interrupted goes on."""
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
def test_steps_that_are_not_allowed(step: Callable[[Namespace], Namespace], namespace: Namespace) -> None:
    """The error names the namespace and its state."""
    with pytest.raises(NamespaceStateError) as caught:
        step(namespace)

    assert ("tenant", namespace.status.value) == (caught.value.namespace, caught.value.status)


def test_a_name_that_may_not_be_is_not_registered() -> None:
    """The reserved namespace, for one."""
    with pytest.raises(InvalidNameError):
        life.register("_", "a7x3kq00000", "now")


@given(st.binary(min_size=8, max_size=8))
def test_ids_are_made_of_random_bytes(random_bytes: bytes) -> None:
    """Eleven characters that no shell takes for a flag."""
    namespace_id = life.make_namespace_id(random_bytes)

    life.check_namespace_id(namespace_id)
    assert 11 == len(namespace_id)
    assert not namespace_id.startswith("-")


def test_an_id_that_would_start_with_a_hyphen_does_not() -> None:
    """Its first character is replaced."""
    assert "0" == life.make_namespace_id(b"\xfb" * 8)[0]


@given(some.namespace_ids)
def test_ids_that_may_be(namespace_id: str) -> None:
    """Letters, digits, underscore and hyphen."""
    life.check_namespace_id(namespace_id)


@pytest.mark.parametrize(
    "value", [None, 5, "", "_", "short", "-7x3kq00000", "a7x3kq0000\n", "a7x3kq/0000", "x" * 2**20]
)
def test_ids_that_may_not_be(value: object) -> None:
    """A name passed for an id is refused with a hint."""
    with pytest.raises(ValidationError, match="list_namespaces"):
        life.check_namespace_id(value)
