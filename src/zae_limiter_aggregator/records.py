"""What happened to a bucket, out of a row of an embedded table's log or a record of a DynamoDB stream. Pure.

What follows from it is ``plan``'s business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.names import RESERVED_LIMIT_NAME
from zae_limiter.schema import attributes, keys
from zae_limiter.schema.operations import Change
from zae_limiter.schema.usage_item import pad_sequence


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What was taken from one shard of a bucket, less what was given back, by limit, in so many writes.

    ``sequence`` is padded: a later change of the same shard compares higher.
    """

    bucket: keys.BucketKey
    sequence: str
    at_ms: int
    spent_milli: Mapping[str, int]
    writes: int


def from_log(change: Change) -> BucketChange | None:
    """The change that a row of the log tells of, None if it is not of a bucket."""
    return _bucket_change(change.key.pk, str(change.sequence), change.at_ms, change.added)


def from_stream(record: Mapping[str, Any]) -> BucketChange | None:
    """The change that a stream record tells of, None if it is not of a bucket, or the bucket is gone."""
    told = record["dynamodb"]
    new, old = told.get("NewImage"), told.get("OldImage", {})
    if new is None or told["Keys"]["SK"]["S"] != keys.sk_state():
        return None
    added = {
        name: int(value["N"]) - int(old.get(name, {"N": "0"})["N"])
        for name, value in new.items()
        if attributes.is_total(name)
    }
    at_ms = int(told["ApproximateCreationDateTime"] * 1000)
    return _bucket_change(told["Keys"]["PK"]["S"], told["SequenceNumber"], at_ms, added)


def _bucket_change(pk: str, sequence: str, at_ms: int, added: Mapping[str, int]) -> BucketChange | None:
    bucket = keys.parse_bucket_pk(pk)
    if bucket is None:
        return None
    spent = {limit_name(name): amount for name, amount in added.items()}
    writes = spent.pop(RESERVED_LIMIT_NAME, 0)
    return BucketChange(bucket, pad_sequence(sequence), at_ms, spent, writes)


def limit_name(total: str) -> str:
    """The limit whose total an attribute is."""
    parsed = attributes.parse_bucket_attribute(total)
    return total if parsed is None else parsed.limit_name
