"""Changes of a bucket are read from a log row or a stream record."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests import strategies as some
from tests.aggregator.simulated_table import Stream
from zae_limiter.core.audit import AuditAction, AuditEvent, resource_audit_id
from zae_limiter.schema import audit_item
from zae_limiter.schema.keys import BucketKey, pk_bucket, sk_state
from zae_limiter.schema.operations import Change, Key
from zae_limiter.schema.usage_item import pad_sequence
from zae_limiter_aggregator.records import (
    BucketChange,
    BucketRecord,
    ConsumptionDelta,
    ExpiredEvent,
    ParsedBucketLimit,
    from_log,
    from_stream,
    read_all,
)

PK = "ns/BUCKET#user-1#gpt-4#2"
BUCKET = BucketKey("ns", "user-1", "gpt-4", 2)


def record(sk: str, **images: dict[str, Any]) -> dict[str, Any]:
    keys = {"PK": {"S": PK}, "SK": {"S": sk}}
    data = {"Keys": keys, "SequenceNumber": "111", "ApproximateCreationDateTime": 1_704_119_045.0, **images}
    return {"eventName": "MODIFY", "dynamodb": data}


def image(**numbers: int) -> dict[str, Any]:
    return {"PK": {"S": PK}} | {name: {"N": str(number)} for name, number in numbers.items()}


def test_a_log_row_has_the_usage_of_each_limit() -> None:
    """The write counter is not a limit; it counts the writes of the bucket."""
    row = Change(7, Key(PK, "#STATE"), 3_600_000, {"b_tokens_in_tc": 5_000, "b_rpm_tc": -1_000, "b_wcu_tc": 3})

    expected = BucketChange(BUCKET, pad_sequence("7"), 3_600_000, {"tokens_in": 5_000, "rpm": -1_000}, 3)
    assert expected == from_log(row)


def test_a_log_row_with_a_damaged_key_is_ignored() -> None:
    """Its usage belongs to no bucket."""
    assert from_log(Change(7, Key("ns/SYSTEM#", "#STATE"), 0, {"b_rpm_tc": 1})) is None


def test_a_stream_record_has_the_difference_of_its_images() -> None:
    """Balances are ignored, and a new limit starts at zero."""
    old = image(b_rpm_tc=1_000, b_rpm_tk=9_000, b_wcu_tc=1)
    new = image(b_rpm_tc=3_000, b_rpm_tk=7_000, b_tpm_tc=500_000, b_wcu_tc=2)

    expected = BucketChange(BUCKET, pad_sequence("111"), 1_704_119_045_000, {"rpm": 2_000, "tpm": 500_000}, 1)
    assert expected == from_stream(record("#STATE", OldImage=old, NewImage=new))


def test_a_stream_record_has_the_most_slots_in_use_of_both_images() -> None:
    """Slots whose end has passed at the time of the record are free."""
    at_s = 1_704_119_045
    ended, soon, later = f"b_slots_h{at_s}", f"b_slots_h{at_s + 1}", f"b_slots_h{at_s + 60}"
    limits = {"b_slots_hs": 60, "b_slots_tc": 9_000, "b_rpm_tc": 1_000, "b_wcu_tc": 1}
    old = image(**limits, **{ended: 4_000, soon: 2_000, later: 3_000})
    new = image(**limits, **{soon: 0, later: 3_000})

    released = from_stream(record("#STATE", OldImage=old, NewImage=new))
    created = from_stream(record("#STATE", NewImage=new))
    plain = from_stream(record("#STATE", NewImage=image(b_rpm_tc=1_000, b_wcu_tc=1)))
    found = [one.in_use_milli for one in (released, created, plain) if isinstance(one, BucketChange)]
    assert [{"slots": 5_000}, {"slots": 3_000}, None] == found


def test_a_log_row_has_the_most_slots_in_use_of_its_hour() -> None:
    """The table has found them out."""
    row = Change(7, Key(PK, "#STATE"), 3_600_000, {"b_slots_tc": 5_000, "b_wcu_tc": 3}, {"slots": 4_000})
    change = from_log(row)

    assert change is not None
    assert ({"slots": 5_000}, {"slots": 4_000}) == (change.spent_milli, change.in_use_milli)


@given(some.namespace_ids, some.entity_ids, some.resources, some.shard_ids)
def test_a_change_belongs_to_the_bucket_that_its_key_names(
    namespace_id: str, entity_id: str, resource: str, shard_id: int
) -> None:
    """This holds for every valid name, in a log and in a stream."""
    pk = pk_bucket(namespace_id, entity_id, resource, shard_id)
    bucket = BucketKey(namespace_id, entity_id, resource, shard_id)
    logged = from_log(Change(7, Key(pk, sk_state()), 0, {"b_rpm_tc": 1}))
    streamed = from_stream(Stream().add(0, None, {"PK": pk, "SK": sk_state(), "b_rpm_tc": 1}))

    assert isinstance(logged, BucketChange)
    assert isinstance(streamed, BucketChange)
    assert [bucket, bucket] == [logged.bucket, streamed.bucket]


def test_a_change_lists_its_limits_and_what_each_adds_to_usage() -> None:
    """The public values of the package are those of a change, by limit."""
    change = BucketChange(BUCKET, pad_sequence("7"), 3_600_000, {"rpm": -1_000, "tpm": 5_000}, 1)

    assert (ParsedBucketLimit("rpm", -1_000), ParsedBucketLimit("tpm", 5_000)) == change.limits
    assert (
        ConsumptionDelta(BUCKET, "rpm", -1_000, 3_600_000),
        ConsumptionDelta(BUCKET, "tpm", 5_000, 3_600_000),
    ) == change.deltas


def test_a_new_bucket_has_used_its_initial_counters() -> None:
    """The record has no old image."""
    found = from_stream(record("#STATE", NewImage=image(b_rpm_tc=1_000, b_wcu_tc=1)))

    assert isinstance(found, BucketChange)
    assert {"rpm": 1_000} == found.spent_milli


def test_a_stream_record_has_the_shard_count_and_the_write_counter() -> None:
    """It has them if the item has both."""
    change = from_stream(record("#STATE", NewImage=image(b_rpm_tc=1_000, b_wcu_tc=9, shard_count=4)))

    assert isinstance(change, BucketChange)
    assert BucketRecord(4, 9) == change.record


def test_records_of_other_items_are_ignored() -> None:
    """So are records of removed buckets."""
    assert from_stream(record("#STATE", OldImage=image(b_rpm_tc=1_000))) is None
    assert from_stream(record("#META", NewImage=image(b_rpm_tc=1_000))) is None
    assert from_stream(record("#CREDIT#ticket-1", NewImage=image(b_rpm_tc=1_000))) is None


EVENT = AuditEvent("1704067200000-00000000000000aa", "2024-01-01T00:00:00Z", AuditAction.LIMITS_SET, "user-1", "admin")
SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


@given(some.namespace_ids, some.entity_ids | some.resources.map(resource_audit_id))
def test_an_expired_audit_event_has_the_id_in_its_key(namespace_id: str, audit_id: str) -> None:
    """This holds for every valid name of an entity or a resource."""
    event = replace(EVENT, entity_id=audit_id)
    gone = Stream().add(0, audit_item.to_item(namespace_id, event, 0), None, userIdentity=SERVICE)
    found = from_stream(gone)

    assert isinstance(found, ExpiredEvent)
    assert (namespace_id, event) == (found.namespace_id, found.event)


@pytest.mark.parametrize("identity", [SERVICE, {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}])
def test_an_expired_audit_event_is_read_completely(identity: dict[str, str]) -> None:
    """The time-to-live service removed it."""
    gone = Stream().add(1_704_119_045_000, audit_item.to_item("ns", EVENT, 1_704_119_000), None, userIdentity=identity)

    assert ExpiredEvent("ns", pad_sequence("100"), 1_704_119_045_000, EVENT) == from_stream(gone)


def test_an_audit_event_removed_by_a_user_is_ignored() -> None:
    """A purge removes it for good, and a written event has not expired."""
    item = audit_item.to_item("ns", EVENT, None)

    assert from_stream(Stream().add(0, item, None)) is None
    assert from_stream(Stream().add(0, None, item, userIdentity=SERVICE)) is None
    assert from_stream(Stream().add(0, item, None, userIdentity={"type": "Service", "principalId": "x"})) is None


def test_a_damaged_record_does_not_affect_the_others() -> None:
    """Each is reported with its reason. The order of records with a sequence is kept."""
    stream = Stream()
    bucket = {"PK": PK, "SK": "#STATE", "b_rpm_tc": 1_000, "b_wcu_tc": 1, "shard_count": 4}
    audit = audit_item.to_item("ns", EVENT, 1)
    stream.add(0, None, bucket)
    stream.add(0, None, {**bucket, "b_rpm_tc": "many"})
    stream.add(0, {**audit, "timestamp": 5}, None, userIdentity=SERVICE)
    stream.add(0, {**audit, "PK": "ns/ENTITY#user-1"}, None, userIdentity=SERVICE)
    stream.add(0, None, audit)
    damaged = [{}, {"dynamodb": None}, None, {"dynamodb": {"SequenceNumber": "7"}}, {"dynamodb": {"SequenceNumber": 7}}]
    batch = read_all([*stream.records, *damaged])

    assert (1, 0, 1) == (len(batch.changes), len(batch.expired), batch.ignored)
    assert ["101", "102", "103", "", "", "", "7", ""] == [one.sequence for one in batch.damaged]
    assert all(one.reason for one in batch.damaged)
    assert ["100", "101", "102", "103", "104", "7"] == list(batch.order.values())
