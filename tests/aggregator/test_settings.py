"""The environment of the function is read once, and what it cannot mean is named."""

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.settings import AggregatorSettings


def test_only_the_table_must_be_named():
    """The rest has defaults: hours and days, kept for 90 days, and no archive."""
    rules = Rules(window_types=("hourly", "daily"), retention_s=90 * 86_400)

    assert AggregatorSettings("limiter", rules, None) == AggregatorSettings.of(
        {"TABLE_NAME": "limiter", "ARCHIVE_BUCKET": ""}
    )


def test_everything_can_be_set():
    """As the stack's parameters say."""
    environment = {
        "TABLE_NAME": "limiter",
        "SNAPSHOT_WINDOWS": "monthly, daily,daily",
        "USAGE_RETENTION_DAYS": "7",
        "ARCHIVE_BUCKET": "archive",
    }

    rules = Rules(window_types=("monthly", "daily"), retention_s=7 * 86_400)
    assert AggregatorSettings("limiter", rules, "archive") == AggregatorSettings.of(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE_NAME", ""),
        ("SNAPSHOT_WINDOWS", "hourly,weekly"),
        ("USAGE_RETENTION_DAYS", "0"),
        ("USAGE_RETENTION_DAYS", "x"),
    ],
)
def test_what_makes_no_sense_is_named(name: str, value: str):
    """With the variable that is to be changed."""
    with pytest.raises(ValidationError, match=name):
        AggregatorSettings.of({"TABLE_NAME": "limiter", name: value})
