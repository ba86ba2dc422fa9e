"""A bucket of the old layout is converted to the new one with the same level."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.old_buckets import START_MS, OldLimit, old_bucket, old_level_milli
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.schema.bucket_item import stored_layout_of
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.schema.old_bucket_item import moved, owner_of
from zae_limiter.schema.operations import ItemAbsent, Key, Matches

RPM = OldLimit(balance_milli=40_000, capacity=60, burst=90, refill_amount=60)
TPM = OldLimit(balance_milli=-7_000, capacity=1000, burst=1000, refill_amount=1000)

tokens = st.integers(1, 10**6)
old_limits = st.builds(
    OldLimit,
    balance_milli=st.integers(-(10**9), 10**9),
    capacity=tokens,
    burst=tokens,
    refill_amount=tokens,
    period_s=st.integers(1, 86_400),
)


@given(st.dictionaries(st.sampled_from(["rpm", "tpm", "a_b.c"]), old_limits, min_size=1), st.integers(0, 10**9))
def test_converted_bucket_keeps_its_level_at_any_time(limits: dict[str, OldLimit], elapsed_ms: int) -> None:
    """To the millitoken; the burst becomes the capacity."""
    put, _ = moved(old_bucket("ns", "user-1", "gpt-4", limits), 7, Signature(1, 5))
    layout, now_ms = stored_layout_of(put.item), START_MS + elapsed_ms

    for baseline, name in zip(layout.baselines, layout.balance_names, strict=True):
        old = old_level_milli(limits[baseline.name], now_ms)
        assert baseline.level(put.item[name], now_ms) - old in (0, 1)


def test_converted_bucket_has_its_own_partition_and_index_keys() -> None:
    """It is complete, as if it had been created in the new layout."""
    put, delete = moved(old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM}, ttl=1), 7, Signature(77, 5))

    assert (Key("ns/BUCKET#user-1#gpt-4#0", "#STATE"), (ItemAbsent(),)) == (put.key, put.when)
    assert Key("ns/ENTITY#user-1", "#BUCKET#gpt-4") == delete.key
    assert {
        "GSI2PK": "ns/RESOURCE#gpt-4",
        "GSI2SK": "BUCKET#user-1#0",
        "GSI3PK": "ns/ENTITY#user-1",
        "GSI3SK": "BUCKET#gpt-4#0",
        "GSI4PK": "ns",
        "GSI4SK": "ns/BUCKET#user-1#gpt-4#0",
        "entity_id": "user-1",
        "resource": "gpt-4",
        "rf": START_MS,
        "shard_count": 1,
        "b_rpm_tk": 40_000,
        "b_rpm_cp": 90_000,
        "b_rpm_ra": 60_000,
        "b_rpm_rp": 60_000,
        "cascade": False,
        "op": 77,
    }.items() <= put.item.items()
    assert "b_rpm_bx" not in put.item


def test_converted_bucket_has_totals_of_zero() -> None:
    """Earlier consumption is not counted again."""
    put, _ = moved(old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM, "tpm": TPM}), 7, Signature(1, 5))

    assert (0, 0) == (put.item["b_rpm_tc"], put.item["b_tpm_tc"])


def test_converted_bucket_without_a_burst_keeps_its_capacity() -> None:
    """Not every limit had a burst."""
    item = old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM})
    del item["b_rpm_bx"]

    assert 60_000 == moved(item, 7, Signature(1, 5))[0].item["b_rpm_cp"]


def test_old_bucket_is_deleted_only_if_it_is_unchanged() -> None:
    """If it was written since, it is read again."""
    _, delete = moved(old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM, "tpm": TPM}), 7, Signature(1, 5))

    assert (Matches(("rf", "b_rpm_tk", "b_tpm_tk"), (START_MS, 40_000, -7_000)),) == delete.when


@pytest.mark.parametrize(
    ("limits", "others", "expected"),
    [
        ({"rpm": RPM}, {"ttl": 5}, START_MS // 1000 + 7 * 90 + 1),
        ({"rpm": RPM}, {}, None),
        ({"rpm": RPM, "tpm": TPM}, {"ttl": 5}, None),
    ],
    ids=["one that did", "one that did not", "one in debt"],
)
def test_converted_bucket_has_a_ttl_only_if_it_had_one_and_is_not_in_debt(
    limits: dict[str, OldLimit], others: dict[str, int], expected: int | None
) -> None:
    """The ttl is the time when it is certainly full."""
    put, _ = moved(old_bucket("ns", "user-1", "gpt-4", limits, **others), 7, Signature(1, 5))

    assert expected == put.item.get("ttl")


def test_converted_bucket_keeps_parent_and_cascade_but_not_the_reserved_limit() -> None:
    """The write counter restarts."""
    item = old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM, "wcu": RPM}, parent_id="team", cascade=True)
    put, _ = moved(item, 7, Signature(1, 5))

    assert ("team", True, 1) == (put.item["parent_id"], put.item["cascade"], put.item["b_wcu_tc"])
    assert "b_wcu_tk" not in put.item


def test_converted_bucket_has_a_stamp_below_every_configuration() -> None:
    """The first take rebases it to the limits in force."""
    put, _ = moved(old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM}), 7, Signature(1, 5))

    assert stored_layout_of(put.item).stamp < 0


@pytest.mark.parametrize(
    "change",
    [
        {"b_rpm_cp": 1, "b_rpm_bx": 1},
        {"b_rpm_bx": "90000"},
        {"b_rpm_ra": 0},
        {"b_rpm_tk": None},
        {"rf": "yesterday"},
        {"SK": "#BUCKET#"},
        {"SK": "#BUCKET#gpt-4#rpm"},
        {"SK": "#META"},
        {"PK": "ns/BUCKET#user-1"},
    ],
    ids=str,
)
def test_damaged_old_bucket_raises_with_its_key(change: dict[str, Any]) -> None:
    """Every attribute is checked."""
    item = old_bucket("ns", "user-1", "gpt-4", {"rpm": RPM}) | change

    with pytest.raises(CorruptItemError, match=item["PK"]):
        moved(item, 7, Signature(1, 5))


def test_old_bucket_without_limits_raises_corrupt_item() -> None:
    """It has no level to keep."""
    with pytest.raises(CorruptItemError, match="not a bucket of the old layout"):
        moved(old_bucket("ns", "user-1", "gpt-4", {}), 7, Signature(1, 5))


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (Key("ns/ENTITY#user-1", "#BUCKET#gpt-4"), Owner("ns", "user-1", "gpt-4")),
        (Key("ns/ENTITY#user-1", "#CONFIG#gpt-4"), None),
        (Key("ns/ENTITY#user-1", "#BUCKET#gpt-4#rpm"), None),
        (Key("ns/BUCKET#user-1#gpt-4#0", "#STATE"), None),
    ],
)
def test_owner_of_an_old_bucket_key_is_parsed(key: Key, owner: Owner | None) -> None:
    """Other items of an entity have no owner."""
    assert owner == owner_of(key)
