"""Convert milliseconds since the epoch to readable text and back."""

from datetime import UTC, datetime, timedelta

from zae_limiter.core.errors import ValidationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def utc_from_ms(at_ms: int) -> datetime:
    """Return the time as a datetime in UTC."""
    # Not fromtimestamp(): a float would round the milliseconds.
    return _EPOCH + at_ms * _MILLISECOND


def ms_from_utc(moment: datetime) -> int:
    """Return the milliseconds of a datetime in UTC, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def iso_from_ms(at_ms: int) -> str:
    """Return the time as text, such as ``2024-01-01T14:00:00.000Z``."""
    return utc_from_ms(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_from_time(value: object, field: str = "time") -> int:
    """Return the milliseconds of a ``datetime`` or an ISO 8601 text; either is UTC if it has no offset.

    Raises:
        ValidationError: The value is neither.
    """
    if not isinstance(value, datetime):
        return ms_from_iso(value, field)
    return ms_from_utc(value if value.tzinfo else value.replace(tzinfo=UTC))


def ms_from_iso(text: object, field: str = "time") -> int:
    """Return the milliseconds of an ISO 8601 text; without an offset it is UTC.

    Raises:
        ValidationError: The value is not such a text.
    """
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]  # anything else raises TypeError
        return ms_from_utc(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (TypeError, ValueError, OverflowError):
        raise ValidationError(field, text, "must be an ISO 8601 time such as 2024-01-01T14:00:00Z") from None
