"""Splits of shards with more slots in use than their share."""

from tests.one_bucket import NOON, OWNER, stored
from zae_limiter.core.limit import Limit
from zae_limiter.core.splitting import split
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.bucket_writes import Signature


def test_split_of_a_shard_with_too_many_slots_in_use_divides_them() -> None:
    """Both shards get half of the slots in use, so that neither admits too much if the capacity is raised again."""
    slots = Limit.concurrent("slots", 1, hold_seconds=5)
    item = dict(bucket_writes.create(OWNER, stored(slots), {}, NOON, Signature(1, 1)).item)
    item |= {"b_slots_tk": -2_000, f"b_slots_h{NOON // 1000 + 6}": 3_000}

    splitting = split(view_of(item, NOON, None), (NOON, NOON))

    assert splitting is not None
    assert ([-1_000], {0: ((NOON // 1000 + 6, 1_000),)}) == (splitting.new_balances, splitting.cohorts)
