"""Read bucket items: convert an item to a view, and keep what stays the same between rebases.

``bucket_writes`` describes the writes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zae_limiter.core.bucket import LimitShare
from zae_limiter.core.calendar import period_at
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.levels import limit_levels
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.core.quota import LAST_EPOCH, epoch_of
from zae_limiter.core.shard_totals import ShardHolding, available, fold
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.slots import MixedView
from zae_limiter.core.status import BucketState
from zae_limiter.core.tracked import proven
from zae_limiter.core.view import NO_LIMITS, Amounts, BucketLayout, EffectiveLimits, Pace, View, pace_after
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.bucket_layout import ItemLayout, limit_layout_of, owner_of
from zae_limiter.schema.item_view import ItemView, cohorts_of
from zae_limiter.schema.operations import Key, Matches

BucketView = View["StoredLayout"]

LARGEST_NUMBER = 10**30
"""The largest balance and total in millitokens: a billion times the largest amount."""

BIRTH_BITS = 32
"""The size of a birth number, which is random."""

_HELD = (attributes.BIRTH, attributes.GENERATION)
"""The attributes that every held write requires unchanged.

Every write that changes the baseline, the limits or the shard count changes one of them.
"""

_HELD_WITHOUT_BIRTH = (
    attributes.BASELINE,
    attributes.STAMP,
    attributes.SHARD_COUNT,
    attributes.OWN_LIMITS_DIGEST,
    attributes.GENERATION,
)


@dataclass(frozen=True, slots=True)
class StoredLayout(BucketLayout):
    """A bucket layout with its item's key, and the condition of every held write.

    It stores only the partition key. All buckets have the same sort key, and a Key per bucket would
    be one more object for the garbage collector to visit.
    """

    shared: ItemLayout
    pk: str
    generation: int
    guard: Matches

    @property
    def key(self) -> Key:
        """The key of the item."""
        return Key(self.pk, keys.sk_state())

    @property
    def balance_names(self) -> tuple[str, ...]:
        """The names of the balances, in the order of the baselines."""
        return self.shared.balance_names

    @property
    def total_names(self) -> tuple[str, ...]:
        """The names of the totals, in the order of the baselines."""
        return self.shared.total_names

    @property
    def parent_id(self) -> str | None:
        """The parent of its entity, None if it has none."""
        return self.shared.parent_id

    @property
    def cascade(self) -> bool:
        """Whether an acquire also takes from the parent."""
        return self.shared.cascade

    def describes(self, item: Item) -> bool:
        """Return whether the item still has this layout."""
        return self.guard.holds(item)


@dataclass(frozen=True, slots=True)
class MixedLayout(StoredLayout):
    """The layout of a bucket with limits of several kinds. ``known`` are the limits that it was seen to follow.

    Its ``terms`` are never those of a request, so that ``next_step`` takes another path, which costs other buckets
    nothing.
    """

    known: EffectiveLimits

    @property
    def seen_terms(self) -> EffectiveLimits:
        """The limits that the bucket was seen to follow, ``NO_LIMITS`` if none are known."""
        return self.known

    def follows(self, terms: EffectiveLimits) -> bool:
        """Return whether the bucket was built from these limits."""
        return self.known is terms or self.shared.agrees(terms)


def bucket_key(namespace_id: str, entity_id: str, resource: str, shard: int = 0) -> Key:
    """Return the key of one shard of a bucket."""
    return Key(keys.pk_bucket(namespace_id, entity_id, resource, shard), keys.sk_state())


def view_after_take(before: BucketView, item: Item, amounts: Amounts, now_ms: int) -> BucketView:
    """Return the view after this client's own take; the layout is the one that the take required.

    The bucket has only enforced rate limits.
    """
    try:
        numbers = before.layout.shared.read_numbers(item)
    except KeyError as missing:
        raise CorruptItemError(fields.location(item), f"it is not a complete bucket: {missing} is missing") from None
    # The write counter rose by one, for this take. So no other client has written in between.
    if before.pace is None and numbers[-1] == before.numbers[-1] + 1:
        return View(before.layout, numbers, now_ms, None)
    return View(before.layout, numbers, now_ms, pace_after(before, numbers, amounts, now_ms))


def view_after_write(before: BucketView, item: Item, own: Amounts, now_ms: int) -> BucketView:
    """Return the view after this client's own write to a bucket of any kind, which has kept its layout."""
    layout = before.layout
    if not layout.shared.is_mixed:
        return view_after_take(before, item, own, now_ms)
    if type(before) is ItemView:
        return before.after_write(item, own, now_ms)
    try:
        numbers = layout.shared.read_numbers(item)
    except KeyError as missing:
        raise CorruptItemError(fields.location(item), f"it is not a complete bucket: {missing} is missing") from None
    if before.pace is None and numbers[-1] == before.numbers[-1] + 1:
        return _mixed_view(item, layout, numbers, now_ms, None)
    return _mixed_view(item, layout, numbers, now_ms, pace_after(before, numbers, own, now_ms))


