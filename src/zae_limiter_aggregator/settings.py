"""Read the settings of a deployed aggregator from its environment."""

from collections.abc import Mapping

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.usage import check_window_type
from zae_limiter_aggregator.plan import Rules

TABLE_NAME = "TABLE_NAME"
SNAPSHOT_WINDOWS = "SNAPSHOT_WINDOWS"
USAGE_INTERVAL_SECONDS = "USAGE_INTERVAL_SECONDS"
USAGE_RETENTION_DAYS = "USAGE_RETENTION_DAYS"
ARCHIVE_BUCKET = "ARCHIVE_BUCKET"
WARNING_EVENT_BUS = "WARNING_EVENT_BUS"
WARNING_TOPIC_ARN = "WARNING_TOPIC_ARN"

_WINDOWS = "hourly,daily"
_INTERVAL_S = "0"
"""A stack that lacks the variable delivers records after 2 seconds."""
_RETENTION_DAYS = "90"
_DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class AggregatorSettings:
    """The table, the rules of counting, and the S3 bucket of expired audit events, None to archive none.

    Warnings are sent to an event bus and to a topic, each None to send none there.
    """

    table_name: str
    rules: Rules
    archive_bucket: str | None
    event_bus: str | None = None
    topic_arn: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "AggregatorSettings":
        """Read the environment.

        Raises:
            ValidationError: A variable is missing or invalid.
        """
        table_name = environment.get(TABLE_NAME, "")
        if not table_name:
            raise ValidationError(TABLE_NAME, None, "set it to the name of the table whose stream is read")
        types = tuple(part.strip() for part in (environment.get(SNAPSHOT_WINDOWS) or _WINDOWS).split(","))
        for window_type in types:
            check_window_type(window_type, SNAPSHOT_WINDOWS)
        days = environment.get(USAGE_RETENTION_DAYS) or _RETENTION_DAYS
        if not (days.isascii() and days.isdigit() and int(days) > 0):
            raise ValidationError(USAGE_RETENTION_DAYS, days, "must be a whole number of days above zero")
        interval = environment.get(USAGE_INTERVAL_SECONDS) or _INTERVAL_S
        if not (interval.isascii() and interval.isdigit()):
            raise ValidationError(USAGE_INTERVAL_SECONDS, interval, "must be a whole number of seconds")
        rules = Rules(
            window_types=tuple(dict.fromkeys(types)), retention_s=int(days) * _DAY_S, interval_s=int(interval)
        )
        destinations = (
            environment.get(name) or None for name in (ARCHIVE_BUCKET, WARNING_EVENT_BUS, WARNING_TOPIC_ARN)
        )
        return cls(table_name, rules, *destinations)
