"""Buckets with quotas and soft limits: their limits, and what their items hold, computed here and not by the code."""

from collections.abc import Mapping
from typing import Any

from tests.one_bucket import NOON, after, at, stored, view
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.limit import Limit
from zae_limiter.core.tracked import Refund
from zae_limiter.schema import bucket_writes

RPM = Limit("rpm", 100, 100, 60)
SOFT = Limit("soft", 10, 10, 60, enforce=False)
SPEND = Limit.quota("spend", 100, every="day")
TRIAL = Limit.quota("trial", 10, every="day", enforce=False)
TERMS = stored(RPM, SOFT, SPEND, TRIAL)
AT_RPM, AT_SOFT, AT_SPEND, AT_TRIAL = range(4)
"""The positions of the limits, which are sorted by name."""

DAY_S = 86_400
TODAY_S = 1_699_920_000
"""The first second of the day of NOON, in UTC. NOON is 80,000 seconds later."""

TOMORROW_S = TODAY_S + DAY_S
TOMORROW = TOMORROW_S * 1000
TODAY_EPOCH, TOMORROW_EPOCH = 2 * TODAY_S, 2 * TOMORROW_S
MOST_SPENT = 5 * 10**17 - 1


def qk(epoch: int, spent: int = 0) -> int:
    """Return the stored number of a quota that has spent an amount of an epoch."""
    return -(10**18) * epoch - spent


def numbers(item: Mapping[str, Any], name: str = "spend") -> tuple[int, int]:
    """Return the stored number of a quota, and what it has counted, in thousandths."""
    return item[f"b_{name}_qk"], item[f"b_{name}_tc"]


def tokens(item: Mapping[str, Any], name: str = "soft") -> tuple[int, int]:
    """Return the stored balance of a rate limit, and what it has counted, in thousandths."""
    return item[f"b_{name}_tk"], item[f"b_{name}_tc"]


def settled(
    item: dict[str, Any], debits: Mapping[str, int], refunds: tuple[Refund, ...] = (), now_ms: int = NOON
) -> dict[str, Any]:
    """Return the item after debits of whole units, and refunds."""
    seen = view(item, now_ms)
    owed = tuple((name, amount * 1000) for name, amount in debits.items())
    parts = settle(seen, Settlement(owed, (), item["bi"], (), 0, refunds), at(now_ms), 0)
    return after(bucket_writes.settle(seen, parts, 5), item)
