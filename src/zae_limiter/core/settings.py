"""Define the settings of a client, which are chosen when it opens its table."""

from zae_limiter.core.bucket_changes import LEAST_MULTIPLIER
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.names import check_whole_number
from zae_limiter.core.status import OnUnavailable, check_on_unavailable

_MOST_SECONDS = 365 * 24 * 3600
_MOST_LOCAL_S = 60
_MOST_DEFERRED_S = 60
_MOST_MULTIPLIER = 1_000_000
_MOST_BUCKETS = 10_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client.

    Buckets never expire if ``bucket_ttl_multiplier`` is 0. ``remembered_buckets`` is the number of
    cached buckets per namespace. ``settle_within_s`` is how long a settlement may wait to share a
    write, 0 if it is written when its lease ends.
    """

    config_cache_ttl_ms: int = 60_000
    on_unavailable: OnUnavailable | None = None
    bucket_ttl_multiplier: int = 7
    deadline_s: float = 1.0
    reject_locally_ms: int = 1_000
    audit_retention_days: int = 90
    remembered_buckets: int = 100_000
    settle_within_s: float = 0.0


def make_settings(
    *,
    config_cache_ttl_s: float = 60,
    on_unavailable: OnUnavailable | str | None = None,
    bucket_ttl_multiplier: int = 7,
    deadline_s: float = 1.0,
    reject_locally_s: float = 1.0,
    remembered_buckets: int = 100_000,
    settle_within_s: float = 0.0,
) -> Settings:
    """Return validated settings.

    Raises:
        ValidationError: A setting is not a number, or is out of bounds.
    """
    if type(bucket_ttl_multiplier) is not int or not (
        bucket_ttl_multiplier == 0 or LEAST_MULTIPLIER <= bucket_ttl_multiplier <= _MOST_MULTIPLIER
    ):
        reason = f"must be 0 (buckets never expire) or a whole number from {LEAST_MULTIPLIER} to {_MOST_MULTIPLIER}"
        raise ValidationError("bucket_ttl_multiplier", bucket_ttl_multiplier, reason)
    if _seconds("deadline_s", deadline_s, _MOST_SECONDS) == 0:
        raise ValidationError("deadline_s", deadline_s, "must be above zero")
    check_whole_number("remembered_buckets", remembered_buckets, 1, _MOST_BUCKETS)
    return Settings(
        config_cache_ttl_ms=round(_seconds("config_cache_ttl", config_cache_ttl_s, _MOST_SECONDS) * 1000),
        on_unavailable=check_on_unavailable(on_unavailable),
        bucket_ttl_multiplier=bucket_ttl_multiplier,
        deadline_s=deadline_s,
        reject_locally_ms=round(_seconds("reject_locally_s", reject_locally_s, _MOST_LOCAL_S) * 1000),
        remembered_buckets=remembered_buckets,
        settle_within_s=_seconds("settle_within", settle_within_s, _MOST_DEFERRED_S),
    )


def _seconds(field: str, value: object, most: int) -> float:
    # NaN fails every comparison, so it is rejected here too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValidationError(field, value, f"must be a number of seconds from 0 to {most}")
    return value
