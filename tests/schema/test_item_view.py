"""A view that keeps the item: its numbers, and what it learns of other clients from the answer to its own write."""

from typing import Any

from tests.one_bucket import NOON, created, stored, view
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import Pace
from zae_limiter.schema.item_view import ItemView
from zae_limiter.schema.prepared_takes import prepare

RPM, SLOTS = Limit("rpm", 100, 100, 60), Limit.concurrent("slots", 4, hold_seconds=10)
TERMS = stored(RPM, SLOTS, ttl=3)
END_S = NOON // 1000 + 10
ITEM = created(TERMS, {"rpm": 10, "slots": 1})
LAYOUT = view(ITEM, terms=TERMS).layout
PREPARED = prepare(LAYOUT, TERMS, ITEM, NOON)


def seen(pace: Pace | None = None) -> ItemView:
    """Return the view of the item at noon."""
    return ItemView(LAYOUT, ITEM, NOON, pace, PREPARED)


def written(writes: int, rpm: int, **others: Any) -> dict[str, Any]:
    """Return the item after this many writes, which have taken this many tokens together."""
    changed = {"b_rpm_tk": ITEM["b_rpm_tk"] - rpm * 1_000, "b_rpm_tc": ITEM["b_rpm_tc"] + rpm * 1_000}
    return {**ITEM, **changed, "b_wcu_tc": ITEM["b_wcu_tc"] + writes, **others}


def test_item_view_reads_the_numbers_of_its_item() -> None:
    """Balances, then totals, then the write counter; the creation was the first write."""
    found = seen()

    assert (90_000, 3_000, 10_000, 1_000, 1) == found.numbers
    assert {1: ((END_S, 1_000),)} == found.cohorts
    assert (ITEM["ttl"], 1) == (found.expires_s, found.writes)


def test_item_view_of_an_item_without_expiry_has_none() -> None:
    """An entity with limits of its own keeps its bucket."""
    terms = stored(RPM, SLOTS)
    item = created(terms)

    assert ItemView(view(item, terms=terms).layout, item, NOON, None, None).expires_s is None


def test_item_view_after_the_own_write_alone_knows_no_pace() -> None:
    """The counter rose by one, so no other client has written. The next take stays prepared."""
    item = written(1, 2)
    found = seen().after_write(item, [(0, 2_000)], NOON + 1_000)

    assert PREPARED is not None
    assert (LAYOUT, item, NOON + 1_000, None, PREPARED) == (
        found.layout,
        found.item,
        found.seen_ms,
        found.pace,
        found.prepared,
    )


def test_item_view_after_a_write_of_another_client_knows_its_pace() -> None:
    """Of 7 tokens, 2 were taken here. The other 5 were taken in one write within a second."""
    found = seen().after_write(written(2, 7), [(0, 2_000)], NOON + 1_000)

    assert Pace((5_000.0, 0.0), 1, 1_000) == found.pace


def test_item_view_with_a_pace_forgets_half_of_it_in_two_seconds() -> None:
    """Others have written nothing since."""
    known = Pace((5_000.0, 0.0), 1, 1_000)
    found = seen(known).after_write(written(1, 2), [(0, 2_000)], NOON + 2_000)

    assert Pace((2_500.0, 0.0), 0.5, 2_500.0) == found.pace


def test_item_view_with_another_cohort_has_no_prepared_take() -> None:
    """Another client has added an attribute, so the item is not the one that takes were prepared for."""
    item = written(2, 2, **{f"b_slots_h{END_S + 5}": 1_000})

    assert seen().after_write(item, [(0, 2_000)], NOON + 1_000).prepared is None
