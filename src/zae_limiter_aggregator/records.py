"""Read changes from rows of an embedded table's log, or from records of a DynamoDB stream. Pure.

Two kinds of stream record are used: a bucket that was written, and an audit event that expired. A
tenant can write any item to its own partitions. So the type and the bounds of every value are
checked. A record that fails a check is set aside with its key, and does not stop the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core.audit import AuditEvent
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.lazy_dataclass import dataclass, field, replace
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
"""The principal that deletes expired items. An audit event that another principal deletes is not archived."""


_LARGEST_TOTAL = 10**30
"""The largest total in millitokens: a billion times the largest amount."""
_TOTAL_DIGITS = 31
_COUNT_DIGITS = 2
_LATEST_S = 253_402_300_799
"""The end of the year 9999, the last year of windows."""
_SHOWN_LENGTH = 200


class BucketRecord(NamedTuple):
    """A shard after a change: its shard count, and its write counter."""

    shard_count: int
    writes: int


class ParsedBucketLimit(NamedTuple):
    """One limit of a change: what was taken from it, minus what was given back."""

    limit_name: str
    spent_milli: int


class ConsumptionDelta(NamedTuple):
    """What one change adds to the usage of one limit, and when; negative if more was given back than taken."""

    bucket: keys.BucketKey
    limit_name: str
    spent_milli: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What was taken from one shard of a bucket, minus what was given back, by limit.

    ``writes`` is the number of writes. ``sequence`` is padded: a later change of the same shard
    compares higher. ``record`` is None if the source does not have it. ``in_use_milli`` are the most slots that were in
    use before or after it, by limit of concurrent use; None if the bucket has none. ``image`` is the bucket after it,
    as the stream has it; None if no limit has thresholds for warnings.
    """

    bucket: keys.BucketKey
    sequence: str
    at_ms: int
    spent_milli: Mapping[str, int]
    writes: int
    record: BucketRecord | None = None
    in_use_milli: Mapping[str, int] | None = None
    image: Mapping[str, Any] | None = None

    @property
    def limits(self) -> tuple[ParsedBucketLimit, ...]:
        """The limits that were taken from or given back to."""
        return tuple(ParsedBucketLimit(name, milli) for name, milli in self.spent_milli.items())

    @property
    def deltas(self) -> tuple[ConsumptionDelta, ...]:
        """What the change adds to the usage of each limit."""
        return tuple(ConsumptionDelta(self.bucket, *limit, self.at_ms) for limit in self.limits)


@dataclass(frozen=True, slots=True)
class ExpiredEvent:
    """An audit event that has expired, with its namespace and the stream's sequence and time."""

    namespace_id: str
    sequence: str
    at_ms: int
    event: AuditEvent


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that was set aside, and why; ``sequence`` and ``key`` are empty if it has none."""

    sequence: str
    reason: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one delivery by kind, in the order of the stream.

    ``order`` maps the padded sequence of every record to the sequence as it was delivered.
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
    """Return the change in a row of the log, None if it is not of a bucket."""
    bucket = keys.parse_bucket_pk(change.key.pk)
    if bucket is None:
        return None
    told = _bucket_change(bucket, str(change.sequence), change.at_ms, change.added)
    return replace(told, in_use_milli=change.in_use) if change.in_use else told


def from_stream(record: Mapping[str, Any]) -> BucketChange | ExpiredEvent | None:
    """Return the change or the expired event of a stream record, None if it is neither.

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
        raise ValueError("the key is not the key of a bucket")
    check_entity_id(bucket.entity_id)
    check_resource(bucket.resource, allow_all=True)
    added = {
        name: _total(value) - (_total(old[name]) if name in old else 0)
        for name, value in new.items()
        if attributes.is_total(name)
    }
    change = _bucket_change(bucket, _sequence(told), _at_ms(told), added, _bucket_record(new, bucket.shard_id))
    for name in change.spent_milli:
        # Hazard: a snapshot stores counters under the names of their limits, beside its own
        # attributes. A forged limit name must not overwrite one of those.
        check_limit_name(name)
        if name in added:
            raise ValueError(f"{name} is not the total of a limit")
    if any(attributes.bucket_attribute(name, attributes.WARN_AT) in new for name in change.spent_milli):
        change = replace(change, image=new)
    held = [name for name in change.spent_milli if attributes.bucket_attribute(name, attributes.HOLD) in new]
    if not held:
        return change
    in_use = {name: max(_in_use_milli(image, name, change.at_ms) for image in (old, new)) for name in held}
    return replace(change, in_use_milli=in_use)


