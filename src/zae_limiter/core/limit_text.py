"""Describe what is left of a limit, for messages and commands: with its unit, and when it is full again."""

from datetime import UTC, datetime, tzinfo

from zae_limiter.core.calendar import CalendarSchedule
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import format_share, format_with_unit
from zae_limiter.core.status import LimitStatus


def left_text(limit: Limit, available: int, resets_at: int | None = None) -> str:
    """Return what is left of a limit as a part of its capacity, and when a quota resets.

    Example:
        >>> left_text(Limit.per_minute("rpm", 100), 40)
        '40 of 100'
        >>> spend = Limit.quota("spend", 500_000_000, tz="Europe/Berlin", unit="USD")
        >>> left_text(spend, 12_500_000, 1_796_079_600)
        '12.50 of 500.00 USD, resets 2026-12-01 00:00 Europe/Berlin'
    """
    left = format_share(available, limit.capacity, limit.unit)
    if limit.schedule is None or resets_at is None:
        return left
    return f"{left}, resets {reset_text(limit.schedule, resets_at)}"


def requested_text(status: LimitStatus) -> str:
    """Return what a request asked of a limit, and when a quota resets: ``20.00 USD requested, resets ...``."""
    limit = status.limit
    requested = f"{format_with_unit(status.requested, limit.unit)} requested"
    if limit.schedule is None or status.resets_at is None:
        return requested
    return f"{requested}, resets {reset_text(limit.schedule, status.resets_at)}"


def shortage_text(status: LimitStatus) -> str:
    """Return what is left of a limit, and what a request asked of it: ``0 available, 1 requested``.

    What the request had to leave is named too.
    """
    limit, available = status.limit, status.available
    left = format_with_unit(available, limit.unit)
    left = left if limit.schedule is None else format_share(available, limit.capacity, limit.unit)
    kept = (
        f", {format_with_unit(status.reserved, limit.unit)} reserved for a higher priority" if status.reserved else ""
    )
    return f"{left} available, {requested_text(status)}{kept}"


def reset_text(schedule: CalendarSchedule, at_s: int) -> str:
    """Return a time in seconds since the epoch, in the time zone of a schedule: ``2026-12-01 00:00 Europe/Berlin``."""
    return f"{datetime.fromtimestamp(at_s, _zone(schedule.tz)):%Y-%m-%d %H:%M} {schedule.tz}"


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    # Imported here: only quotas with a time zone need it.
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)
