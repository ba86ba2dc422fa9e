"""Audit event ids sort by time, and audit ids are entities or config levels."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core import audit
from zae_limiter.core.audit import AuditAction, AuditChange, AuditEvent
from zae_limiter.core.errors import ValidationError

numbers = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(some.times_ms, numbers), min_size=2))
def test_event_ids_sort_by_time_and_are_unique(moments: list[tuple[int, int]]) -> None:
    """Within a millisecond the number distinguishes them."""
    ids = [audit.make_event_id(*moment) for moment in sorted(moments)]

    assert sorted(ids) == ids
    assert len(set(moments)) == len(set(ids))
    assert all(len(first) == len(second) for first, second in pairwise(ids))


def test_event_number_that_is_too_large_is_truncated() -> None:
    """Every id has the same length."""
    assert audit.make_event_id(5, 1) == audit.make_event_id(5, 2**64 + 1)


def test_event_contains_its_change_time_and_id() -> None:
    """Time and number are arguments."""
    change = AuditChange(AuditAction.LIMITS_SET, "user-1", "alice", "gpt-4", {"rpm": 5})
    expected = AuditEvent(
        event_id="1704117600000-00000000000000ff",
        timestamp="2024-01-01T14:00:00.000Z",
        action=AuditAction.LIMITS_SET,
        entity_id="user-1",
        principal="alice",
        resource="gpt-4",
        details={"rpm": 5},
    )

    assert expected == audit.record(change, 1_704_117_600_000, 255)


@given(some.entity_ids, some.resources, some.namespaces)
def test_audit_ids_of_entities_and_config_levels_are_valid(entity_id: str, resource: str, namespace: str) -> None:
    """Entities, the system, resources and namespaces."""
    audit.check_audit_id(entity_id)
    audit.check_audit_id("$SYSTEM")
    audit.check_audit_id(audit.resource_audit_id(resource))
    audit.check_audit_id(audit.namespace_audit_id(namespace))


@pytest.mark.parametrize("value", [None, "", "a#b", "$", "$system", "$RESOURCE:", "$RESOURCE:a#b", "$NAMESPACE:_"])
def test_invalid_audit_ids_raise(value: object) -> None:
    """Ids that start with a dollar sign are checked as well."""
    with pytest.raises(ValidationError):
        audit.check_audit_id(value)


def test_principal_may_be_none_or_any_script() -> None:
    """A principal is optional."""
    audit.check_principal(None)
    audit.check_principal("arn:aws:iam::1:user/日本")


@pytest.mark.parametrize("value", [5, b"alice", "x" * 257, "\ud800"])
def test_invalid_principals_raise(value: object) -> None:
    """They are stored, so they must be short valid strings."""
    with pytest.raises(ValidationError, match="principal"):
        audit.check_principal(value)


@given(some.times_ms, numbers)
def test_every_generated_event_id_passes_the_check(now_ms: int, number: int) -> None:
    """A generated id can be passed back."""
    audit.check_event_id(audit.make_event_id(now_ms, number))


@pytest.mark.parametrize("value", [None, 5, "", "1704117600000", "1704117600000-00000000000000FF", "x" * 30, "5-ff"])
def test_invalid_event_ids_raise_with_the_argument_name(value: object) -> None:
    """The error names ``start_event_id``."""
    with pytest.raises(ValidationError, match="start_event_id"):
        audit.check_event_id(value, "start_event_id")
