"""What happened to an item, out of a row of an embedded table's log or a record of a DynamoDB stream. Pure.

What follows from it is ``plan``'s business. Of a stream only two kinds of record are used: a bucket that was written
to, and an audit event that expired. Any tenant can write any item to its own partitions, so every value of a record is
checked for its type and its bounds. A record that fails a check is set aside with its key, and stops no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.names import RESERVED_LIMIT_NAME, check_entity_id, check_limit_name, check_resource
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.schema import attributes, audit_item, keys
from zae_limiter.schema.operations import Change
from zae_limiter.schema.usage_item import SEQUENCE_LENGTH, pad_sequence

_UNREADABLE = (
    ZAELimiterError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_EXPIRED_BY = "dynamodb.amazonaws.com"
"""Who removes what has expired; whoever else removes an audit event means it to be gone."""


_LARGEST_TOTAL = 10**30
"""No total is larger, in millitokens: a billion times the largest amount."""
_TOTAL_DIGITS = 31
_COUNT_DIGITS = 2
_LATEST_S = 253_402_300_799
"""The end of the year 9999, after which there are no windows."""
_SHOWN_LENGTH = 200


class BucketRecord(NamedTuple):
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
    standing: BucketRecord | None = None


@dataclass(frozen=True, slots=True)
class ExpiredEvent:
    """An audit event that has expired: where it stood, and all it told."""

    namespace_id: str
    sequence: str
    at_ms: int
    event: AuditEvent


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that was set aside, and why; ``sequence`` and ``key`` are empty where it has none."""

    sequence: str
    reason: str
    key: str = ""


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
    """Read the records of one delivery. Never raises: a record that cannot be read is set aside."""
    changes: list[BucketChange] = []
    expired: list[ExpiredEvent] = []
    damaged: list[Damaged] = []
    order: dict[str, str] = {}
    for record in records:
        try:
            sequence = _sequence(record["dynamodb"])
            order.setdefault(pad_sequence(sequence), sequence)
            told = from_stream(record)
        except _UNREADABLE as error:
            reason = f"{type(error).__name__}: {error}"[:_SHOWN_LENGTH]
            damaged.append(Damaged(_sequence_of(record), reason, _key_of(record)))
            continue
        if isinstance(told, BucketChange):
            changes.append(told)
        elif isinstance(told, ExpiredEvent):
            expired.append(told)
    ignored = len(records) - len(changes) - len(expired) - len(damaged)
    return Batch(changes, expired, damaged, ignored, order)


def from_log(change: Change) -> BucketChange | None:
    """The change that a row of the log tells of, None if it is not of a bucket."""
    bucket = keys.parse_bucket_pk(change.key.pk)
    if bucket is None:
        return None
    return _bucket_change(bucket, str(change.sequence), change.at_ms, change.added)


def from_stream(record: Mapping[str, Any]) -> BucketChange | ExpiredEvent | None:
    """What a stream record tells, None if it is neither of a bucket that was written to nor of an expired event.

    Raises:
        ZAELimiterError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError:
            A value of the record is missing, has another type, or is out of bounds.
    """
    told = record["dynamodb"]
    key = told["Keys"]
    pk, sk = _text(key["PK"]), _text(key["SK"])
    new = told.get("NewImage")
    if sk == keys.sk_state() and new is not None:
        return _written(pk, told, new, told.get("OldImage") or {})
    if new is None and sk.startswith(keys.SK_AUDIT_PREFIX) and _by_expiry(record):
        return _expired(pk, sk, told)
    return None


def _written(pk: str, told: Mapping[str, Any], new: Mapping[str, Any], old: Mapping[str, Any]) -> BucketChange:
    bucket = keys.parse_bucket_pk(pk)
    if bucket is None:
        raise ValueError("the key is not that of a bucket")
    check_entity_id(bucket.entity_id)
    check_resource(bucket.resource)
    added = {
        name: _total(value) - (_total(old[name]) if name in old else 0)
        for name, value in new.items()
        if attributes.is_total(name)
    }
    change = _bucket_change(bucket, _sequence(told), _at_ms(told), added, _standing(new, bucket.shard_id))
    for name in change.spent_milli:
        # A snapshot keeps totals under the names of their limits, beside attributes of its own.
        check_limit_name(name)
        if name in added:
            raise ValueError(f"{name} is the total of no limit")
    return change


