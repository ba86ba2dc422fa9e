"""Parse the layout of a bucket item: what all buckets with the same limits have in common.

A client knows many buckets, and most of them have the same limits. So equal layouts are one object,
with its attribute names, limits and readers. A bucket stores only its own numbers.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple

from zae_limiter.core.bucket import LimitShare
from zae_limiter.core.calendar import parse_schedule
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.tracked import is_tracked
from zae_limiter.core.view import LimitLayout
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.limit_options import NO_OPTIONS, StoredOptions, options_of

_SHARED = 1024
"""The number of layouts that are cached; a bucket with another layout gets its own object."""

_BALANCES = frozenset({attributes.TOKENS, attributes.QUOTA_BALANCE})

CohortName = tuple[int, int, str]
"""The position of a limit, the end of a cohort in seconds, and the name of its attribute."""


@dataclass(frozen=True, slots=True)
class ItemLayout(LimitLayout):
    """A layout, its attribute names, and a reader of balances, totals and write counter.

    ``slot_names`` are the limits of concurrent use, with their positions. ``names_of_full_take`` are the attributes
    that a take from all limits writes.
    """

    balance_names: tuple[str, ...]
    total_names: tuple[str, ...]
    read_numbers: Callable[[Item], tuple[int, ...]]
    parent_id: str | None
    cascade: bool
    slot_names: tuple[tuple[str, int], ...]
    names_of_full_take: tuple[str, ...]

    def names_of_take(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the names of the attributes that a take from these limits writes."""
        return _names_of_take(self.balance_names, self.total_names, positions)


class _Described(NamedTuple):
    """The numbers of one limit, as stored.

    ``highest`` is None if it is the capacity. ``hold`` is 0 except for a limit of concurrent use. ``amount`` and
    ``period`` are 0 except for a rate limit. A quota has a ``schedule``, and its capacity is not in thousandths.
    """

    capacity: int
    amount: int
    period: int
    highest: int | None = None
    hold: int = 0
    schedule: str | None = None
    options: StoredOptions = NO_OPTIONS

    def limit(self, name: str) -> Limit:
        """Return the limit.

        Raises:
            ValidationError, ValueError: It is damaged.
        """
        soft, unit, warn_at = self.options.soft, self.options.unit, self.options.thresholds
        if self.schedule is not None:
            return Limit(name, self.capacity, 0, 0, 0, parse_schedule(self.schedule), unit, not soft, warn_at)
        numbers = _whole(self.capacity), _whole(self.amount), _whole(self.period)
        return Limit(name, *numbers, self.hold, None, unit, not soft, warn_at)


class _LimitNames(NamedTuple):
    """The name of a limit, and of the attributes that describe it."""

    limit_name: str
    balance: str
    capacity: str
    amount: str
    period: str
    highest: str
    hold: str
    is_quota: bool
    has_options: bool


class _Shape(NamedTuple):
    """The limits of an item, those in force first; ``in_force`` is the number of limits in force."""

    in_force: int
    limits: tuple[_LimitNames, ...]


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
    return _layout(shape, tuple([_described(item, names) for names in shape.limits]), identity)


def _described(item: Item, names: _LimitNames) -> _Described:
    """Return the numbers of one limit."""
    options = NO_OPTIONS
    if names.has_options:
        options = options_of(item, partial(attributes.bucket_attribute, names.limit_name))
    if names.is_quota:
        schedule = fields.text(item, attributes.bucket_attribute(names.limit_name, attributes.QUOTA_SCHEDULE))
        return _Described(fields.number(item, names.capacity), 0, 0, schedule=schedule, options=options)
    capacity = fields.number(item, names.capacity)
    if names.hold in item:
        return _Described(capacity, 0, 0, hold=fields.number(item, names.hold), options=options)
    rate = fields.number(item, names.amount), fields.number(item, names.period)
    return _Described(capacity, *rate, fields.optional_number(item, names.highest), options=options)


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
    fields_of: dict[str, set[str]] = {}
    for attribute in attribute_names:
        parsed = attributes.parse_bucket_attribute(attribute)
        if parsed is not None:
            fields_of.setdefault(parsed.limit_name, set()).add(parsed.field)
    names = sorted(name for name, found in fields_of.items() if not _BALANCES.isdisjoint(found))
    dormant = [name for name in names if attributes.DORMANT in fields_of[name]]
    ordered = (*(name for name in names if name not in dormant), *dormant)
    limits = tuple([_names_of(name, fields_of[name]) for name in ordered])
    return _Shape(len(names) - len(dormant), limits)


