"""Buckets with slots: their limits, and what their items hold, read here and not by the code under test."""

from typing import Any

from tests.many_shards import shard_of
from tests.one_bucket import stored
from zae_limiter.core.limit import Limit

RPM = Limit("rpm", 100, 100, 60)
SLOTS = Limit.concurrent("slots", 4, hold_seconds=10)
TERMS = stored(RPM, SLOTS)
ONE = {"rpm": 1, "slots": 1}
HOLD_MS = 10_000
WIDTH_MS = 5_000


def slots_of(*limits: Limit, ttl: int = 0, stamp: int = 1) -> Any:
    return stored(RPM, *limits, ttl=ttl, stamp=stamp)


def cohorts(item: dict[str, Any], name: str = "slots") -> dict[int, int]:
    """Return the slots in use by their end, read here and not by the code under test."""
    prefix = f"b_{name}_h"
    ends = [key[len(prefix) :] for key in item if key.startswith(prefix)]
    return {int(end): item[prefix + end] for end in ends if end.isdigit()}


def sum_of(item: dict[str, Any], name: str = "slots") -> int:
    """Return the balance and all slots in use."""
    return int(item[f"b_{name}_tk"]) + sum(cohorts(item, name).values())


def share_of(item: dict[str, Any], name: str = "slots") -> int:
    """Return the shard's part of the capacity, in whole slots."""
    whole, shard, count = item[f"b_{name}_cp"] // 1000, shard_of(item), item["shard_count"]
    while count > 1:
        whole, shard, count = (whole // 2 if shard % 2 else -(-whole // 2)), shard // 2, count // 2
    return int(whole) * 1000
