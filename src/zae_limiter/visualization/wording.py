"""Format numbers, windows, limits and counts for people."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from zae_limiter.core.calendar import CalendarSchedule
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import MICRO, format_amount, is_currency
from zae_limiter.core.timestamp import ms_from_iso, utc_from_ms
from zae_limiter.core.usage import Window

UNITS = {"hourly": "hour", "daily": "day", "monthly": "month"}
"""The name of one window of each type."""

_DURING = {"hourly": "at", "daily": "on", "monthly": "in"}
_SUFFIXES = ("", "K", "M", "B", "T", "Q")
_PERIODS = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day", 604_800: "week"}
# The usual short names: rpm, rps, tpm, itpm. Longer names are already words.
_SHORT_NAME = re.compile(r"(?:(r)|(i|o)?(t))p[smhd]", re.IGNORECASE)
_WEEKDAYS = ("", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DIRECTIONS = {"i": "input ", "o": "output ", "": ""}
_PERIOD_IN_NAME = re.compile(r"[_. -]?per[_. -](?:second|minute|hour|day|week|month)$", re.IGNORECASE)


def noun_of(limit_name: str) -> str:
    """Return what a limit counts, in words, as far as its name says it.

    Example:
        >>> noun_of("rpm"), noun_of("itpm"), noun_of("images_per_day")
        ('requests', 'input tokens', 'images')
    """
    short = _SHORT_NAME.fullmatch(limit_name)
    if short is None:
        return _PERIOD_IN_NAME.sub("", limit_name).replace("_", " ").strip() or limit_name
    return "requests" if short[1] else f"{_DIRECTIONS[(short[2] or '').lower()]}tokens"


def per_period(limit: Limit) -> str:
    """Format the rate of a limit: ``100 per minute``, ``5 per 90 seconds``; of slots ``at most 20 at a time``.

    A quota is ``500.00 USD per month, from day 1, 00:00 Europe/Berlin``; the start is left out if it is that of UTC.
    """
    if limit.schedule is not None:
        amount = with_unit(limit.capacity, limit.unit)
        return f"{amount} per {limit.schedule.every}{period_begin(limit.schedule)}"
    if limit.is_concurrent:
        return f"at most {limit.capacity:,} at a time"
    seconds = limit.refill_period_seconds
    return f"{limit.refill_amount:,} per {_PERIODS.get(seconds, f'{seconds:,} seconds')}"


def period_begin(schedule: CalendarSchedule) -> str:
    """Format when the periods of a quota begin: ``, from Monday, 06:00 Europe/Berlin``; "" for midnight in UTC."""
    if schedule.tz == "UTC" and schedule.day in (0, 1) and not schedule.minute:
        return ""
    hour, minute = divmod(schedule.minute, 60)
    clock = f"{hour:02}:{minute:02} {schedule.tz}"
    days = {"month": f"day {schedule.day}, {clock}", "week": f"{_WEEKDAYS[schedule.day % 8]}, {clock}", "day": clock}
    return f", from {days.get(schedule.every, f'minute {schedule.minute}')}"


def limit_kind(limit: Limit) -> str:
    """Return ``limit``, or ``soft limit`` if it only counts."""
    return "limit" if limit.enforce else "soft limit"


def slots_in_use(number: int, limit: Limit) -> str:
    """Format a number of slots in use: ``12 of 20``."""
    return f"{number:,} of {limit.capacity:,}"


def percent(amount: int, limit: int) -> str:
    """Format an amount in percent of a limit: ``52 %``, or ``under 1 %`` if it is small but not zero."""
    share = 100 * amount / limit
    return "under 1 %" if 0 < share < 1 else f"{share:,.0f} %"


def threshold(part: float) -> str:
    """Format a threshold at which a limit has warned: ``80 %``, ``99.5 %``."""
    return f"{100 * part:,.1f} %".replace(".0 %", " %")


def short_number(value: float) -> str:
    """Format a number in a few characters.

    Example:
        >>> short_number(1_234_567)
        '1.2M'
    """
    size, place = abs(float(value)), 0
    # A value that would be rounded to 1000 of a unit becomes 1 of the next.
    while round(size, 0 if size >= 100 or not place else 1) >= 1000 and place < len(_SUFFIXES) - 1:
        size, place = size / 1000, place + 1
    digits = f"{size:.0f}" if size >= 100 else f"{size:.1f}".removesuffix(".0")
    sign = "-" if value < 0 and digits != "0" else ""
    return f"{sign}{digits}{_SUFFIXES[place]}"


def short_amount(amount: int, unit: str | None) -> str:
    """Format an amount in a few characters, money in its currency: ``12.5`` for 12,500,000 micro-units."""
    value = amount / MICRO
    if not is_currency(unit):
        return short_number(amount)
    if abs(value) >= 1000:
        return short_number(value)
    # The steps of an axis may be parts of a cent.
    return f"{value:.{2 if abs(value) >= 1 else 6}f}".rstrip("0").removesuffix(".") if amount else "0"


def amount_of(amount: int, noun: str, unit: str | None = None) -> str:
    """Format an amount with what it counts: ``1 request``, ``1,234 tokens``; names that a user chose are kept.

    Money has its currency instead: ``12.50 USD``.
    """
    if is_currency(unit):
        return with_unit(amount, unit)
    if amount == 1 and noun.endswith(("requests", "tokens")):
        noun = noun.removesuffix("s")
    return f"{whole_number(amount)} {noun}"


def with_unit(amount: int, unit: str | None) -> str:
    """Format an amount in full with its unit, if it has one: ``1,234.50 USD``, ``1,234 pages``, ``1,234``."""
    return f"{number_of(amount, unit)} {unit}" if unit else whole_number(amount)


def number_of(amount: int, unit: str | None = None) -> str:
    """Format an amount in full, without its unit; money has its decimals: ``1,234,567``, ``1,234.50``."""
    if not is_currency(unit):
        return whole_number(amount)
    whole, point, decimals = format_amount(abs(amount), unit).partition(".")
    return f"{'-' if amount < 0 else ''}{int(whole):,}{point}{decimals}"


def rounded(amount: float, unit: str | None = None) -> int:
    """Round an amount for a headline: money of at least one unit to hundredths, others to whole numbers."""
    return round(round(amount), -4) if is_currency(unit) and abs(amount) >= MICRO else round(amount)


def whole_number(value: int) -> str:
    """Format a number in full: ``1,234,567``."""
    return f"{value:,}"


def counted(number: int, noun: str) -> str:
    """Format a count of things: ``1 hour``, ``2 hours``, ``3 entities``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("ty") else f"{number:,} {noun}s"


def moment_of(window: Window) -> datetime:
    """Return the start of a window, in UTC."""
    return utc_from_ms(ms_from_iso(window.start)).astimezone(UTC)


def window_name(window_type: str, window_start: str) -> str:
    """Format a window by its start, to the precision of its type: ``2026-01-15 10:00``, ``2026-01-15``, ``2026-01``."""
    moment = utc_from_ms(ms_from_iso(window_start))
    forms = {"hourly": "%Y-%m-%d %H:%M", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}
    return moment.strftime(forms.get(window_type, "%Y-%m-%d %H:%M"))


def in_window(window: Window) -> str:
    """Format the time of a window: ``at 2026-01-15 10:00``, ``on 2026-01-15``, ``in 2026-01``."""
    return f"{_DURING[window.type]} {window_name(window.type, window.start)}"


def span_of(windows: Sequence[Window]) -> str:
    """Format the first and the last window: ``2026-01-15 to 2026-01-20``."""
    first, last = (window_name(window.type, window.start) for window in (windows[0], windows[-1]))
    return first if first == last else f"{first} to {last}"