def _names_of(name: str, found: set[str]) -> _LimitNames:
    """Return the attributes of a limit that has these fields.

    Raises:
        ValueError: The limit has the balances of two kinds.
    """
    is_quota = attributes.QUOTA_BALANCE in found
    if is_quota and attributes.TOKENS in found:
        raise ValueError(f"limit {name} has two balances")
    attribute = partial(attributes.bucket_attribute, name)
    return _LimitNames(
        limit_name=name,
        balance=attribute(attributes.QUOTA_BALANCE if is_quota else attributes.TOKENS),
        capacity=attribute(attributes.QUOTA_AMOUNT if is_quota else attributes.CAPACITY),
        amount=attribute(attributes.REFILL_AMOUNT),
        period=attribute(attributes.REFILL_PERIOD),
        highest=attribute(attributes.HIGHEST_CAPACITY),
        hold=attribute(attributes.HOLD),
        is_quota=is_quota,
        has_options=not found.isdisjoint(attributes.OPTIONS),
    )


@lru_cache(_SHARED)
def _layout(shape: _Shape, described: tuple[_Described, ...], identity: _Identity) -> ItemLayout:
    names = [one.limit_name for one in shape.limits]
    limits = [one.limit(name) for name, one in zip(names, described, strict=True)]
    highest = [
        limit.capacity_milli if one.highest is None else one.highest
        for limit, one in zip(limits, described, strict=True)
    ]
    balance_names = tuple([one.balance for one in shape.limits])
    total_names = tuple([attributes.bucket_attribute(name, attributes.TOTAL_CONSUMED) for name in names])
    return ItemLayout(
        shares=tuple([LimitShare.of(limit, identity.shard, identity.shard_count) for limit in limits]),
        positions={name: position for position, name in enumerate(names)},
        limits=tuple(limits[: shape.in_force]),
        stamp=identity.stamp,
        digest=identity.digest,
        shard=identity.shard,
        shard_count=identity.shard_count,
        fill_time_ms=identity.fill_time_ms,
        highest=tuple(highest),
        slots=tuple([position for position, limit in enumerate(limits) if limit.hold_seconds]),
        quotas=tuple([position for position, limit in enumerate(limits) if limit.is_quota]),
        tracked=tuple([position for position, limit in enumerate(limits) if is_tracked(limit)]),
        is_mixed=not all(limit.kind == "rate" and limit.enforce for limit in limits),
        balance_names=balance_names,
        total_names=total_names,
        read_numbers=_reader((*balance_names, *total_names, attributes.WRITE_COUNTER)),
        parent_id=identity.parent_id,
        cascade=identity.cascade,
        slot_names=tuple([(limit.name, at) for at, limit in enumerate(limits) if limit.hold_seconds]),
        names_of_full_take=_names_of_take(balance_names, total_names, range(len(limits))),
    )


def _names_of_take(
    balance_names: Sequence[str], total_names: Sequence[str], positions: Sequence[int]
) -> tuple[str, ...]:
    names = [name for at in positions for name in (balance_names[at], total_names[at])]
    return (attributes.WRITE_COUNTER, attributes.NONCE, attributes.TTL, *names)


def _reader(names: tuple[str, ...]) -> Callable[[Item], tuple[int, ...]]:
    return itemgetter(*names)


def _whole(milli: int) -> int:
    whole, rest = divmod(milli, 1000)
    if rest:
        raise ValueError(f"{milli} is not a whole number of thousands")
    return whole