def view_of(
    item: Item, now_ms: int, before: BucketView | None, terms: EffectiveLimits | None = None, own: Amounts = ()
) -> BucketView:
    """Return the view of an item that was read or returned by a write; ``terms`` are the caller's limits.

    ``own`` is what this client has just written to it, empty if nothing.

    Raises:
        CorruptItemError: The item is not a bucket, or is damaged.
    """
    same = before is not None and (before.layout.terms is (terms or NO_LIMITS) or before.layout.shared.is_mixed)
    if before is not None and same and before.layout.describes(item):
        numbers = _numbers(before.layout, item)
        return _view(item, before.layout, numbers, now_ms, pace_after(before, numbers, own, now_ms))
    layout = stored_layout_of(item, terms)
    # A pace has one entry per limit, so it only fits a layout with the same number of limits.
    pace = before.pace if before is not None and len(before.layout.grids) == len(layout.grids) else None
    return _view(item, layout, layout.shared.read_numbers(item), now_ms, pace)


def _view(item: Item, layout: StoredLayout, numbers: tuple[int, ...], now_ms: int, pace: Pace | None) -> BucketView:
    if layout.shared.is_mixed:
        return _mixed_view(item, layout, numbers, now_ms, pace)
    return View(layout, numbers, now_ms, pace)


def _mixed_view(
    item: Item, layout: StoredLayout, numbers: tuple[int, ...], now_ms: int, pace: Pace | None
) -> BucketView:
    """Return the view of a bucket with limits of several kinds."""
    expires_s = fields.optional_number(item, attributes.TTL)
    return MixedView(layout, numbers, now_ms, pace, cohorts_of(item, layout.shared), expires_s)


def _numbers(layout: StoredLayout, item: Item) -> tuple[int, ...]:
    """Return the balances, the totals and the write counter of an item with a known layout.

    Raises:
        CorruptItemError: One of them is missing, not an integer, or larger than any writer can make it.
    """
    try:
        numbers = layout.shared.read_numbers(item)
    except KeyError as missing:
        raise CorruptItemError(fields.location(item), f"it is not a complete bucket: {missing} is missing") from None
    for number in numbers:
        if type(number) is not int or not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
            raise CorruptItemError(fields.location(item), "a balance or a total is not an integer within bounds")
    for position in layout.shared.quotas:
        # Hazard: the calendar ends with the year 9999, and a quota of a later year would raise other errors.
        if not 0 <= epoch_of(numbers[position]) <= LAST_EPOCH:
            raise CorruptItemError(fields.location(item), f"{layout.balance_names[position]} is of no known period")
    return numbers


def stored_layout_of(item: Item, terms: EffectiveLimits | None = None) -> StoredLayout:
    """Return the layout of a bucket item.

    Raises:
        CorruptItemError: The item is not a bucket, or is damaged.
    """
    try:
        layout = _parse(item, terms or NO_LIMITS)
        _numbers(layout, item)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptItemError(fields.location(item), f"it is not a complete bucket: {error}") from error
    return layout


