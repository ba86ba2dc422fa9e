"""Expired events become readable objects, and repeated deliveries make the same object."""

import gzip
import json
from dataclasses import replace

from hypothesis import given

from tests import strategies as some
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter_aggregator.archive import object_of
from zae_limiter_aggregator.records import ExpiredEvent

LATE_MS = 1_704_067_199_000


def expired(number: int, details: dict[str, object] | None = None) -> ExpiredEvent:
    event = AuditEvent(f"{LATE_MS}-{number:016x}", "2023-12-31T00:00:00Z", AuditAction.LIMITS_SET, "user-1")
    archived = AuditEvent(event.event_id, event.timestamp, event.action, "user-1", "admin", "gpt-4", details or {})
    return ExpiredEvent("ns", f"{number:040d}", LATE_MS + number * 1000, archived)


def test_an_archived_event_is_one_json_line():
    """The line has all its data and its namespace."""
    made = object_of([expired(0, {"limits": [{"name": "rpm", "capacity": 10**21}], "why": "ünïcode\n"}), expired(1)])

    first, second = [json.loads(line) for line in gzip.decompress(made.body).decode().splitlines()]
    assert {
        "namespace_id": "ns",
        "event_id": f"{LATE_MS}-0000000000000000",
        "timestamp": "2023-12-31T00:00:00Z",
        "action": "limits_set",
        "entity_id": "user-1",
        "principal": "admin",
        "resource": "gpt-4",
        "details": {"limits": [{"name": "rpm", "capacity": 10**21}], "why": "ünïcode\n"},
    } == first
    assert {} == second["details"]


def test_archive_keys_use_the_day_on_which_the_first_event_expired():
    """They also contain the sequence numbers of the first and the last event."""
    made = object_of([expired(0), expired(5)])

    assert f"audit/year=2023/month=12/day=31/{0:040d}-{5:040d}.jsonl.gz" == made.key


def test_the_same_events_make_the_same_archive_object():
    """The bytes are equal, and other events never make the same key."""
    events = [expired(number) for number in range(4)]

    assert object_of(events) == object_of(events)
    # The place where gzip would write the time.
    assert bytes(4) == object_of(events).body[4:8]
    assert 3 == len({object_of(part).key for part in (events, events[:2], events[2:])})


@given(some.entity_ids, some.resources)
def test_archived_names_read_back_unchanged_and_are_in_no_key(entity_id, resource):
    """A name with slashes does not move an object to another place."""
    one = expired(0)
    named = replace(one, event=replace(one.event, entity_id=entity_id, resource=resource))
    made = object_of([named])
    told = json.loads(gzip.decompress(made.body))

    assert (entity_id, resource) == (told["entity_id"], told["resource"])
    assert object_of([one]).key == made.key
