"""Usage is added to snapshots, every change once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from tests.one_bucket import after
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.usage import WINDOW_TYPES, UsageSnapshot, window_at
from zae_limiter.core.warnings import WarningMark
from zae_limiter.schema import usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import AttributeAbsent, Equals, Key
from zae_limiter.schema.usage_item import AddUsage

HOUR = window_at("hourly", 1_704_119_045_678)
USAGE = AddUsage(BucketKey("ns", "user-1", "gpt-4", 3), HOUR, {"tpm": 5_000_000, "rpm": 2_000}, 10, "111")

windows = st.builds(window_at, st.sampled_from(WINDOW_TYPES), some.times_ms)
additions = st.builds(
    AddUsage,
    st.builds(BucketKey, some.namespace_ids, some.entity_ids, some.resources, some.shard_ids),
    windows,
    st.dictionaries(some.limit_names, st.integers(-1_000, 1_000)),
    st.integers(1, 100),
    st.integers(0, 10**40 - 1).map(str),
)


def first_snapshot(usage: AddUsage, ttl_s: int | None = None) -> dict[str, Any]:
    """Return the item of a snapshot that starts with one addition."""
    update = usage_item.add(usage, None, ttl_s)
    return {"PK": update.key.pk, "SK": update.key.sk, **update.set, **update.add}


@given(additions, st.none() | st.integers(0, 10**10))
def test_usage_snapshot_round_trips_through_an_item(usage: AddUsage, ttl_s: int | None) -> None:
    """Counters have the names of their limits."""
    window = usage.window
    expected = UsageSnapshot(
        usage.bucket.entity_id,
        usage.bucket.resource,
        window.start,
        window.end,
        window.type,
        {name: milli // 1000 for name, milli in usage.spent_milli.items()},
        usage.events,
    )

    assert expected == usage_item.from_item(first_snapshot(usage, ttl_s))


def test_usage_addition_creates_or_extends_a_snapshot() -> None:
    """One write does both, and sets the identifying attributes."""
    update = usage_item.add(USAGE, None, 1_800_000_000)

    assert Key("ns/ENTITY#user-1", "#USAGE#gpt-4#2024-01-01T14:00:00Z") == update.key
    assert {"tpm": 5_000, "rpm": 2, "total_events": 10} == update.add
    assert {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "window": "hourly",
        "window_start": "2024-01-01T14:00:00Z",
        "window_end": "2024-01-01T15:00:00Z",
        "ttl": 1_800_000_000,
        "s_3": "111".zfill(40),
        "GSI2PK": "ns/RESOURCE#gpt-4",
        "GSI2SK": "USAGE#2024-01-01T14:00:00Z#user-1",
        "GSI4PK": "ns",
        "GSI4SK": "USAGE#2024-01-01T14:00:00Z#user-1#gpt-4",
    } == update.set


def test_usage_addition_requires_the_last_sequence_of_its_shard() -> None:
    """It is refused if another addition came first."""
    seen = usage_item.pad_sequence("99")

    assert (AttributeAbsent("s_3"),) == usage_item.add(USAGE, None, None).when
    assert (Equals("s_3", seen),) == usage_item.add(USAGE, seen, None).when


@pytest.mark.parametrize(("sequence", "counted"), [("9", True), ("110", True), ("111", True), ("112", False)])
def test_change_that_was_already_counted_is_recognized_by_its_sequence(sequence: str, counted: bool) -> None:
    """Sequence numbers compare as numbers, whatever their length."""
    assert counted == (usage_item.pad_sequence(sequence) <= (usage_item.last_counted(first_snapshot(USAGE), 3) or ""))


def test_last_counted_sequence_is_stored_per_shard() -> None:
    """The sequence of one shard says nothing about another."""
    assert usage_item.last_counted(first_snapshot(USAGE), 2) is None
    assert "111".zfill(40) == usage_item.last_counted(first_snapshot(USAGE), 3)


def test_fractions_of_tokens_in_usage_add_up() -> None:
    """Shards of a bucket may each give a fraction, and none is lost."""
    halves = [
        AddUsage(USAGE.bucket, HOUR, {"rpm": 1_500}, 1, "1"),
        AddUsage(USAGE.bucket, HOUR, {"rpm": 2_500}, 1, "2"),
    ]
    first, second = (usage_item.add(half, None, None).add for half in halves)
    item = first_snapshot(halves[0]) | {name: amount + second.get(name, 0) for name, amount in first.items()}

    assert {"rpm": 4} == usage_item.from_item(item).counters


@pytest.mark.parametrize("damage", [{}, {"~rpm": "x"}])
def test_damaged_or_missing_fraction_in_usage_is_ignored(damage: dict[str, Any]) -> None:
    """Whole tokens are still counted."""
    assert 2 == usage_item.from_item(first_snapshot(USAGE) | damage).counters["rpm"]


def test_unknown_attributes_of_a_usage_item_are_ignored() -> None:
    """Only numbers are counters."""
    assert {"tpm": 5_000, "rpm": 2} == usage_item.from_item(first_snapshot(USAGE) | {"new": "x", "flag": True}).counters


@pytest.mark.parametrize(
    "damage",
    [
        {"entity_id": 5},
        {"resource": None},
        {"window": 5},
        {"window_start": 5},
        {"window_end": 5},
        {"total_events": "1"},
    ],
)
def test_damaged_usage_item_raises_with_the_attribute(damage: dict[str, Any]) -> None:
    """Every attribute is checked."""
    with pytest.raises(CorruptItemError, match=next(iter(damage))):
        usage_item.from_item(first_snapshot(USAGE) | damage)


def test_damaged_sequence_marker_raises_with_the_attribute() -> None:
    """Without it, changes would be counted twice."""
    with pytest.raises(CorruptItemError, match="s_3"):
        usage_item.last_counted(first_snapshot(USAGE) | {"s_3": 5}, 3)


def test_highest_number_of_slots_in_use_is_kept_per_shard() -> None:
    """A repeat changes nothing, and a lower number does not either. Shards add up."""
    usage = replace(USAGE, in_use_milli={"slots": 2_000})
    item = first_snapshot(usage)
    again, higher, other = (
        usage_item.add(one, None, None, item).set
        for one in (
            replace(usage, sequence="112"),
            replace(usage, sequence="112", in_use_milli={"slots": 3_000}),
            replace(usage, bucket=USAGE.bucket._replace(shard_id=1)),
        )
    )

    assert {"slots": 2} == usage_item.from_item(item).highest_in_use
    assert [2, 3, 4] == [
        usage_item.from_item({**item, **changed}).highest_in_use["slots"] for changed in (again, higher, other)
    ]


def test_thresholds_of_a_window_without_usage_create_a_snapshot() -> None:
    """It can be read like any other, and counts nothing."""
    update = usage_item.warned(USAGE.bucket, HOUR, {("rpm", 800): WarningMark(0, 1_704_119_045_678)}, 1_800_000_000)
    item = after(update, {})
    expected = UsageSnapshot(
        "user-1", "gpt-4", "2024-01-01T14:00:00Z", "2024-01-01T15:00:00Z", "hourly", {}, 0, warnings={"rpm": 0.8}
    )

    assert USAGE.key == update.key
    assert expected == usage_item.from_item(item)
    assert (1_800_000_000, 1_704_119_045_678) == (item["ttl"], item["~w800~rpm"])


def test_thresholds_of_a_window_with_usage_keep_its_counters() -> None:
    """The highest threshold of each limit is shown."""
    marks = {("rpm", part): WarningMark(0, 5) for part in (1000, 800)} | {("a.b", 500): WarningMark(0, 5)}
    found = usage_item.from_item(after(usage_item.warned(USAGE.bucket, HOUR, marks, 7), first_snapshot(USAGE)))

    assert ({"tpm": 5_000, "rpm": 2}, 10) == (found.counters, found.total_events)
    assert {"rpm": 1.0, "a.b": 0.5} == found.warnings


@pytest.mark.parametrize("name", ["~w~rpm", "~wx~rpm", "~w\u00b2~rpm", f"~w{'1' * 5_000}~rpm", "~w800", "~x800~rpm"])
def test_other_attributes_of_a_snapshot_are_no_thresholds(name: str) -> None:
    """A newer version may add some."""
    assert {} == usage_item.from_item({**first_snapshot(USAGE), name: 5}).warnings
