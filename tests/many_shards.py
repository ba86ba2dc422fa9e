"""One bucket of several shards without a driver: splits and merges applied to its items, and their total level.

Levels are computed here, in integers, and not by the code under test.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from random import Random
from typing import Any

from tests.one_bucket import NOON, created
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.splitting import Merging, Splitting, merge, split
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.keys import parse_bucket_pk
from zae_limiter.tables import evaluate

Item = dict[str, Any]
Items = dict[int, Item]

_nonces = count(1)


def shard_of(item: Mapping[str, Any]) -> int:
    """Return the number of a shard."""
    found = parse_bucket_pk(item["PK"])
    assert found is not None
    return found.shard_id


def part_of(whole: int, shard: int, shard_count: int) -> int:
    """Return the share of a shard in a whole: at every doubling the lower shard gets the larger half."""
    while shard_count > 1:
        whole, shard, shard_count = (whole // 2 if shard % 2 else -(-whole // 2)), shard // 2, shard_count // 2
    return whole


def offered(item: Mapping[str, Any], name: str, now_ms: int) -> int:
    """Return balance plus refill of a shard, even beyond its share of the capacity."""
    position = shard_of(item), item["shard_count"]
    amount, period, since_ms = item[f"b_{name}_ra"], item[f"b_{name}_rp"], item["rf"]
    grids = [part_of(at_ms * amount // period, *position) for at_ms in (since_ms, max(now_ms, since_ms))]
    held: int = item[f"b_{name}_tk"] + grids[1] - grids[0]
    return held


def level(item: Mapping[str, Any], name: str, now_ms: int) -> int:
    """Return what a shard has available."""
    return min(part_of(item[f"b_{name}_cp"], shard_of(item), item["shard_count"]), offered(item, name, now_ms))


def total(items: Mapping[int, Item], name: str, now_ms: int) -> int:
    """Return the sum of all shards, with debts subtracted and overflow included."""
    return sum(offered(item, name, now_ms) for item in items.values())


def have(items: Mapping[int, Item], name: str, now_ms: int) -> int:
    """Return what can be taken from all shards together."""
    return sum(max(0, level(item, name, now_ms)) for item in items.values())


def looks(
    items: Mapping[int, Item], seen_ms: int = NOON, terms: EffectiveLimits | None = None
) -> dict[int, BucketView]:
    """Return a view of every shard."""
    return {shard: view_of(item, seen_ms, None, terms) for shard, item in items.items()}


def splitting(items: Items, shard: int, now: TimeBounds) -> Splitting:
    """Return the decision to split a shard that may be split."""
    decided = split(view_of(items[shard], now[1], None), now)
    assert decided is not None
    return decided


def merging(items: Items, staying: int, leaving: int, now: TimeBounds) -> Merging | None:
    """Return the decision to merge two shards, None if they cannot be merged."""
    return merge(view_of(items[staying], now[1], None), view_of(items[leaving], now[1], None), now)


def after_split(items: Items, shard: int, now: TimeBounds) -> Items:
    """Return all shards after one was split by a client with an exact view."""
    decided = splitting(items, shard, now)
    old, new = bucket_writes.split(view_of(items[shard], now[1], None), decided, next(_nonces))
    return {**items, shard: applied(old, items[shard]), decided.new_shard: applied(new, {})}


def after_merge(items: Items, staying: int, leaving: int, now: TimeBounds) -> Items:
    """Return all shards after two were merged by a client with exact views."""
    decided = merging(items, staying, leaving, now)
    assert decided is not None
    seen = [view_of(items[one], now[1], None) for one in (staying, leaving)]
    stays, goes = bucket_writes.merge(seen[0], seen[1], decided, next(_nonces))
    applied(goes, items[leaving])
    return {one: item for one, item in items.items() if one != leaving} | {staying: applied(stays, items[staying])}


def applied(operation: Any, item: Item) -> Item:
    """Return the item after a write that must be applied."""
    new = evaluate.apply(operation, item)
    assert isinstance(new, dict), f"refused: {operation} by {item}"
    return new


def grown(terms: EffectiveLimits, order: Iterable[int], now: TimeBounds = (NOON, NOON)) -> Items:
    """Return a full bucket after splits of these shards, each number taken modulo the shards that may be split."""
    items = {0: created(terms, now_ms=now[0])}
    for number in order:
        shards = [shard for shard in sorted(items) if items[shard]["shard_count"] < 64]
        items = after_split(items, shards[number % len(shards)], now)
    return items


def shaken(items: Items, names: Iterable[str], seed: int, most: int = 3_000) -> Items:
    """Return the shards with random balances: debts, overflows, and all between."""
    random = Random(seed)
    changes = {shard: {f"b_{name}_tk": random.randint(-most, most) for name in names} for shard in sorted(items)}
    return {shard: {**item, **changes[shard]} for shard, item in items.items()}