def _parse(item: Item, terms: EffectiveLimits) -> StoredLayout:
    shared = limit_layout_of(item)
    start_ms = fields.number(item, attributes.BASELINE)
    if fields.text(item, "SK") != keys.sk_state():
        raise ValueError("its sort key is not that of a bucket")
    known = terms if shared.agrees(terms) else NO_LIMITS
    layout = StoredLayout(
        terms=known,
        birth=_birth(item),
        shared=shared,
        start_ms=start_ms,
        grids=tuple([part.offered(start_ms) for part in shared.shares]),
        pk=item["PK"],
        generation=fields.number(item, attributes.GENERATION),
        guard=_guard(item),
    )
    return _mixed_layout(layout, known) if shared.is_mixed else layout


def _mixed_layout(layout: StoredLayout, known: EffectiveLimits) -> MixedLayout:
    return MixedLayout(
        NO_LIMITS,
        layout.birth,
        layout.shared,
        layout.start_ms,
        layout.grids,
        layout.pk,
        layout.generation,
        layout.guard,
        known,
    )


def _birth(item: Item) -> int | None:
    return fields.number(item, attributes.BIRTH) if attributes.BIRTH in item else None


def _guard(item: Item) -> Matches:
    held = _HELD if attributes.BIRTH in item else _HELD_WITHOUT_BIRTH
    return Matches(held, tuple([item[name] for name in held]))


def counts_of(shards: Iterable[Item]) -> dict[int, int]:
    """Return the counts of the shards of one bucket, by shard number. A damaged count becomes 1."""
    counts = {}
    for item in shards:
        count = item.get(attributes.SHARD_COUNT)
        counts[owner_of(item).shard_id] = count if type(count) is int and 0 < count <= MOST_SHARDS else 1
    return counts


def states_of(shards: Sequence[Item], now_ms: int) -> list[BucketState]:
    """Return the limits in force of one bucket, summed over all its shards, as users see them.

    ``now_ms`` decides in which period a quota is.

    Raises:
        CorruptItemError: A shard is not a bucket, or is damaged.
    """
    layouts = [stored_layout_of(item) for item in shards]
    owner = owner_of(shards[0])
    states = []
    for limit in newest_layout(layouts).limits:
        if limit.hold_seconds:
            states.append(_slot_state(owner, limit, _views_of(shards, layouts)))
            continue
        if limit.schedule is not None:
            states.append(_quota_state(owner, limit, _views_of(shards, layouts), now_ms))
            continue
        folded = fold(_holdings(shards, layouts, limit))
        states.append(
            BucketState(
                entity_id=owner.entity_id,
                resource=owner.resource,
                limit_name=limit.name,
                tokens_milli=folded.balance_milli,
                last_refill_ms=folded.start_ms,
                capacity_milli=limit.capacity_milli,
                refill_amount_milli=limit.refill_amount_milli,
                refill_period_ms=limit.refill_period_ms,
                total_consumed_milli=folded.total_milli,
                unit=limit.unit,
                enforce=limit.enforce,
                warn_at=limit.warn_at,
            )
        )
    return states


class LimitCapacity(NamedTuple):
    """The capacity and the level of a limit, in millitokens, and its unit, None if it has none."""

    capacity_milli: int
    level_milli: int
    unit: str | None = None


def capacity_of(shards: Sequence[Item], limit_name: str, now_ms: int) -> LimitCapacity | None:
    """Return the capacity and the level of a limit in force, None if the bucket lacks it.

    Raises:
        CorruptItemError: A shard is not a bucket, or is damaged.
    """
    layouts = [stored_layout_of(item) for item in shards]
    for limit in newest_layout(layouts).limits:
        if limit.name == limit_name and limit.hold_seconds:
            state = _slot_state(owner_of(shards[0]), limit, _views_of(shards, layouts))
            # Slots whose end has passed are free.
            ended = sum(milli for end_s, milli in state.cohorts if end_s * 1000 <= now_ms)
            return LimitCapacity(limit.capacity_milli, state.tokens_milli + ended, limit.unit)
        if limit.name == limit_name and limit.is_quota:
            quota = _quota_state(owner_of(shards[0]), limit, _views_of(shards, layouts), now_ms)
            return LimitCapacity(limit.capacity_milli, quota.tokens_milli, limit.unit)
        if limit.name == limit_name:
            level_milli = available(_holdings(shards, layouts, limit), now_ms)
            return LimitCapacity(limit.capacity_milli, level_milli, limit.unit)
    return None


