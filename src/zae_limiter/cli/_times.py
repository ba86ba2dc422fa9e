"""Parse times on the command line: in words, as dates, or to the second. Pure, and always UTC."""

import re
from datetime import datetime, timedelta

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.timestamp import ms_from_iso, ms_from_utc, utc_from_ms
from zae_limiter.core.usage import window_at

TIME_FORMS = "now, today, yesterday, '2 days ago', 2026-01, 2026-01-15 or 2026-01-15T10:00Z"
"""The forms, for help texts and messages."""

END_FORMS = "tomorrow, 'in 2 hours', 2026-12-01 or 2026-12-01T10:00Z"
"""The forms of a time in the future."""

_UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_SHORT = {"min": "minute", "h": "hour", "d": "day", "w": "week"}
_DISTANCE = r"(?P<count>an?|one|[0-9]{1,6}) ?(?P<unit>[a-z]+?)s?"
_AGO = re.compile(rf"{_DISTANCE} ago")
_AHEAD = re.compile(rf"in {_DISTANCE}")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Span:
    """The first and the last millisecond of a time: a day has many, a moment has one."""

    first_ms: int
    last_ms: int


def parse_time(text: str, now_ms: int) -> Span:
    """Parse a time. A date, a month, today and yesterday are whole spans. A time without an offset is UTC.

    Example:
        >>> parse_time("2 days ago", 1_768_500_000_000).first_ms
        1768327200000

    Raises:
        ValidationError: The text has none of the forms, or the time does not exist.
    """
    words = " ".join(text.lower().split())
    try:
        return _in_words(words, utc_from_ms(now_ms)) or _in_digits(words)
    except (ValueError, OverflowError):
        raise ValidationError("time", text, f"write a time as {TIME_FORMS}, all in UTC") from None


def parse_end(text: str, now_ms: int) -> datetime:
    """Parse a time in the future. A date, a month and tomorrow mean their first moment. Without an offset it is UTC.

    Example:
        >>> parse_end("in 2 days", 1_768_500_000_000).isoformat()
        '2026-01-17T18:00:00+00:00'

    Raises:
        ValidationError: The text has none of the forms, or the time does not exist.
    """
    words, now = " ".join(text.lower().split()), utc_from_ms(now_ms)
    try:
        if words == "tomorrow":
            return utc_from_ms(_window("daily", now + timedelta(days=1)).first_ms)
        found = _AHEAD.fullmatch(words)
        return utc_from_ms(_in_digits(words).first_ms) if found is None else _moved(now, found, 1)
    except (ValueError, OverflowError):
        raise ValidationError("time", text, f"write a time in the future as {END_FORMS}, all in UTC") from None


def _in_words(words: str, now: datetime) -> Span | None:
    if words == "now":
        return _moment(now)
    if words == "today":
        return _window("daily", now)
    if words == "yesterday":
        return _window("daily", now - timedelta(days=1))
    found = _AGO.fullmatch(words)
    return None if found is None else _moment(_moved(now, found, -1))


def _moved(now: datetime, distance: re.Match[str], direction: int) -> datetime:
    """Return the time at a distance, after now if the direction is 1 and before now if it is -1."""
    count = direction * (int(distance["count"]) if distance["count"].isdigit() else 1)
    unit = _SHORT.get(distance["unit"], distance["unit"])
    if unit == "month":
        return _months_after(now, count)
    if unit not in _UNITS:
        raise ValueError(unit)
    return now + count * _UNITS[unit]


def _in_digits(words: str) -> Span:
    if _MONTH.fullmatch(words):
        return _window("monthly", _read(f"{words}-01"))
    if _DATE.fullmatch(words):
        return _window("daily", _read(words))
    return _moment(_read(words.upper()))


def _read(text: str) -> datetime:
    return utc_from_ms(ms_from_iso(text))


def _moment(moment: datetime) -> Span:
    at_ms = ms_from_utc(moment)
    return Span(at_ms, at_ms)


def _window(kind: str, moment: datetime) -> Span:
    window = window_at(kind, ms_from_utc(moment))
    return Span(ms_from_iso(window.start), ms_from_iso(window.end) - 1)


def _months_after(now: datetime, count: int) -> datetime:
    """Return the same day of another month, or its last day if the month is shorter."""
    months = now.year * 12 + now.month - 1 + count
    first = now.replace(year=months // 12, month=months % 12 + 1, day=1)
    last_day = ((first + timedelta(days=31)).replace(day=1) - timedelta(days=1)).day
    return first.replace(day=min(now.day, last_day))
