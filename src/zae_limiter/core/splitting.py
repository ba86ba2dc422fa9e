"""Split one shard into two, and merge two into one: compute each limit's balance without making or losing tokens.

Both shards of a split keep the baseline. So together they earn what the one shard would have
earned. The level is halved between them at one time. From then on each shard is limited to its own
share of the capacity.
"""

from typing import Any

from zae_limiter.core.add_or_set import Add, Part, Reset
from zae_limiter.core.bucket import Baseline, LimitShare, TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.slots import Cohorts, MixedView, expired
from zae_limiter.core.tracked import merge_quota, proven, split_quota
from zae_limiter.core.view import View


@dataclass(slots=True)
class Splitting:
    """A split: the shard count of both shards after it, the new shard's number and balances, the old shard's parts.

    ``cohorts`` are the slots in use that the new shard gets, by position of the limit.
    """

    shard_count: int
    new_shard: int
    new_balances: list[int]
    parts: list[Part]
    cohorts: dict[int, Cohorts] = field(default_factory=dict)


@dataclass(slots=True)
class Merging:
    """A merge: shard count, baseline and fill time after it, and the parts of the shard that stays.

    ``leaving`` is the lowest and the highest balance of each limit of the shard that is deleted;
    None is no bound. ``highest`` is the largest capacity each limit ever had on either shard.
    ``cohorts`` are the slots in use that the shard that stays gets, by position of the limit.
    ``seen`` are all slots in use of the other one.
    """

    shard_count: int
    start_ms: int
    fill_time_ms: int
    highest: list[int]
    parts: list[Part]
    leaving: list[tuple[int, int | None]]
    cohorts: dict[int, Cohorts] = field(default_factory=dict)
    seen: dict[int, Cohorts] = field(default_factory=dict)


def split(view: View[Any], now: TimeBounds) -> Splitting | None:
    """Return the split of a shard, None if the bucket has the maximum number of shards, or a saturated quota."""
    layout = view.layout
    shard, count = layout.shard, layout.shard_count * 2
    if count > MOST_SHARDS:
        return None
    result = Splitting(count, shard + layout.shard_count, [], [])
    at_ms = now[0]
    for position, baseline in enumerate(layout.baselines):
        balance = view.numbers[position]
        if isinstance(view, MixedView) and position in view.cohorts:
            _split_slots(view, position, result)
            continue
        if position in layout.shared.quotas:
            quota = split_quota(view, position, LimitShare.of(baseline.limit, result.new_shard, count), at_ms)
            if quota is None:
                return None
            result.new_balances.append(quota[0])
            result.parts.append(quota[1])
            continue
        earned = baseline.earned(at_ms)
        level = baseline.level(balance, at_ms)
        half = max(0, level) // 2
        off = Baseline.of(baseline.limit, layout.start_ms, result.new_shard, count)
        # The new shard has earned ``new`` of what the old one had. Subtracting it from one balance
        # and adding it to the other keeps the sum of both levels exact.
        new = off.earned(at_ms)
        result.new_balances.append(half - new)
        ceiling = baseline.capacity_milli - earned
        if balance > ceiling:
            rest = baseline.capacity_milli - half - (earned - new)
            result.parts.append(Reset(position, 0, rest, ceiling + 1))
        elif level >= 0:
            # What is left must fit the share that is left. A credit since the view was seen may
            # exceed it.
            fits = baseline.capacity_milli - off.capacity_milli + half - earned
            result.parts.append(Add(position, 0, new - half, half - earned, min(ceiling, fits)))
        else:
            # The whole debt stays with the old shard, so it must be exactly the debt that was seen.
            result.parts.append(Add(position, 0, new - half, balance, balance))
    return result


