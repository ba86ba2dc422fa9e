"""Describe limits in words, in tables and in JSON."""

from collections.abc import Sequence

from zae_limiter.cli._limit_syntax import write_starts
from zae_limiter.cli._output import Column, Grid
from zae_limiter.core.calendar import CalendarSchedule, period_at
from zae_limiter.core.limit import Limit
from zae_limiter.core.limit_text import left_text, reset_text
from zae_limiter.core.money import format_with_unit

LIMIT_KEYS = (
    "LIMIT is {name, capacity, refill_amount, refill_period_seconds},",
    " for slots also {hold_seconds}, for quotas also {every, tz, starts},",
    " and if set {unit, enforce: false, warn_at}; money is in micro-units",
)
"""The JSON keys of a limit, for the help."""

_COLUMNS = [Column("limit"), Column("capacity", True), Column("refill")]
_PERIOD_NAMES = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}


def limits_grid(limits: Sequence[Limit]) -> Grid:
    """Return limits as a table."""
    rows = [(one.name, format_with_unit(one.capacity, one.unit), describe_refill(one)) for one in limits]
    return Grid(_COLUMNS, rows)


def limit_facts(limits: Sequence[Limit]) -> list[dict[str, object]]:
    """Return limits ready for JSON."""
    return [dict(limit.to_dict()) for limit in limits]


def describe_refill(limit: Limit, resets_at_s: int | None = None) -> str:
    """Return how a limit refills, and its options. Of a quota, also when it resets, if that is given.

    Example:
        >>> describe_refill(Limit.per_minute("rpm", 1000))
        '1000 per minute'
        >>> describe_refill(Limit.quota("tokens", 1000, "day", "Europe/Berlin", "06:00", enforce=False))
        'each day from 06:00 Europe/Berlin, soft'
    """
    if limit.schedule is None or resets_at_s is None:
        return ", ".join([_refill(limit), *option_words(limit)])
    resets = f"resets {reset_text(limit.schedule, resets_at_s)}"
    return ", ".join([f"each {limit.schedule.every}", resets, *option_words(limit)])


def option_words(limit: Limit) -> list[str]:
    """Return the options of a limit in words: ``soft``, ``warns at 80 %``."""
    warnings = " and ".join(f"{part * 100:g} %" for part in limit.warn_at)
    words = {"soft": not limit.enforce, f"warns at {warnings}": bool(warnings)}
    return [word for word, applies in words.items() if applies]


def _refill(limit: Limit) -> str:
    if limit.is_concurrent:
        return f"at a time, hold {limit.hold_seconds} s"
    if limit.schedule is not None:
        return describe_schedule(limit.schedule)
    seconds = limit.refill_period_seconds
    period = _PERIOD_NAMES.get(seconds, f"{seconds} seconds")
    return f"{format_with_unit(limit.refill_amount, limit.unit)} per {period}"


def describe_schedule(schedule: CalendarSchedule) -> str:
    """Return when the periods of a quota begin: ``each month from 15T06:00 Europe/Berlin``."""
    starts = write_starts(schedule)
    begin = "" if not starts else f" from minute {starts}" if schedule.every == "hour" else f" from {starts}"
    return f"each {schedule.every}{begin} {schedule.tz}"


def resets_at(limit: Limit, now_ms: int) -> int | None:
    """Return when a quota is full again, in seconds since the epoch, None for another limit."""
    return None if limit.schedule is None else period_at(limit.schedule, now_ms // 1000)[1]


def left_words(limit: Limit | None, available: int, now_ms: int) -> str:
    """Return what is left of a limit, with its unit and options, and when a quota resets."""
    if limit is None:
        return str(available)
    at_s = resets_at(limit, now_ms)
    left = format_with_unit(available, limit.unit) if at_s is None else left_text(limit, available, at_s)
    return left if limit.enforce else f"{left}, soft"


def facts_with_reset(limits: Sequence[Limit], now_ms: int) -> list[dict[str, object]]:
    """Return limits ready for JSON; quotas have the time at which they are full again."""
    found = []
    for limit in limits:
        at_s = resets_at(limit, now_ms)
        found.append(dict(limit.to_dict()) | ({} if at_s is None else {"resets_at": at_s}))
    return found
