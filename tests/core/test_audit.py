"""Audit event ids sort by time, and audit ids are entities or config levels."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

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


@given(some.entity_ids, some.resources, some.namespaces)
def test_audit_ids_are_read_back_as_what_they_are_of(entity_id: str, resource: str, namespace: str) -> None:
    """An entity may have the name of a resource or a namespace, with or without a prefix."""
    of_resource, of_namespace = audit.resource_audit_id(resource), audit.namespace_audit_id(namespace)

    assert ("$RESOURCE", ":", resource) == of_resource.partition(":")
    assert ("$NAMESPACE", ":", namespace) == of_namespace.partition(":")
    assert "$" not in entity_id
    assert [False, False, True] == [audit.is_namespace_audit_id(one) for one in (entity_id, of_resource, of_namespace)]


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


EVENT = AuditEvent("1704117600000-00000000000000ff", "2024-01-01T14:00:00.000Z", AuditAction.LIMITS_SET, "user-1")


@pytest.mark.parametrize("action", [AuditAction.LIMITS_SET, "an_action_of_a_newer_version"])
def test_event_round_trips_through_json(action: AuditAction | str) -> None:
    """from_dict reads what to_dict wrote; a known action becomes a member of the enumeration again."""
    event = replace(EVENT, action=action, principal="alice", resource="gpt-4", details={"limits": [{"rpm": 5}]})
    read = AuditEvent.from_dict(json.loads(json.dumps(event.to_dict())))

    assert event == read
    assert type(action) is type(read.action)


def test_event_dictionary_shares_no_details_with_the_event() -> None:
    """Changing one leaves the other as it was."""
    event = replace(EVENT, details={"limits": [1]})
    told = event.to_dict()
    read = AuditEvent.from_dict(told)
    told["details"]["limits"].append(2)

    assert {"limits": [1]} == event.details == read.details


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"event_id": None},
        {"timestamp": 5},
        {"action": None},
        {"entity_id": 1},
        {"principal": 1},
        {"resource": b"gpt-4"},
        {"details": None},
        {"details": [1]},
    ],
)
def test_from_dict_with_an_unknown_or_wrong_field_raises(change: dict[str, Any]) -> None:
    """A misspelt field is not silently dropped."""
    with pytest.raises(ValidationError):
        AuditEvent.from_dict(EVENT.to_dict() | change)


@pytest.mark.parametrize("data", [None, [1], {}, {1: 2}, {"event_id": "1"}])
def test_from_dict_of_another_value_raises(data: Any) -> None:
    """Every field is required."""
    with pytest.raises(ValidationError):
        AuditEvent.from_dict(data)


@given(some.times_ms, st.integers(0, 2**64 - 1))
def test_previous_event_id_is_the_last_one_before(now_ms: int, number: int) -> None:
    """No event can be between the two."""
    event_id = audit.make_event_id(now_ms, number)
    following = audit.make_event_id(*((now_ms, number + 1) if number + 1 < 2**64 else (now_ms + 1, 0)))

    assert event_id == audit.previous_event_id(following)
    audit.check_event_id(audit.previous_event_id(event_id))


def test_first_event_id_has_no_smaller_one() -> None:
    """It is the id of the epoch, at which nothing was changed."""
    assert audit.make_event_id(0, 0) == audit.previous_event_id(audit.make_event_id(0, 0))
