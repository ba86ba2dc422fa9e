"""What a person and a program get to read of a warning."""

from typing import Any

import pytest

from tests.one_bucket import NOON
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import usd
from zae_limiter.core.warnings import LimitWarning

SPEND = Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8,))
NOVEMBER = 1_698_796_800, 1_701_388_800


def warning(limit: Limit, used: int, threshold: float = 0.8, period: tuple[int, int] | None = None) -> LimitWarning:
    """Return a warning of a bucket."""
    return LimitWarning("default", "user-1", "gpt-4", limit, threshold, used, NOON, period)


@pytest.mark.parametrize(
    ("limit", "used", "amounts"),
    [
        (Limit.per_minute("rpm", 100), 80, "has used 80 of 100 tokens of limit rpm"),
        (Limit("egress", 10, 10, 60, unit="GB"), 8, "has used 8 of 10 GB of limit egress"),
        (Limit.concurrent("slots", 10), 8, "is using 8 of 10 slots of limit slots"),
        (Limit.quota("calls", 10, unit="calls"), 8, "has used 8 of 10 calls of limit calls"),
    ],
    ids=str,
)
def test_warning_text_without_a_period_names_amounts_and_threshold(limit: Limit, used: int, amounts: str) -> None:
    """A limit without a unit counts tokens or slots."""
    assert f"user-1 {amounts} for gpt-4. The warning is set at 80 %." == warning(limit, used).text


def test_warning_text_of_a_quota_of_money_has_decimals_and_the_reset() -> None:
    """The reset is in UTC, because the reader's time zone is not known."""
    expected = (
        "user-1 has used 85.00 of 100.00 USD of limit spend for gpt-4. The warning is set at 80 %. "
        "The limit resets at 2023-12-01 00:00 UTC."
    )

    assert expected == warning(SPEND, usd("85"), period=NOVEMBER).text


@pytest.mark.parametrize(
    ("threshold", "percent"), [(1.0, "100 %"), (0.125, "12.5 %"), (1.5, "150 %"), (0.001, "0.1 %")]
)
def test_warning_text_has_the_threshold_in_percent(threshold: float, percent: str) -> None:
    """A tenth of a percent is shown only where there is one."""
    text = warning(Limit.per_minute("rpm", 100), 100, threshold).text

    assert text.endswith(f" {percent}.")


def test_warning_as_dict_of_a_quota_has_all_data_and_its_period() -> None:
    """Money is in micro-units, and times are ISO 8601."""
    sent = warning(SPEND, usd("85"), period=NOVEMBER)
    expected: dict[str, Any] = {
        "namespace": "default",
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "spend",
        "kind": "quota",
        "enforce": True,
        "threshold": 0.8,
        "used": 85_000_000,
        "capacity": 100_000_000,
        "unit": "USD",
        "at": "2023-11-14T22:13:20.000Z",
        "message": sent.text,
        "period_start": "2023-11-01T00:00:00.000Z",
        "period_end": "2023-12-01T00:00:00.000Z",
    }

    assert expected == sent.as_dict()


def test_warning_as_dict_of_a_soft_rate_limit_has_no_period() -> None:
    """It says that nothing is rejected."""
    data = warning(Limit.per_minute("rpm", 100, enforce=False), 80).as_dict()

    assert ("rate", False, None) == (data["kind"], data["enforce"], data["unit"])
    assert not {"period_start", "period_end"} & data.keys()
