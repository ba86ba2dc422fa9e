"""Quotas that were damaged or forged in the table: a named error, never a search through all periods."""

from typing import Any

import pytest

from tests.one_bucket import NOON, at, created, stored
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.quota import BAND, LAST_EPOCH, QuotaView, renews_s
from zae_limiter.core.quota_level import QuotaLevel
from zae_limiter.schema.bucket_item import view_of

SPEND = Limit.quota("spend", 100, every="hour")


@pytest.mark.parametrize(
    "damage",
    [
        *({"b_spend_qk": number} for number in ("many", True, None, 10**29, -(10**40), -(10**30))),
        *({"b_spend_qk": -BAND * epoch} for epoch in (-1, LAST_EPOCH + 1, 2 * 250_000_000_000 + 1)),
        *({"b_spend_qs": text} for text in (None, 5, "m1 0000 Mars/Base", "d 0000 ../../etc", "m" + "9" * 5_000)),
        *({"b_spend_qa": amount} for amount in (None, "x", 0, -5, 10**40)),
        {"b_spend_tk": 5},
        {"b_spend_tc": None},
        {"b_spend_sf": "yes"},
        {"b_spend_wa": "1 " * 10_000},
    ],
    ids=lambda damage: str(damage)[:40],
)
def test_damaged_quota_raises_corrupt_item(damage: dict[str, Any]) -> None:
    """None means that the attribute is missing."""
    item = {**created(stored(SPEND)), **damage}
    item = {name: value for name, value in item.items() if value is not None}

    with pytest.raises(CorruptItemError):
        view_of(item, NOON, None)


@pytest.mark.parametrize("begun", [0, 1], ids=["edge", "action"])
def test_quota_of_a_far_epoch_renews_at_the_edge_after_it(begun: int) -> None:
    """The edges in between are not visited, which would take hours."""
    epoch = 2 * 200_000_000_000 + begun
    schedule = SPEND.schedule
    assert schedule is not None
    seen = QuotaView(-BAND * epoch, epoch, 100, schedule.tolerance)

    found = renews_s(seen, schedule, NOON // 1000)

    assert 0 < found - epoch // 2 <= 2 * 3_600


def test_quota_that_was_reset_renews_at_the_next_edge() -> None:
    """The epoch of an action ends with the period that it is in."""
    (share,) = view_of(created(stored(SPEND)), NOON, None).layout.shared.shares
    level = QuotaLevel(share, -BAND * (2 * NOON // 1000 + 1) - 5)

    assert (NOON // 1000 // 3_600 + 1) * 3_600 == level.resets_s(at(NOON))
