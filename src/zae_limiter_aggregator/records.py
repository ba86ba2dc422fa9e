"""What happened to an item, out of a row of an embedded table's log or a record of a DynamoDB stream. Pure.

What follows from it is ``plan``'s business. Of a stream only two kinds of record tell something: a bucket that was
written to, and an audit event that expired. A record that cannot be read is told of, and stops no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.names import RESERVED_LIMIT_NAME
from zae_limiter.schema import attributes, audit_item, keys
from zae_limiter.schema.operations import Change
from zae_limiter.schema.usage_item import pad_sequence

_EXPIRED_BY = "dynamodb.amazonaws.com"
"""Who removes what has expired; whoever else removes an audit event means it to be gone."""


class Standing(NamedTuple):
    """How a shard stands after a change: the count of shards it knows of, and how often it was ever written to."""

    shard_count: int
    writes: int


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What was taken from one shard of a bucket, less what was given back, by limit, in so many writes.

    ``sequence`` is padded: a later change of the same shard compares higher. ``standing`` is None where it is not told.
    """

    bucket: keys.BucketKey
    sequence: str
    at_ms: int
    spent_milli: Mapping[str, int]
    writes: int
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class ExpiredEvent:
    """An audit event that has expired: where it stood, and all it told."""

    namespace_id: str
    sequence: str
    at_ms: int
    event: AuditEvent


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that could not be read, and why; ``sequence`` is empty where it has none."""

    sequence: str
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What the records of one delivery tell, each kind in the order of the stream.

    ``order`` are the sequences of all records as they were delivered, by their padded form.
    """

    changes: list[BucketChange] = field(default_factory=list)
    expired: list[ExpiredEvent] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    ignored: int = 0
    order: Mapping[str, str] = field(default_factory=dict)


def read_all(records: Sequence[Mapping[str, Any]]) -> Batch:
    """Read the records of one delivery."""
    changes: list[BucketChange] = []
    expired: list[ExpiredEvent] = []
    damaged: list[Damaged] = []
    order: dict[str, str] = {}
    for record in records:
        try:
            sequence = record["dynamodb"]["SequenceNumber"]
            order.setdefault(pad_sequence(sequence), sequence)
            told = from_stream(record)
        except (ZAELimiterError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            damaged.append(Damaged(_sequence_of(record), f"{type(error).__name__}: {error}"))
            continue
        if isinstance(told, BucketChange):
            changes.append(told)
        elif isinstance(told, ExpiredEvent):
            expired.append(told)
    ignored = len(records) - len(changes) - len(expired) - len(damaged)
    return Batch(changes, expired, damaged, ignored, order)


def from_log(change: Change) -> BucketChange | None:
    """The change that a row of the log tells of, None if it is not of a bucket."""
    return _bucket_change(change.key.pk, str(change.sequence), change.at_ms, change.added)


def from_stream(record: Mapping[str, Any]) -> BucketChange | ExpiredEvent | None:
    """What a stream record tells, None if it is neither of a bucket that was written to nor of an expired event.

    Raises:
        CorruptItemError, KeyError, ValueError, TypeError, AttributeError: The record is damaged.
    """
    told = record["dynamodb"]
    pk, sk = told["Keys"]["PK"]["S"], told["Keys"]["SK"]["S"]
    new = told.get("NewImage")
    if sk == keys.sk_state() and new is not None:
        return _written(pk, told, new, told.get("OldImage") or {})
    if new is None and sk.startswith(keys.SK_AUDIT_PREFIX) and _by_expiry(record):
        return _expired(pk, told)
    return None


def _written(pk: str, told: Mapping[str, Any], new: Mapping[str, Any], old: Mapping[str, Any]) -> BucketChange | None:
    added = {
        name: int(value["N"]) - int(old[name]["N"] if name in old else 0)
        for name, value in new.items()
        if attributes.is_total(name)
    }
    count, counter = new.get(attributes.SHARD_COUNT), new.get(attributes.WRITE_COUNTER)
    standing = None if count is None or counter is None else Standing(int(count["N"]), int(counter["N"]))
    return _bucket_change(pk, told["SequenceNumber"], _at_ms(told), added, standing)


def _expired(pk: str, told: Mapping[str, Any]) -> ExpiredEvent:
    # Who only counts, as embedded tables do, need not load it.
    from zae_limiter.tables.dynamodb.codec import decode_item

    where = keys.parse_audit_pk(pk)
    if where is None:
        raise ValueError(f"{pk!r} is not the key of an audit event")
    event = audit_item.from_item(decode_item(told["OldImage"]))
    return ExpiredEvent(where.namespace_id, pad_sequence(told["SequenceNumber"]), _at_ms(told), event)


def _by_expiry(record: Mapping[str, Any]) -> bool:
    """Say whether it was the service that removed the item. The stream's own API spells the members in capitals."""
    identity = record.get("userIdentity") or {}
    return (identity.get("principalId") or identity.get("PrincipalId")) == _EXPIRED_BY


def _at_ms(told: Mapping[str, Any]) -> int:
    return int(told["ApproximateCreationDateTime"] * 1000)


def _bucket_change(
    pk: str, sequence: str, at_ms: int, added: Mapping[str, int], standing: Standing | None = None
) -> BucketChange | None:
    bucket = keys.parse_bucket_pk(pk)
    if bucket is None:
        return None
    spent = {limit_name(name): amount for name, amount in added.items()}
    writes = spent.pop(RESERVED_LIMIT_NAME, 0)
    return BucketChange(bucket, pad_sequence(sequence), at_ms, spent, writes, standing)


def limit_name(total: str) -> str:
    """The limit whose total an attribute is."""
    parsed = attributes.parse_bucket_attribute(total)
    return total if parsed is None else parsed.limit_name


def _sequence_of(record: object) -> str:
    """The sequence of a record of which nothing is sure."""
    told = record.get("dynamodb") if isinstance(record, Mapping) else None
    sequence = told.get("SequenceNumber") if isinstance(told, Mapping) else None
    return sequence if isinstance(sequence, str) else ""
