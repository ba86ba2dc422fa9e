"""The options of a limit are stored where it has some, and damage to them is an error."""

from typing import Any

import pytest

from tests.one_bucket import created, stored
from zae_limiter.core.config import ConfigRecord
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.schema import config_item
from zae_limiter.schema.bucket_item import stored_layout_of
from zae_limiter.schema.limit_options import limit_fields, stored_options

PLACE = config_item.resource_place("ns", "gpt-4")
SPEND = Limit.quota("spend", 500, "month", "Europe/Berlin", unit="USD", enforce=False, warn_at=(0.8, 1.0))
LIMITS = (
    Limit("egress", 10, 10, 60, unit="GB"),
    Limit.per_minute("rpm", 100, enforce=False),
    Limit.concurrent("slots", 4, hold_seconds=10, warn_at=(0.5,)),
    SPEND,
    Limit.per_minute("tpm", 9_000),
)


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        (Limit.per_minute("rpm", 100), {}),
        (Limit.per_minute("rpm", 100, enforce=False), {"sf": True}),
        (Limit("egress", 10, 10, 60, unit="GB"), {"un": "GB"}),
        (Limit.per_minute("rpm", 100, warn_at=(0.8, 1.001)), {"wa": "800 1001"}),
        (SPEND, {"un": "USD", "sf": True, "wa": "800 1000"}),
    ],
    ids=str,
)
def test_stored_options_are_only_those_that_a_limit_has(limit: Limit, options: dict[str, Any]) -> None:
    """Thresholds are in thousandths, because DynamoDB has no floating-point numbers."""
    assert options == stored_options(limit)


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (Limit.per_minute("rpm", 100), {"tk", "cp", "hc", "ra", "rp", "tc", "dm"}),
        (Limit.concurrent("slots", 4, enforce=False), {"tk", "cp", "hc", "hs", "tc", "dm", "sf"}),
        (SPEND, {"qk", "qa", "qs", "tc", "dm", "un", "sf", "wa"}),
    ],
    ids=str,
)
def test_fields_of_a_limit_are_those_of_its_kind_and_its_options(limit: Limit, names: set[str]) -> None:
    """A quota has no field of another kind, so that older code does not take it for a rate limit."""
    assert names == set(limit_fields(limit))


def test_limits_of_every_kind_round_trip_through_a_config_item() -> None:
    """They are sorted by name."""
    item = config_item.to_item(PLACE, ConfigRecord(LIMITS, 1))

    assert LIMITS == config_item.from_item(item).limits


def test_quota_in_a_config_item_is_that_of_the_specification() -> None:
    """Its amount is in whole units."""
    item = config_item.to_item(PLACE, ConfigRecord((SPEND,), 1))
    expected = {
        "l_spend_qa": 500,
        "l_spend_qs": "m1 0000 Europe/Berlin",
        "l_spend_un": "USD",
        "l_spend_sf": True,
        "l_spend_wa": "800 1000",
    }

    assert expected == {name: value for name, value in item.items() if name.startswith("l_")}


def test_limits_of_every_kind_round_trip_through_a_bucket_item() -> None:
    """They are sorted by name."""
    assert LIMITS == stored_layout_of(created(stored(*LIMITS))).limits


DAMAGED = [
    {"spend_wa": "800 x"},
    {"spend_wa": "0.8"},
    {"spend_wa": "\u0661"},
    {"spend_wa": "1" * 5_000},
    {"spend_wa": "1000 800"},
    {"spend_wa": 800},
    {"spend_un": "per cent"},
    {"spend_un": 5},
    {"spend_sf": 1},
    {"spend_qs": "m1 0000 Mars/Olympus"},
    {"spend_qs": 5},
    {"spend_qa": "500"},
]


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: str(damage)[:40])
def test_damaged_option_raises_with_the_key_of_the_item(damage: dict[str, Any]) -> None:
    """A forged number may be longer than the longest one that Python parses."""
    config = config_item.to_item(PLACE, ConfigRecord((SPEND,), 1))
    bucket = created(stored(SPEND))

    with pytest.raises(CorruptItemError, match="ns/RESOURCE#gpt-4 #CONFIG"):
        config_item.from_item(config | {f"l_{name}": value for name, value in damage.items()})
    with pytest.raises(CorruptItemError, match="BUCKET#user-1#gpt-4#0 #STATE"):
        stored_layout_of(bucket | {f"b_{name}": value for name, value in damage.items()})


def test_limit_with_the_balances_of_two_kinds_raises_corrupt_item() -> None:
    """No reader could know which one is spent."""
    with pytest.raises(CorruptItemError, match="limit spend has two balances"):
        stored_layout_of({**created(stored(SPEND)), "b_spend_tk": 500_000})