def _views_of(shards: Sequence[Item], layouts: Sequence[StoredLayout]) -> list[BucketView]:
    return [_view(item, one, _numbers(one, item), 0, None) for item, one in zip(shards, layouts, strict=True)]


def _slot_state(owner: keys.BucketKey, limit: Limit, views: Sequence[BucketView]) -> BucketState:
    """Return a limit of concurrent use, summed over all shards."""
    free, total, cohorts = 0, 0, dict[int, int]()
    for view in views:
        position = view.layout.position(limit.name)
        if isinstance(view, MixedView) and position is not None and position in view.cohorts:
            free += view.numbers[position]
            total += view.total(position)
            for end_s, milli in view.cohorts[position]:
                cohorts[end_s] = cohorts.get(end_s, 0) + milli
        else:
            free += LimitShare.of(limit, view.layout.shard, view.layout.shard_count).capacity_milli
    return BucketState(
        entity_id=owner.entity_id,
        resource=owner.resource,
        limit_name=limit.name,
        tokens_milli=free,
        last_refill_ms=max(view.layout.start_ms for view in views),
        capacity_milli=limit.capacity_milli,
        refill_amount_milli=0,
        refill_period_ms=0,
        total_consumed_milli=total,
        hold_seconds=limit.hold_seconds,
        cohorts=tuple(sorted(one for one in cohorts.items() if one[1])),
        unit=limit.unit,
        enforce=limit.enforce,
        warn_at=limit.warn_at,
    )


def _quota_state(owner: keys.BucketKey, limit: Limit, views: Sequence[BucketView], now_ms: int) -> BucketState:
    """Return a quota, summed over all shards, in the period of ``now_ms`` or the later one that a shard is in."""
    now = proven(views, (now_ms, now_ms))
    terms = EffectiveLimits((limit,), -1, "", 0, {limit.name: 0})
    levels = [limit_levels(view, terms, now)[0] for view in views]
    positions = [(view, view.layout.position(limit.name)) for view in views]
    assert limit.schedule is not None, "a quota has a schedule"
    return BucketState(
        entity_id=owner.entity_id,
        resource=owner.resource,
        limit_name=limit.name,
        tokens_milli=sum(level.available_milli(now) for level in levels),
        last_refill_ms=period_at(limit.schedule, now[0] // 1000)[0] * 1000,
        capacity_milli=limit.capacity_milli,
        refill_amount_milli=0,
        refill_period_ms=0,
        total_consumed_milli=sum(view.total(position) for view, position in positions if position is not None),
        schedule=limit.schedule,
        unit=limit.unit,
        enforce=limit.enforce,
        warn_at=limit.warn_at,
        resets_at=max(level.resets_s(now) or 0 for level in levels),
    )


def newest_layout(layouts: Sequence[StoredLayout]) -> StoredLayout:
    """Return the layout with the limits in force. Shards that were not rebased yet have older limits."""
    return max(layouts, key=lambda layout: (layout.stamp, layout.start_ms))


def _holdings(shards: Sequence[Item], layouts: Sequence[StoredLayout], limit: Limit) -> list[ShardHolding]:
    """Return each shard's part of a limit."""
    holdings = []
    for item, layout in zip(shards, layouts, strict=True):
        position = layout.position(limit.name)
        if position is None:
            holdings.append(ShardHolding.untouched(limit, layout.start_ms, layout.shard, layout.shard_count))
        else:
            balance, total = item[layout.balance_names[position]], item[layout.total_names[position]]
            holdings.append(ShardHolding(layout.baseline(position), balance, total))
    return holdings
