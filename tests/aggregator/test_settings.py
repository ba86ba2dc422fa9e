"""The environment of the function is read once, and invalid values are named."""

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.settings import AggregatorSettings


def test_aggregator_settings_require_only_the_table_name():
    """By default, hours and days are kept for 90 days, and there is no archive."""
    rules = Rules(window_types=("hourly", "daily"), retention_s=90 * 86_400)

    assert AggregatorSettings("limiter", rules, None) == AggregatorSettings.of(
        {"TABLE_NAME": "limiter", "ARCHIVE_BUCKET": ""}
    )


def test_every_aggregator_setting_can_be_set():
    """The values are those of the stack's parameters."""
    environment = {
        "TABLE_NAME": "limiter",
        "SNAPSHOT_WINDOWS": "monthly, daily,daily",
        "USAGE_INTERVAL_SECONDS": "60",
        "USAGE_RETENTION_DAYS": "7",
        "ARCHIVE_BUCKET": "archive",
        "WARNING_EVENT_BUS": "default",
        "WARNING_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:warnings",
    }

    rules = Rules(window_types=("monthly", "daily"), retention_s=7 * 86_400, interval_s=60)
    expected = AggregatorSettings("limiter", rules, "archive", "default", "arn:aws:sns:us-east-1:123456789012:warnings")
    assert expected == AggregatorSettings.of(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE_NAME", ""),
        ("SNAPSHOT_WINDOWS", "hourly,weekly"),
        ("USAGE_INTERVAL_SECONDS", "-1"),
        ("USAGE_INTERVAL_SECONDS", "x"),
        ("USAGE_RETENTION_DAYS", "0"),
        ("USAGE_RETENTION_DAYS", "x"),
    ],
)
def test_an_invalid_aggregator_setting_is_named_in_the_error(name: str, value: str):
    """The error names the variable to change."""
    with pytest.raises(ValidationError, match=name):
        AggregatorSettings.of({"TABLE_NAME": "limiter", name: value})