def _expired(pk: str, sk: str, told: Mapping[str, Any]) -> ExpiredEvent:
    # Who only counts, as embedded tables do, need not load it.
    from zae_limiter.tables.dynamodb.codec import decode_item

    where = keys.parse_audit_pk(pk)
    if where is None:
        raise ValueError("the key is not that of an audit event")
    event = audit_item.from_item(decode_item(told["OldImage"]))
    if (event.entity_id, event.event_id) != (where.name, keys.parse_audit_sk(sk)):
        raise ValueError("the key and the attributes of the audit event differ")
    return ExpiredEvent(where.namespace_id, pad_sequence(_sequence(told)), _at_ms(told), event)


def _standing(new: Mapping[str, Any], shard_id: int) -> BucketRecord | None:
    """How a shard stands, None where the item lacks the count or the counter."""
    if attributes.SHARD_COUNT not in new or attributes.WRITE_COUNTER not in new:
        return None
    count = _number(new[attributes.SHARD_COUNT], _COUNT_DIGITS)
    if not shard_id < count <= MOST_SHARDS or count & (count - 1):
        raise ValueError(f"{count} shards cannot be, with one numbered {shard_id}")
    return BucketRecord(count, _total(new[attributes.WRITE_COUNTER]))


def _by_expiry(record: Mapping[str, Any]) -> bool:
    """Say whether it was the service that removed the item. The stream's own API spells the members in capitals."""
    identity = record.get("userIdentity") or {}
    return (identity.get("principalId") or identity.get("PrincipalId")) == _EXPIRED_BY


def _at_ms(told: Mapping[str, Any]) -> int:
    at_s = told["ApproximateCreationDateTime"]
    if type(at_s) not in (int, float) or not 0 <= at_s <= _LATEST_S:
        raise ValueError("the time is not a number of seconds up to the year 9999")
    return int(at_s * 1000)


def _sequence(told: Mapping[str, Any]) -> str:
    sequence = told["SequenceNumber"]
    if type(sequence) is not str or not sequence.isalnum() or len(sequence) > SEQUENCE_LENGTH:
        raise ValueError("the sequence number is not text of letters and digits")
    return sequence


def _text(value: Mapping[str, Any]) -> str:
    text = value["S"]
    if type(text) is not str:
        raise TypeError("a part of the key is not text")
    return text


def _total(value: Mapping[str, Any]) -> int:
    total = _number(value, _TOTAL_DIGITS)
    if not -_LARGEST_TOTAL <= total <= _LARGEST_TOTAL:
        raise ValueError("a total is out of bounds")
    return total


def _number(value: Mapping[str, Any], most_digits: int) -> int:
    """Read an integer of the stream, of so many digits at most."""
    text = value["N"]
    if type(text) is not str or len(text.lstrip("-")) > most_digits:
        raise ValueError(f"a number is not text of at most {most_digits} digits")
    return int(text)


def _bucket_change(
    bucket: keys.BucketKey, sequence: str, at_ms: int, added: Mapping[str, int], standing: BucketRecord | None = None
) -> BucketChange:
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
    return sequence[:SEQUENCE_LENGTH] if isinstance(sequence, str) else ""


def _key_of(record: object) -> str:
    """The key of a record of which nothing is sure, shortened for a log."""
    found = record
    for member in ("dynamodb", "Keys"):
        found = found.get(member) if isinstance(found, Mapping) else None
    parts = [found.get(name) for name in ("PK", "SK")] if isinstance(found, Mapping) else []
    texts = [part.get("S") for part in parts if isinstance(part, Mapping)]
    return " ".join(text[:_SHOWN_LENGTH] for text in texts if isinstance(text, str))
