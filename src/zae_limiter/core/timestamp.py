"""Milliseconds since the epoch as text a person can read, and back. No clock is read here."""

from datetime import UTC, datetime, timedelta

from zae_limiter.core.errors import ValidationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def utc_from_ms(at_ms: int) -> datetime:
    """The moment as a datetime in UTC."""
    return _EPOCH + at_ms * _MILLISECOND


def ms_from_utc(moment: datetime) -> int:
    """The milliseconds of a datetime in UTC, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def iso_from_ms(at_ms: int) -> str:
    """The moment as text, ``2024-01-01T14:00:00.000Z``."""
    return utc_from_ms(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_from_iso(text: object, field: str = "time") -> int:
    """The moment of an ISO 8601 text; without an offset it is UTC.

    Raises:
        ValidationError: it is no such text.
    """
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]  # anything else raises TypeError
        return ms_from_utc(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (TypeError, ValueError, OverflowError):
        raise ValidationError(field, text, "must be an ISO 8601 time such as 2024-01-01T14:00:00Z") from None
