"""Prepared takes and returns: what they do to an item that another client has changed."""

from typing import Any

import pytest

from tests.one_bucket import NOON, at, created, stored
from zae_limiter.core.acquire import MixedTake, Progress, next_step
from zae_limiter.core.bucket_changes import Settling
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Missing, Refused
from zae_limiter.core.slots import SlotRelease
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.prepared_takes import PreparedReturn, PreparedTake, PreparedTakes, prepare
from zae_limiter.tables import evaluate

RPM, SLOTS = Limit("rpm", 100, 100, 60), Limit.concurrent("slots", 4, hold_seconds=10)
SPEND = Limit.quota("spend", 50, every="day")
TERMS = stored(RPM, SLOTS, SPEND, ttl=3)
CONSUME = {"rpm": 1, "slots": 2, "spend": 7}
END_S = NOON // 1000 + 10
COHORT = f"b_slots_h{END_S}"
NOW_MS = NOON - 3
ITEM = created(TERMS, {"slots": 1, "spend": 1}, NOW_MS)

changes = pytest.mark.parametrize(
    "change",
    [
        {},
        {"b_slots_tk": 1_000, COHORT: 3_000},
        {"b_slots_tk": "x"},
        {"b_slots_tc": None},
        {"b_spend_tc": 1.5},
        {COHORT: None},
        {COHORT: 500},
        {f"b_slots_h{END_S + 5}": 1_000},
        {"gn": 7},
        {"bi": 9},
        {"ttl": None},
        {"b_wcu_tc": None},
        {"b_rpm_tk": -(10**9)},
    ],
    ids=str,
)


def prepared(now_ms: int = NOW_MS) -> PreparedTakes:
    """Return how the bucket is taken from."""
    found = prepare(view_of(ITEM, NOW_MS, None, TERMS).layout, TERMS, ITEM, now_ms)
    assert found is not None
    return found


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """Return the item with other values; None removes one."""
    return {name: value for name, value in {**ITEM, **change}.items() if value is not None}


def planned(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the item after a take that was planned on it; None if it is rejected."""
    seen = view_of(item, NOW_MS, None, TERMS)
    amounts = [(TERMS.positions[name], amount * 1_000) for name, amount in CONSUME.items()]
    step = next_step(seen, TERMS, amounts, at(NOW_MS), Progress(trust_ms=0, looked=True))
    if not isinstance(step, MixedTake):
        return None
    new = evaluate.apply(bucket_writes.take(seen, step, 5), item)
    assert isinstance(new, dict)
    return {name: value for name, value in new.items() if name != "ttl"}


def take(item: dict[str, Any]) -> Any:
    """Return what a table makes of a take that was computed for another item."""
    write = PreparedTake(prepared(), CONSUME, NOW_MS, 5, {}, {})
    return evaluate.apply(write, item)


@changes
def test_prepared_take_of_a_changed_item_does_what_a_plan_does_or_is_refused(change: dict[str, Any]) -> None:
    """It never takes what a plan on the same item would not take."""
    item = changed(change)
    found = take(item)

    if isinstance(found, dict):
        assert planned(item) == {name: value for name, value in found.items() if name != "ttl"}
    else:
        assert Refused(item) == found


@pytest.mark.parametrize(("change", "is_taken"), [({}, True), ({"b_slots_tk": 2_000, COHORT: 2_000}, True)])
def test_prepared_take_of_a_bucket_with_the_tokens_is_applied(change: dict[str, Any], is_taken: bool) -> None:
    """Others may have taken from it since."""
    assert is_taken == isinstance(take(changed(change)), dict)


@changes
def test_prepared_return_does_what_its_update_does(change: dict[str, Any]) -> None:
    """A slot is returned only to the bucket and the cohort that it was taken from."""
    item = changed(change)
    found = evaluate.apply(PreparedReturn(prepared(), 1_000, 5), item)
    settling = Settling([], held=False, birth=1, releases=(SlotRelease("slots", END_S, 1_000),))
    update = bucket_writes.settle(view_of(ITEM, NOW_MS, None, TERMS), settling, 5)

    if isinstance(found, dict):
        assert evaluate.apply(update, item) == found
    else:
        # An item without a number is changed by the update, or is an error.
        assert isinstance(found, Refused)
        assert change not in ({}, {COHORT: 3_000})


def test_prepared_writes_of_a_missing_item_find_none() -> None:
    """They create nothing."""
    for write in (PreparedTake(prepared(), CONSUME, NOW_MS, 5, {"x": 1}, {}), PreparedReturn(prepared(), 1_000, 5)):
        assert Missing() == evaluate.apply(write, {})


def test_prepared_writes_name_all_attributes_that_they_change() -> None:
    """A file then writes only these numbers."""
    for write in (PreparedTake(prepared(), CONSUME, NOW_MS, 5, {}, {}), PreparedReturn(prepared(), 1_000, 5)):
        new = evaluate.apply(write, ITEM)
        assert isinstance(new, dict)
        names = {name for name, value in new.items() if ITEM[name] != value}
        assert names <= {*write.add, *write.set}
        assert {*names, *write.add} <= {*write.written_names()}
        assert write.remove == ()


def test_takes_are_prepared_until_slots_join_another_cohort() -> None:
    """A slot is held for at least its hold."""
    found = prepared()

    assert found.slot_name == "slots"
    assert (END_S - 10) * 1_000 == found.until_ms
    assert (END_S - 15) * 1_000 + 1 == found.joined.from_ms
    assert NOW_MS == found.from_ms


@pytest.mark.parametrize("now_ms", [NOON + 1, NOON - 5_000, NOON + 10_000])
def test_slots_are_not_prepared_without_their_cohort(now_ms: int) -> None:
    """The first slot of a cohort, and expired cohorts, are left to plans."""
    terms = stored(RPM, SLOTS, SPEND)
    item = created(terms, {"slots": 1, "spend": 1}, NOW_MS)
    found = prepare(view_of(item, NOW_MS, None, terms).layout, terms, item, now_ms)

    assert found is not None
    assert found.slot_name == ""
    assert found.after_take(item, CONSUME, max(now_ms, NOW_MS), 5) is None
    assert found.after_take(item, {"rpm": 1, "spend": 1}, max(now_ms, NOW_MS), 5) is not None