def _in_use_milli(image: Mapping[str, Any], limit_name: str, at_ms: int) -> int:
    """Return the slots of a limit that were in use at a time. Those whose end has passed are free."""
    found = 0
    for name, value in image.items():
        cohort = attributes.parse_cohort_attribute(name)
        if cohort is not None and cohort.limit_name == limit_name and cohort.end_s * 1000 > at_ms:
            found += _total(value)
    # A forged cohort may be negative; a number of slots is not.
    return max(0, found)


def _expired(pk: str, sk: str, told: Mapping[str, Any]) -> ExpiredEvent:
    # Imported here, because embedded tables only count and do not need it.
    from zae_limiter.tables.dynamodb.codec import decode_item

    where = keys.parse_audit_pk(pk)
    if where is None:
        raise ValueError("the key is not the key of an audit event")
    event = audit_item.from_item(decode_item(told["OldImage"]))
    if (event.entity_id, event.event_id) != (where.name, keys.parse_audit_sk(sk)):
        raise ValueError("the key and the attributes of the audit event differ")
    return ExpiredEvent(where.namespace_id, pad_sequence(_sequence(told)), _at_ms(told), event)


def _bucket_record(new: Mapping[str, Any], shard_id: int) -> BucketRecord | None:
    """Return the shard count and write counter of a shard, None if the item lacks one of them."""
    if attributes.SHARD_COUNT not in new or attributes.WRITE_COUNTER not in new:
        return None
    count = _number(new[attributes.SHARD_COUNT], _COUNT_DIGITS)
    if not shard_id < count <= MOST_SHARDS or count & (count - 1):
        raise ValueError(f"shard {shard_id} of {count} shards is invalid")
    return BucketRecord(count, _total(new[attributes.WRITE_COUNTER]))


def _by_expiry(record: Mapping[str, Any]) -> bool:
    """Return whether DynamoDB itself deleted the item. The stream's own API capitalizes the member names."""
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
    """Return an integer of the stream with at most this many digits."""
    text = value["N"]
    if type(text) is not str or len(text.lstrip("-")) > most_digits:
        raise ValueError(f"a number is not text of at most {most_digits} digits")
    return int(text)


def _bucket_change(
    bucket: keys.BucketKey, sequence: str, at_ms: int, added: Mapping[str, int], record: BucketRecord | None = None
) -> BucketChange:
    spent = {limit_name(name): amount for name, amount in added.items()}
    writes = spent.pop(RESERVED_LIMIT_NAME, 0)
    return BucketChange(bucket, pad_sequence(sequence), at_ms, spent, writes, record)


def limit_name(total: str) -> str:
    """Return the limit of a total's attribute."""
    parsed = attributes.parse_bucket_attribute(total)
    return total if parsed is None else parsed.limit_name


def _sequence_of(record: object) -> str:
    """Return the sequence of an unchecked record, empty if it has none."""
    told = record.get("dynamodb") if isinstance(record, Mapping) else None
    sequence = told.get("SequenceNumber") if isinstance(told, Mapping) else None
    return sequence[:SEQUENCE_LENGTH] if isinstance(sequence, str) else ""


def _key_of(record: object) -> str:
    """Return the key of an unchecked record, shortened for a log."""
    found = record
    for member in ("dynamodb", "Keys"):
        found = found.get(member) if isinstance(found, Mapping) else None
    parts = [found.get(name) for name in ("PK", "SK")] if isinstance(found, Mapping) else []
    texts = [part.get("S") for part in parts if isinstance(part, Mapping)]
    return " ".join(text[:_SHOWN_LENGTH] for text in texts if isinstance(text, str))
