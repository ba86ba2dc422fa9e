"""A bucket put on other limits, in one write: what becomes of each limit it had, and of each it gets.

A level is cut to the smaller of the two capacities and never raised. A limit that is taken out stays, dormant and
hidden, until it is as full as it ever could be: so taking a limit out and putting it back refills nothing, whatever its
capacity was in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.bucket import Baseline, TimeBounds
from zae_limiter.core.bucket_changes import SHORT, Add, Part, Reset, Short, expiry_s
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.sharding import share
from zae_limiter.core.view import Amounts, BucketLayout, EffectiveLimits, View

MOST_REMEMBERED = 64
"""Limits a bucket has room for, dormant ones included."""


@dataclass(slots=True)
class Fresh:
    """A limit that a bucket gets new, with the balance it starts from."""

    baseline: Baseline
    balance: int
    spent: int


@dataclass(slots=True)
class Rebasing:
    """A bucket put on other limits and a new baseline.

    ``parts`` speak of the limits that stay, ``dormant`` of those among them that are not in force; ``dropped`` of those
    that go, with the floor they must be at; ``highest`` tells the largest capacity each limit ever had, where that is
    more than it has now. ``expires_s`` None: the bucket stays. ``birth`` is the birth number that the bucket gets, None
    to leave it as it is.
    """

    terms: EffectiveLimits
    start_ms: int
    fill_time_ms: int
    expires_s: int | None
    parts: list[Part]
    added: list[Fresh]
    dropped: list[tuple[int, int]]
    dormant: list[int]
    highest: dict[str, int]
    birth: int | None = None


def missing_birth(layout: BucketLayout, first: BucketLayout | None, drawn: int) -> int | None:
    """Return the birth number that a rebase adds to a shard, None to add none.

    Shard 0 gets the number ``drawn``. Every other shard gets that of ``first``, shard 0 as it was last seen, because
    all shards of a bucket must have the same number.
    """
    if layout.birth is not None:
        return None
    if layout.shard == 0:
        return drawn
    return None if first is None else first.birth


def rebase(view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds) -> Rebasing | Short:
    """Return the rebase of a bucket to other limits, with a take in the same write, or Short if that cannot be.

    Without amounts it can always be.

    Raises:
        ValidationError: The bucket has no room for so many limits beside those it must not forget.
    """
    layout = view.layout
    start_ms = max(now[0], layout.start_ms)
    taken = {position: milli for position, milli in amounts if milli}
    wanted = {limit.name: (position, limit) for position, limit in enumerate(terms.limits)}
    expires_s = _expiry(view, terms, now)
    result = Rebasing(terms, start_ms, _fill_time(layout, terms), expires_s, [], [], [], [], {})
    for position, baseline in enumerate(layout.baselines):
        new = wanted.pop(baseline.name, None)
        part = (
            _retired(view, position, result)
            if new is None
            else _kept(view, position, (new[1], taken.get(new[0])), result)
        )
        if isinstance(part, Short):
            return SHORT
        if part is not None:
            result.parts.append(part)
    for position, limit in wanted.values():
        added = Baseline.of(limit, start_ms, layout.shard, layout.shard_count)
        spent = taken.get(position, 0)
        if spent > added.capacity_milli:
            return SHORT
        result.added.append(Fresh(added, added.capacity_milli - spent, spent))
    _check_room(result)
    return result


def _kept(view: View[Any], position: int, new: tuple[Limit, int | None], result: Rebasing) -> Part | Short:
    """Return the part of a limit that stays in force; what is taken of it is None where it is not touched."""
    limit, taken = new
    layout = view.layout
    baseline = layout.baseline(position)
    highest = max(layout.highest[position], limit.capacity_milli)
    if highest > limit.capacity_milli:
        result.highest[limit.name] = highest
    capacity = min(baseline.capacity_milli, share(limit.capacity_milli, layout.shard, layout.shard_count))
    return _moved(view, (position, taken), capacity, result)


def _retired(view: View[Any], position: int, result: Rebasing) -> Part | Short | None:
    """Return the part of a limit that is not in force any more; None if it is as full as it ever could be, and goes."""
    layout = view.layout
    baseline = layout.baseline(position)
    floor = share(layout.highest[position], layout.shard, layout.shard_count) - baseline.earned(result.start_ms)
    if view.numbers[position] >= floor:
        result.dropped.append((position, floor))
        return None
    result.dormant.append(position)
    return _moved(view, (position, None), baseline.capacity_milli, result)


def _moved(view: View[Any], spend: tuple[int, int | None], capacity: int, result: Rebasing) -> Part | Short:
    """Return the part that moves a limit to a new baseline and takes from it, Short if it holds too little."""
    position, taken = spend
    earned = view.layout.baseline(position).earned(result.start_ms)
    balance = view.numbers[position]
    spent = taken or 0
    if taken is not None and taken > min(capacity, balance + earned):
        return SHORT
    if balance > capacity - earned:
        return Reset(position, spent, capacity - spent, capacity - earned + 1)
    # A limit that nothing is taken from may owe, unless the bucket is to expire.
    low = None if taken is None and result.expires_s is None else spent - earned
    return Add(position, spent, earned - spent, low, capacity - earned)


def _check_room(result: Rebasing) -> None:
    if len(result.parts) + len(result.added) > MOST_REMEMBERED:
        names = [limit.name for limit in result.terms.limits]
        raise ValidationError(
            "limits",
            names,
            f"are too many for this bucket: it must remember {len(result.dormant)} limits that were taken out and are "
            f"not full again, and has room for {MOST_REMEMBERED}; use the same names, or wait",
        )


def _expiry(view: View[Any], terms: EffectiveLimits, now: TimeBounds) -> int | None:
    layout = view.layout
    if not terms.ttl_multiplier or layout.shard_count != 1:
        return None
    for position, baseline in enumerate(layout.baselines):
        if view.numbers[position] + baseline.earned(now[0]) < 0:
            return None
    return expiry_s(max(now[1], layout.start_ms), _fill_time(layout, terms), terms.ttl_multiplier)


def _fill_time(layout: BucketLayout, terms: EffectiveLimits) -> int:
    """Return how long the slowest limit the bucket ever had takes to fill, dormant ones to their largest capacity."""
    retired = [
        -(-highest * part.period_ms // part.amount_milli)
        for part, highest in zip(layout.shared.shares, layout.highest, strict=True)
        if part.name not in terms.positions
    ]
    return max(layout.fill_time_ms, longest_fill_ms(terms.limits), *retired)


def longest_fill_ms(limits: Iterable[Limit]) -> int:
    """Return how long the slowest of the limits takes to fill from empty."""
    return max(limit.fill_time_ms for limit in limits)
