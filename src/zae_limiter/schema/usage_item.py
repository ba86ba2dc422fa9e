"""Convert usage snapshots to items and back, and describe the write that adds to one.

A change may be delivered more than once. A snapshot stores, per shard of the bucket, the sequence
of the last change that it has counted (``s_{shard}``). An addition requires that this marker is
unchanged, and advances it in the same write. So every change is counted once.

The most slots in use at a time are stored per shard too (``~{shard}~{limit}``). Only who advances
the marker of a shard changes them. So the largest one stays, although it is read before it is set.
"""

from collections.abc import Mapping
from functools import lru_cache

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.names import USAGE_ATTRIBUTES
from zae_limiter.core.outcome import Item
from zae_limiter.core.usage import UsageSnapshot, Window
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import AttributeAbsent, Condition, Equals, Key, Update

SEQUENCE_LENGTH = 40
"""Sequence numbers are padded with zeros to this length, so that they compare as text."""

_MARKERS = 64
_TOTAL_EVENTS = "total_events"
_PART = "~"
"""Prefix of a counter of millitokens short of a whole token, and of the most slots in use.

No limit name begins with it, and readers ignore what they do not know behind it.
"""


@dataclass(frozen=True, slots=True)
class AddUsage:
    """What one shard of a bucket took in one window, by limit.

    It sums ``events`` changes, of which ``sequence`` is the last. ``in_use_milli`` are the most slots in use at a time,
    None if the bucket has no limit of concurrent use.
    """

    bucket: keys.BucketKey
    window: Window
    spent_milli: Mapping[str, int]
    events: int
    sequence: str
    in_use_milli: Mapping[str, int] | None = None

    @property
    def key(self) -> Key:
        """The key of the snapshot."""
        return snapshot_key(self.bucket, self.window)


def snapshot_key(bucket: keys.BucketKey, window: Window) -> Key:
    """Return the key of the snapshot that counts a bucket in a window."""
    return Key(keys.pk_entity(bucket.namespace_id, bucket.entity_id), keys.sk_usage(bucket.resource, window.key))


def add(usage: AddUsage, seen: str | None, ttl_s: int | None, item: Item | None = None) -> Update:
    """Add to a snapshot, or create it.

    ``seen`` is the shard's marker in it, None if it has none yet. ``item`` is the snapshot as it was
    seen with it, None if absent.
    """
    marker = attributes.sequence_attribute(usage.bucket.shard_id)
    # Hazard: two functions may count the same change at the same time. Only the first one finds the
    # marker that it read; the other is refused, reads again, and skips what is counted.
    expiry = {} if ttl_s is None else {attributes.TTL: ttl_s}
    key = usage.key
    return Update(
        key,
        add={**_counted(usage.spent_milli), _TOTAL_EVENTS: usage.events},
        set={**_description(usage, key), **expiry, **_raised(usage, item or {}), marker: pad_sequence(usage.sequence)},
        when=_not_counted(marker) if seen is None else (Equals(marker, seen),),
    )


def last_counted(item: Item, shard_id: int) -> str | None:
    """Return the last change of a shard that a snapshot has counted, None if it has counted none.

    Raises:
        CorruptItemError: The marker is damaged.
    """
    marker = attributes.sequence_attribute(shard_id)
    # A forged marker may be null. The write that counts would then be refused forever.
    return fields.text(item, marker) if marker in item else None


def pad_sequence(sequence: str) -> str:
    """Return a sequence number that compares as text."""
    return sequence.zfill(SEQUENCE_LENGTH)


def from_item(item: Item) -> UsageSnapshot:
    """Return the snapshot of an item.

    Raises:
        CorruptItemError: The item is damaged.
    """
    return UsageSnapshot(
        entity_id=fields.text(item, attributes.ENTITY_ID),
        resource=fields.text(item, attributes.RESOURCE),
        window_start=fields.text(item, "window_start"),
        window_end=fields.text(item, "window_end"),
        window_type=fields.text(item, "window"),
        counters={name: value + _whole(item, name) for name, value in item.items() if _is_counter(name, value)},
        total_events=fields.number(item, _TOTAL_EVENTS),
        highest_in_use=_highest_in_use(item),
    )


def _is_counter(name: str, value: object) -> bool:
    described = name in USAGE_ATTRIBUTES or attributes.parse_sequence_attribute(name) is not None
    return type(value) is int and not described and not name.startswith(_PART)


def _counted(spent_milli: Mapping[str, int]) -> dict[str, int]:
    """Return the additions to the counters of a snapshot: whole tokens, and separately the rest in millitokens."""
    counted = {}
    for name, milli in spent_milli.items():
        counted[name], part = divmod(milli, 1000)
        if part:
            counted[_PART + name] = part
    return counted


def _whole(item: Item, name: str) -> int:
    """Return the whole tokens that the millitokens of all shards add up to."""
    part = item.get(_PART + name, 0)
    return part // 1000 if type(part) is int else 0


def _raised(usage: AddUsage, item: Item) -> dict[str, int]:
    """Return the numbers of slots in use that are higher than those of a snapshot, by attribute."""
    if not usage.in_use_milli:
        return {}
    raised = {}
    for name, milli in usage.in_use_milli.items():
        attribute = f"{_PART}{usage.bucket.shard_id}{_PART}{name}"
        known = item.get(attribute)
        if type(known) is not int or known < milli:
            raised[attribute] = milli
    return raised


def _highest_in_use(item: Item) -> dict[str, int]:
    """Return the most slots that were in use at a time, by limit: the sum over shards of the highest of each."""
    highest: dict[str, int] = {}
    for attribute, milli in item.items():
        shard, separator, name = attribute[1:].partition(_PART)
        if attribute[:1] == _PART and separator and shard.isdigit() and type(milli) is int:
            highest[name] = highest.get(name, 0) + milli
    return {name: -(-milli // 1000) for name, milli in highest.items()}


@lru_cache(_MARKERS)
def _not_counted(marker: str) -> tuple[Condition, ...]:
    """Require that nothing of a shard was counted yet; all first additions of a shard share it."""
    return (AttributeAbsent(marker),)


def _description(usage: AddUsage, key: Key) -> dict[str, str]:
    bucket, window = usage.bucket, usage.window
    listed = keys.gsi4_sk_usage(window.key, bucket.entity_id, bucket.resource)
    return {
        attributes.ENTITY_ID: bucket.entity_id,
        attributes.RESOURCE: bucket.resource,
        "window": window.type,
        "window_start": window.start,
        "window_end": window.end,
        "GSI2PK": keys.gsi2_pk_resource(bucket.namespace_id, bucket.resource),
        "GSI2SK": keys.gsi2_sk_usage(window.key, bucket.entity_id),
        **keys.gsi4_attributes(key.pk, listed),
    }
