"""Parse the layout of a bucket item: what all buckets with the same limits have in common.

A client knows many buckets, and most of them have the same limits. So equal layouts are one object,
with its attribute names, limits and readers. A bucket stores only its own numbers.
"""

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from zae_limiter.core.bucket import LimitShare
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.view import LimitLayout
from zae_limiter.schema import attributes, fields, keys

_SHARED = 1024
"""The number of layouts that are cached; a bucket with another layout gets its own object."""

_Described = tuple[int, int, int, int | None, int]
"""Capacity, refill amount, refill period, highest capacity and hold of one limit.

The highest capacity is None if it is the current capacity. The hold is 0 for a rate limit. The refill amount and the
period are 0 for a limit of concurrent use.
"""

CohortName = tuple[int, int, str]
"""The position of a limit, the end of a cohort in seconds, and the name of its attribute."""


@dataclass(frozen=True, slots=True)
class ItemLayout(LimitLayout):
    """A layout, its attribute names, and a reader of balances, totals and write counter.

    ``slot_names`` are the limits of concurrent use, with their positions.
    """

    balance_names: tuple[str, ...]
    total_names: tuple[str, ...]
    read_numbers: Callable[[Item], tuple[int, ...]]
    parent_id: str | None
    cascade: bool
    slot_names: tuple[tuple[str, int], ...]


class _Shape(NamedTuple):
    """The limits of an item, those in force first, and the names of the attributes that describe each.

    ``in_force`` is the number of limits in force.
    """

    in_force: int
    names: tuple[str, ...]
    described_by: tuple[tuple[str, str, str, str, str], ...]


class _Identity(NamedTuple):
    """What a layout depends on besides its limits."""

    stamp: int
    digest: str
    shard: int
    shard_count: int
    fill_time_ms: int
    parent_id: str | None
    cascade: bool


def limit_layout_of(item: Item) -> ItemLayout:
    """Return the layout of a bucket item; equal layouts are the same object.

    Raises:
        CorruptItemError, KeyError, ValueError, ValidationError: The item is not a bucket, or is damaged.
    """
    shard, shard_count = owner_of(item).shard_id, shard_count_of(item)
    if shard >= shard_count:
        raise ValueError(f"shard {shard} of {shard_count} does not exist")
    identity = _Identity(
        fields.number(item, attributes.STAMP),
        fields.text(item, attributes.OWN_LIMITS_DIGEST),
        shard,
        shard_count,
        fields.number(item, attributes.FILL_TIME),
        fields.optional_text(item, attributes.PARENT_ID),
        fields.flag(item, attributes.CASCADE),
    )
    shape = _shape(tuple(item))
    # Hazard: 1, 1.0 and True are equal as keys of the cache. So the types are checked before the
    # lookup.
    return _layout(shape, tuple([_described(item, *names) for names in shape.described_by]), identity)


def _described(item: Item, capacity: str, amount: str, period: str, highest: str, hold: str) -> _Described:
    """Return the numbers of one limit; the arguments are the names of its attributes."""
    if hold in item:
        return fields.number(item, capacity), 0, 0, None, fields.number(item, hold)
    rate = fields.number(item, amount), fields.number(item, period)
    return fields.number(item, capacity), *rate, fields.optional_number(item, highest), 0


@lru_cache(_SHARED)
def cohort_names(slot_names: tuple[tuple[str, int], ...], attribute_names: tuple[str, ...]) -> tuple[CohortName, ...]:
    """Return the cohorts of an item with these attributes, by their end; ``slot_names`` are those of its layout.

    All items with the same holds have the same few cohorts at a time.
    """
    found, positions = [], dict(slot_names)
    for name in attribute_names:
        parsed = attributes.parse_cohort_attribute(name)
        position = None if parsed is None else positions.get(parsed.limit_name)
        if parsed is not None and position is not None:
            found.append((position, parsed.end_s, name))
    return tuple(sorted(found))


