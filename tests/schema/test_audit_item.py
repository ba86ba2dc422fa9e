"""Audit events round-trip through items."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core import audit
from zae_limiter.core.audit import AuditAction, AuditChange, AuditEvent
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.schema import audit_item
from zae_limiter.schema.operations import ItemAbsent, Query

EVENT = audit.record(
    AuditChange(AuditAction.LIMITS_SET, "user-1", "alice", "gpt-4", {"rpm": 5}), 1_704_117_600_000, 255
)

changes = st.builds(
    AuditChange,
    st.sampled_from(AuditAction),
    some.entity_ids | st.just("$SYSTEM") | some.resources.map(audit.resource_audit_id),
    st.none() | st.text(max_size=20),
    st.none() | some.resources,
    st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers())),
)
events = st.builds(audit.record, changes, some.times_ms, st.integers(0, 2**64 - 1))


@given(events, st.none() | st.integers(0, 10**10))
def test_audit_event_round_trips_through_an_item(event: AuditEvent, ttl_s: int | None) -> None:
    """All fields and the details are stored."""
    assert event == audit_item.from_item(audit_item.to_item("ns", event, ttl_s))


def test_audit_item_is_keyed_by_entity_and_time() -> None:
    """The action is stored as plain text."""
    expected = {
        "PK": "ns/AUDIT#user-1",
        "SK": "#AUDIT#1704117600000-00000000000000ff",
        "event_id": "1704117600000-00000000000000ff",
        "timestamp": "2024-01-01T14:00:00.000Z",
        "action": "limits_set",
        "entity_id": "user-1",
        "principal": "alice",
        "resource": "gpt-4",
        "details": {"rpm": 5},
        "ttl": 1_800_000_000,
        "GSI4PK": "ns",
        "GSI4SK": "AUDIT#1704117600000-00000000000000ff",
    }
    item = audit_item.to_item("ns", EVENT, 1_800_000_000)

    assert expected == item
    assert str is type(item["action"])


def test_audit_event_write_requires_that_the_item_is_absent() -> None:
    """No event replaces another."""
    put = audit_item.write("ns", EVENT, None)

    assert (ItemAbsent(),) == put.when
    assert "ttl" not in put.item


def test_unknown_audit_action_is_read_as_text() -> None:
    """An older client can list events of a newer version, with unknown attributes."""
    item = audit_item.to_item("ns", EVENT, None) | {"action": "moon_landed", "new": 1}

    assert "moon_landed" == audit_item.from_item(item).action
    assert AuditAction.LIMITS_SET is audit_item.from_item(item | {"action": "limits_set"}).action


@pytest.mark.parametrize(
    "damage",
    [{"event_id": 5}, {"timestamp": 5}, {"action": None}, {"entity_id": 5}, {"principal": 5}, {"details": "x"}],
)
def test_damaged_audit_item_raises_with_the_attribute(damage: dict[str, Any]) -> None:
    """Every attribute is checked."""
    with pytest.raises(CorruptItemError, match=next(iter(damage))):
        audit_item.from_item(audit_item.to_item("ns", EVENT, None) | damage)


def test_audit_query_is_descending_and_starts_after_an_event() -> None:
    """It covers the events of one audit id."""
    first = audit_item.newest_first("ns", "$SYSTEM", 5, None)
    start = {"PK": "ns/AUDIT#$SYSTEM", "SK": "#AUDIT#1704117600000-00000000000000ff"}

    assert Query("ns/AUDIT#$SYSTEM", prefix="#AUDIT#", descending=True, limit=5) == first
    assert replace(first, start=start) == audit_item.newest_first("ns", "$SYSTEM", 5, "1704117600000-00000000000000ff")
