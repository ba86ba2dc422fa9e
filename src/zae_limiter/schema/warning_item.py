"""Describe the record of which thresholds of a bucket were reached, and the writes that mark them.

A bucket has one record, and each threshold of its limits one attribute: ``{period} {time in ms}``. A warning is sent
only by the writer of the mark. So every write requires that the marks are those that were read.
"""

from collections.abc import Mapping

from zae_limiter.core.outcome import Item
from zae_limiter.core.warnings import MarkKey, Marks, WarningMark
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import AttributeAbsent, Condition, Equals, Key, Update

_LONGEST = 40


def warned_key(bucket: keys.BucketKey) -> Key:
    """Return the key of the record of a bucket, which all of its shards share."""
    return Key(keys.pk_entity(bucket.namespace_id, bucket.entity_id), keys.sk_warned(bucket.resource))


def marks_of(item: Item) -> dict[MarkKey, WarningMark]:
    """Return the marks of a record, empty if it does not exist.

    Raises:
        CorruptItemError: A mark is damaged.
    """
    found = {}
    for name in item:
        parsed = attributes.parse_warned_attribute(name)
        if parsed is not None:
            found[parsed.limit_name, parsed.part] = _mark(item, name)
    return found


def mark(bucket: keys.BucketKey, marks: Marks, item: Item, ttl_s: int) -> Update:
    """Mark thresholds, if they are marked as in ``item``; it is empty if the record does not exist."""
    key = warned_key(bucket)
    names = {attributes.warned_attribute(*one): made for one, made in marks.items()}
    expires_s = max(ttl_s, fields.optional_number(item, attributes.TTL) or 0)
    described = {attributes.ENTITY_ID: bucket.entity_id, attributes.RESOURCE: bucket.resource}
    return Update(
        key,
        set={
            **described,
            **keys.gsi4_attributes(key.pk),
            attributes.TTL: expires_s,
            **{name: f"{made.period} {made.at_ms}" for name, made in names.items()},
        },
        when=tuple([_as_seen(name, item) for name in names]),
    )


def _as_seen(name: str, item: Mapping[str, object]) -> Condition:
    return Equals(name, fields.text(item, name)) if name in item else AttributeAbsent(name)


def _mark(item: Item, name: str) -> WarningMark:
    text = fields.text(item, name)
    period, _, at_ms = text.partition(" ")
    # Check the length first: a forged text may have any number of digits.
    if len(text) > _LONGEST or not all(part.isascii() and part.isdigit() for part in (period, at_ms)):
        fields.damaged(item, name, "a period and a time")
    return WarningMark(int(period), int(at_ms))