def shard_count_of(item: Item) -> int:
    """Return the shard count of an item: a power of two, at most ``MOST_SHARDS``.

    Raises:
        CorruptItemError: The item has no such number.
    """
    count = fields.number(item, attributes.SHARD_COUNT)
    # Readers read this many keys, so a damaged or hostile item must not cause more than MOST_SHARDS
    # reads.
    if not 0 < count <= MOST_SHARDS or count & (count - 1):
        fields.damaged(item, attributes.SHARD_COUNT, f"a power of two up to {MOST_SHARDS}")
    return count


def owner_of(item: Item) -> keys.BucketKey:
    """Return the owner and the shard of a bucket item.

    Raises:
        CorruptItemError, ValueError: Its key is not the key of a bucket.
    """
    owner = keys.parse_bucket_pk(fields.text(item, "PK"))
    if owner is None:
        raise ValueError("its key is not the key of a bucket")
    return owner


@lru_cache(_SHARED)
def _shape(attribute_names: tuple[str, ...]) -> _Shape:
    """Return the shape of an item with these attributes. The write counter is not a limit."""
    found = (attributes.parse_bucket_attribute(name) for name in attribute_names)
    names = sorted(one.limit_name for one in found if one is not None and one.field == attributes.TOKENS)
    dormant = [name for name in names if attributes.bucket_attribute(name, attributes.DORMANT) in attribute_names]
    ordered = (*(name for name in names if name not in dormant), *dormant)
    described_by = [
        (
            attributes.bucket_attribute(name, attributes.CAPACITY),
            attributes.bucket_attribute(name, attributes.REFILL_AMOUNT),
            attributes.bucket_attribute(name, attributes.REFILL_PERIOD),
            attributes.bucket_attribute(name, attributes.HIGHEST_CAPACITY),
            attributes.bucket_attribute(name, attributes.HOLD),
        )
        for name in ordered
    ]
    return _Shape(len(names) - len(dormant), ordered, tuple(described_by))


@lru_cache(_SHARED)
def _layout(shape: _Shape, described: tuple[_Described, ...], identity: _Identity) -> ItemLayout:
    limits = [
        Limit(name, _whole(capacity), _whole(amount), _whole(period), hold)
        for name, (capacity, amount, period, _, hold) in zip(shape.names, described, strict=True)
    ]
    highest = [limit.capacity_milli if one[3] is None else one[3] for limit, one in zip(limits, described, strict=True)]
    balance_names = tuple([attributes.bucket_attribute(name, attributes.TOKENS) for name in shape.names])
    total_names = tuple([attributes.bucket_attribute(name, attributes.TOTAL_CONSUMED) for name in shape.names])
    return ItemLayout(
        shares=tuple([LimitShare.of(limit, identity.shard, identity.shard_count) for limit in limits]),
        positions={name: position for position, name in enumerate(shape.names)},
        limits=tuple(limits[: shape.in_force]),
        stamp=identity.stamp,
        digest=identity.digest,
        shard=identity.shard,
        shard_count=identity.shard_count,
        fill_time_ms=identity.fill_time_ms,
        highest=tuple(highest),
        slots=tuple([position for position, limit in enumerate(limits) if limit.hold_seconds]),
        balance_names=balance_names,
        total_names=total_names,
        read_numbers=_reader((*balance_names, *total_names, attributes.WRITE_COUNTER)),
        parent_id=identity.parent_id,
        cascade=identity.cascade,
        slot_names=tuple([(limit.name, at) for at, limit in enumerate(limits) if limit.hold_seconds]),
    )


def _reader(names: tuple[str, ...]) -> Callable[[Item], tuple[int, ...]]:
    return itemgetter(*names)


def _whole(milli: int) -> int:
    whole, rest = divmod(milli, 1000)
    if rest:
        raise ValueError(f"{milli} is not a whole number of thousands")
    return whole
