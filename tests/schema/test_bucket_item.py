"""Reading a bucket item."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from tests.one_bucket import NOON, after, at, created, stored, taking, view, without_birth
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.schema import keys
from zae_limiter.schema.bucket_item import (
    bucket_key,
    capacity_of,
    states_of,
    stored_layout_of,
    view_after_take,
    view_of,
)
from zae_limiter.schema.bucket_writes import Owner, Signature, create
from zae_limiter.schema.operations import Key

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)


@given(
    owner=st.builds(Owner, some.namespace_ids, some.entity_ids, some.resources),
    limits=some.limit_sets(),
    now_ms=some.times_ms,
    stamp=st.integers(0, 10**6),
)
def test_created_bucket_is_read_back(owner: Owner, limits: tuple[Limit, ...], now_ms: int, stamp: int) -> None:
    """Limits, baseline, stamp, key and full balances."""
    terms = stored(*limits, stamp=stamp)
    item = create(owner, terms, {}, now_ms, Signature(1, 5)).item

    seen = view(dict(item), now_ms)

    assert terms.limits == seen.layout.limits
    assert (now_ms, stamp, "", 0, 1) == (
        seen.layout.start_ms,
        seen.layout.stamp,
        seen.layout.digest,
        seen.layout.shard,
        seen.layout.shard_count,
    )
    assert bucket_key(owner.namespace_id, owner.entity_id, owner.resource) == seen.layout.key
    assert (*(limit.capacity_milli for limit in terms.limits), *([0] * len(limits)), 1) == seen.numbers


def test_limit_names_that_look_like_attributes_are_read_back() -> None:
    """Attribute names are split at the last underscore."""
    limits = (Limit("a_tk", 1, 1, 1), Limit("a", 2, 2, 2), Limit("a.tk_tc", 3, 3, 3))

    assert stored(*limits).limits == stored_layout_of(created(stored(*limits))).limits


def test_view_with_an_unchanged_layout_shares_the_layout() -> None:
    """Only the numbers are read again."""
    terms = stored(RPS, RPM)
    item = created(terms)
    seen = view(item, NOON, None, terms)
    item = after(taking(seen, terms, {"rps": 1}, at(NOON)), item)

    assert seen.layout is view(item, NOON + 1, seen, terms).layout


@pytest.mark.parametrize("change", [{"bi": 9}, {"gn": 2}])
def test_view_with_another_birth_number_or_generation_has_a_new_layout(change: dict[str, Any]) -> None:
    """These two attributes identify a layout."""
    terms = stored(RPS)
    item = created(terms)
    seen = view(item, NOON, None, terms)

    again = view({**item, **change}, NOON + 1, seen, terms)

    assert seen.layout is not again.layout
    assert not seen.layout.describes({**item, **change})


@pytest.mark.parametrize("change", [{"rf": NOON + 1}, {"cv": 2}, {"ld": "x"}, {"shard_count": 2}, {"gn": 2}, {"bi": 9}])
def test_layout_of_an_item_without_birth_number_is_identified_by_five_attributes(change: dict[str, Any]) -> None:
    """Baseline, stamp, digest, shard count and generation; a rebase adds the birth number."""
    terms = stored(RPS)
    item = without_birth(created(terms))
    change = {"gn": 2, **change} if "bi" in change else change
    seen = view(item, NOON, None, terms)

    again = view({**item, **change}, NOON + 1, seen, terms)

    assert seen.layout is not again.layout
    assert not seen.layout.describes({**item, **change})


def test_layout_of_a_shard_has_its_share_of_capacity_and_rate() -> None:
    """Both are stored undivided."""
    item = created(stored(Limit("rps", 5, 5, 1)))
    pk = keys.pk_bucket("ns000000000", "user-1", "gpt-4", 1)

    (baseline,) = stored_layout_of({**item, "PK": pk, "shard_count": 2}).baselines

    assert (2_500, 1, 2) == (baseline.capacity_milli, baseline.shard, baseline.shard_count)
    assert baseline.earned(NOON + 100) in (249, 250)


@pytest.mark.parametrize(
    "damage",
    [
        {"rf": None},
        {"cv": None},
        {"ld": None},
        {"tf": None},
        {"shard_count": None},
        {"bi": "one"},
        {"rf": "soon"},
        {"b_rps_cp": None},
        {"b_rps_ra": None},
        {"b_rps_rp": None},
        {"b_rps_cp": 0},
        {"b_rps_cp": 1_500},
        {"b_rps_cp": "ten"},
        {"b_rps_ra": -1_000},
        *({"shard_count": count} for count in (0, -1, 3, 65, 10**7, "1", True)),
        *({"b_rps_tk": number} for number in ("many", True, 10**31, -(10**31))),
        *({name: "5"} for name in ("rf", "cv", "gn", "tf", "b_rps_tc", "b_rps_hc", "b_wcu_tc", "cascade")),
        *({name: 5} for name in ("ld", "parent_id")),
        {"b_wcu_tc": None},
        {"PK": 5},
        {"PK": "ns000000000/BUCKET#user-1#gpt-4#1"},
        {"PK": "ns000000000/ENTITY#user-1"},
        {"SK": "#META"},
    ],
    ids=str,
)
def test_damaged_bucket_item_raises_with_its_key(damage: dict[str, Any]) -> None:
    """None means that the attribute is missing."""
    item = {**created(stored(RPS)), **damage}
    item = {name: value for name, value in item.items() if value is not None}

    with pytest.raises(CorruptItemError) as raised:
        view(item)

    assert str(item["PK"]) in str(raised.value)


@pytest.mark.parametrize("damage", [{"b_rps_tk": "many"}, {"b_wcu_tc": None}, {"b_rps_tc": 10**31}], ids=str)
def test_cached_bucket_with_damaged_numbers_raises_corrupt_item(damage: dict[str, Any]) -> None:
    """Numbers are checked at every read, even if the layout is unchanged."""
    before = view(created(stored(RPS)))
    item = {**created(stored(RPS)), **damage}
    item = {name: value for name, value in item.items() if value is not None}

    with pytest.raises(CorruptItemError):
        view_of(item, NOON, before)


def test_bucket_states_contain_the_limits_in_force() -> None:
    """With balances at the baseline; dormant limits and the write counter are hidden."""
    item = created(stored(RPS, RPM), {"rps": 3, "rpm": 7})
    item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)

    (state,) = states_of([item], 0)

    assert ("user-1", "gpt-4", "rps", 6_000, NOON, 10_000, 10_000, 1_000, 4_000) == (
        state.entity_id,
        state.resource,
        state.limit_name,
        state.tokens_milli,
        state.last_refill_ms,
        state.capacity_milli,
        state.refill_amount_milli,
        state.refill_period_ms,
        state.total_consumed_milli,
    )


def test_bucket_key_contains_the_shard_in_the_partition_key() -> None:
    """Each shard has its own partition."""
    assert Key("ns000000000/BUCKET#user-1#gpt-4#3", "#STATE") == bucket_key("ns000000000", "user-1", "gpt-4", 3)


def test_capacity_of_a_limit_includes_its_level_at_a_time() -> None:
    """None if the bucket does not have the limit."""
    terms = stored(RPS, RPM)
    item = created(terms)
    item = after(taking(view(item, NOON, None, terms), terms, {"rpm": 50}, at(NOON)), item)

    assert (100_000, 50_000, None) == capacity_of([item], "rpm", NOON)
    assert (100_000, 60_000, None) == capacity_of([item], "rpm", NOON + 6_000)
    assert capacity_of([item], "tpm", NOON) is None


def test_take_response_without_numbers_raises_corrupt_item() -> None:
    """Another program than DynamoDB may answer at the endpoint."""
    before = view(created(stored(RPS)))

    with pytest.raises(CorruptItemError, match="is missing"):
        view_after_take(before, {}, (), NOON)
