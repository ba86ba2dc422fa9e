"""Buckets of the old layout: next to their entity, several limits in one item, a burst next to the capacity."""

from collections.abc import Mapping
from typing import Any, NamedTuple

START_MS = 1_700_000_000_000


class OldLimit(NamedTuple):
    """One limit of an old bucket, in tokens and seconds, and the balance as of the baseline, in millitokens."""

    balance_milli: int
    capacity: int
    burst: int
    refill_amount: int
    period_s: int = 60
    total_milli: int = 5_000


def old_bucket(
    namespace_id: str,
    entity_id: str,
    resource: str,
    limits: Mapping[str, OldLimit],
    **others: Any,
) -> dict[str, Any]:
    """Return the item of an old bucket."""
    pk = f"{namespace_id}/ENTITY#{entity_id}"
    item: dict[str, Any] = {
        "PK": pk,
        "SK": f"#BUCKET#{resource}",
        "entity_id": entity_id,
        "resource": resource,
        "rf": START_MS,
        "GSI2PK": f"{namespace_id}/RESOURCE#{resource}",
        "GSI2SK": f"BUCKET#{entity_id}",
        "GSI4PK": namespace_id,
        "GSI4SK": pk,
    }
    for name, limit in limits.items():
        item[f"b_{name}_tk"] = limit.balance_milli
        item[f"b_{name}_cp"] = limit.capacity * 1000
        item[f"b_{name}_bx"] = limit.burst * 1000
        item[f"b_{name}_ra"] = limit.refill_amount * 1000
        item[f"b_{name}_rp"] = limit.period_s * 1000
        item[f"b_{name}_tc"] = limit.total_milli
    return item | others


def old_level_milli(limit: OldLimit, now_ms: int) -> int:
    """Return the level in the old layout: the balance plus refill, at most the burst."""
    refilled = (now_ms - START_MS) * limit.refill_amount * 1000 // (limit.period_s * 1000)
    return min(limit.burst * 1000, limit.balance_milli + refilled)
