"""The settings of a client."""

import math
from typing import Any

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.settings import Settings, make_settings
from zae_limiter.core.status import OnUnavailable

CHOSEN: dict[str, Any] = {
    "config_cache_ttl_s": 60,
    "on_unavailable": None,
    "bucket_ttl_multiplier": 7,
    "deadline_s": 1.0,
    "reject_locally_s": 1,
    "remembered_buckets": 100_000,
}


def test_make_settings_converts_seconds_to_milliseconds() -> None:
    """The units are in the names."""
    expected = Settings(
        config_cache_ttl_ms=500,
        on_unavailable=OnUnavailable.ALLOW,
        bucket_ttl_multiplier=2,
        deadline_s=0.25,
        reject_locally_ms=0,
    )

    assert expected == make_settings(
        config_cache_ttl_s=0.5, on_unavailable="allow", bucket_ttl_multiplier=2, deadline_s=0.25, reject_locally_s=0
    )


def test_defaults_of_settings_and_make_settings_agree() -> None:
    """The class and the function have the same defaults."""
    assert Settings() == make_settings(**CHOSEN)


def test_bucket_ttl_multiplier_may_be_zero() -> None:
    """It is the only value below 2 that is allowed; buckets never expire."""
    assert 0 == make_settings(**{**CHOSEN, "bucket_ttl_multiplier": 0}).bucket_ttl_multiplier


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("bucket_ttl_multiplier", 1, "bucket_ttl_multiplier"),
        ("bucket_ttl_multiplier", -1, "bucket_ttl_multiplier"),
        ("bucket_ttl_multiplier", 1_000_001, "bucket_ttl_multiplier"),
        ("bucket_ttl_multiplier", 2.0, "bucket_ttl_multiplier"),
        ("bucket_ttl_multiplier", True, "bucket_ttl_multiplier"),
        ("deadline_s", 0, "deadline_s"),
        ("deadline_s", -1, "deadline_s"),
        ("deadline_s", math.nan, "deadline_s"),
        ("deadline_s", math.inf, "deadline_s"),
        ("deadline_s", "1", "deadline_s"),
        ("deadline_s", None, "deadline_s"),
        ("config_cache_ttl_s", -0.1, "config_cache_ttl"),
        ("config_cache_ttl_s", True, "config_cache_ttl"),
        ("config_cache_ttl_s", 10**9, "config_cache_ttl"),
        ("reject_locally_s", 61, "reject_locally_s"),
        ("reject_locally_s", math.nan, "reject_locally_s"),
        *(("remembered_buckets", value, "remembered_buckets") for value in (0, -1, 10_000_001, 1.0, True, "1", None)),
        ("on_unavailable", "maybe", "on_unavailable"),
    ],
)
def test_invalid_setting_raises_with_field_and_value(field: str, value: object, named: str) -> None:
    """The error uses the public name of the option."""
    with pytest.raises(ValidationError) as refused:
        make_settings(**{**CHOSEN, field: value})

    assert named == refused.value.field
    assert value is refused.value.value