def _split_slots(view: MixedView[Any], position: int, result: Splitting) -> None:
    """Move half of the free slots, and as many slots in use as the new shard's share needs beside them.

    Hazard: once the capacity was lowered, the free slots of the old shard may be negative. A new shard with only free
    slots would then admit too much for good.
    """
    before = view.layout.shared.shares[position]
    new = LimitShare.of(before.limit, result.new_shard, result.shard_count).capacity_milli
    free = view.numbers[position]
    # At least what the old shard's new share cannot hold, at most what the new shard's share can.
    kept = before.capacity_milli - new
    moved = min(max(0, free) // 2000 * 1000, new)
    moved = max(moved, free - kept)
    if free < 0:
        # Hazard: if the old shard kept all slots beyond its share, the new one would admit too much once
        # the capacity is raised again. So both get half of the slots in use, as of any share.
        moved = new - (before.capacity_milli - free) // 2000 * 1000
    result.new_balances.append(moved)
    result.parts.append(Add(position, 0, -moved, moved if moved > 0 else None, None))
    left, cohorts = new - moved, []
    for end_s, milli in reversed(view.cohorts[position]):
        part = min(left, milli)
        if part > 0:
            cohorts.append((end_s, part))
            left -= part
    result.cohorts[position] = tuple(sorted(cohorts))


def _merge_slots(leaving: MixedView[Any], position: int, start_ms: int, result: Merging) -> None:
    """Add the free slots of the shard that is deleted, and its slots in use, to the shard that stays."""
    free, cohorts = leaving.numbers[position], leaving.cohorts[position]
    over = expired(cohorts, start_ms)
    result.leaving.append((free, free))
    result.parts.append(Add(position, 0, free + sum(milli for _, milli in over), None, None))
    result.cohorts[position] = tuple([one for one in cohorts if one not in over])
    result.seen[position] = cohorts


def merge(staying: View[Any], leaving: View[Any], now: TimeBounds) -> Merging | None:
    """Return the merge of two shards, None if they are not the halves of one shard or have different limits.

    None as well if a quota would be saturated.
    """
    one, other = staying.layout, leaving.layout
    if not _are_halves(staying, leaving):
        return None
    start_ms = max(now[0], one.start_ms, other.start_ms)
    fill_time_ms = max(one.fill_time_ms, other.fill_time_ms)
    highest = [max(pair) for pair in zip(one.highest, other.highest, strict=True)]
    result = Merging(one.shard_count // 2, start_ms, fill_time_ms, highest, [], [])
    for position, (stays, goes) in enumerate(zip(one.baselines, other.baselines, strict=True)):
        if isinstance(leaving, MixedView) and position in leaving.cohorts:
            _merge_slots(leaving, position, now[0], result)
            continue
        if position in one.shared.quotas:
            quota = merge_quota(staying, leaving, position, proven((staying, leaving), now)[0])
            if quota is None:
                return None
            result.parts.append(quota[0])
            result.leaving.append(quota[1])
            continue
        brought = goes.level(leaving.numbers[position], start_ms)
        seen = leaving.numbers[position]
        full_at = goes.capacity_milli - goes.earned(start_ms) + 1
        # The other shard is deleted. So its balance must be the one that is brought over. It is
        # exactly as seen, or still full: a full shard brings its capacity at any balance above it.
        result.leaving.append((full_at, None) if seen >= full_at else (seen, seen))
        earned = stays.earned(start_ms)
        ceiling = stays.capacity_milli - earned
        if staying.numbers[position] > ceiling:
            result.parts.append(Reset(position, 0, stays.capacity_milli + brought, ceiling + 1))
        else:
            result.parts.append(Add(position, 0, earned + brought, None, ceiling))
    return result


def _are_halves(staying: View[Any], leaving: View[Any]) -> bool:
    one, other = staying.layout, leaving.layout
    halves = one.shard_count == other.shard_count > 1 and other.shard == one.shard + one.shard_count // 2
    same = one.stamp == other.stamp and one.digest == other.digest and one.limits == other.limits
    names = [baseline.limit for baseline in one.baselines] == [baseline.limit for baseline in other.baselines]
    return halves and same and names
