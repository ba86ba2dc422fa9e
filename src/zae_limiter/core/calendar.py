"""Compute the periods of a quota: when the current month, week, day or hour began, and when it ends.

A schedule names a local time at which each period begins. Such a beginning is an *edge*: the first
instant at which the local clock shows that time or a later one. If a shift of the clock skips the
time, the edge is the moment of the shift. If the time occurs twice, the first one counts.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError

NOMINAL_S = {"hour": 3_600, "day": 86_400, "week": 7 * 86_400, "month": 30 * 86_400}
"""The usual length of each kind of period, in seconds."""

LONGEST_S = {"hour": 3_600, "day": 26 * 3_600, "week": 7 * 86_400 + 2 * 3_600, "month": 32 * 86_400}
"""The longest time between two edges, in seconds. An item with a quota must live at least this long after its use."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LETTERS = {"month": "m", "week": "w", "day": "d", "hour": "h"}
_KINDS = {letter: every for every, letter in _LETTERS.items()}
_MOST_CACHED = 1024
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# 2024-01-01 was a Monday, so weeks are counted from it.
_A_MONDAY = date(2024, 1, 1).toordinal()
_DAY_S = 86_400
# Local time differs from UTC by less than a day, so an edge is at most this far from the same time in UTC.
_REACH_S = 26 * 3_600
# Two shifts of a clock are never this close to each other.
_STEP_S = 13 * 3_600

Period = tuple[int, int]
"""The first second of a period, and the first second after it."""


class CalendarSchedule(NamedTuple):
    """When the periods of a quota begin. Make one with ``schedule_of`` or ``parse_schedule``.

    ``day`` is the day of the month (1-31), or the day of the week (1 is Monday), otherwise 0.
    ``minute`` is the minute of the local day, or of the hour.
    """

    every: str
    day: int
    minute: int
    tz: str

    @property
    def text(self) -> str:
        """The stored form, such as ``m1 0000 Europe/Berlin``."""
        hour, minute = divmod(self.minute, 60)
        return f"{_LETTERS[self.every]}{self.day or ''} {hour:02}{minute:02} {self.tz}"

    @property
    def starts(self) -> Any:
        """When a period begins, in the form that ``schedule_of`` accepts."""
        hour, minute = divmod(self.minute, 60)
        clock = f"{hour:02}:{minute:02}"
        return {"hour": self.minute, "day": clock}.get(self.every, [self.day, clock])

    @property
    def tolerance(self) -> int:
        """The difference of edges that counts as the same edge, in half seconds: a quarter of the period.

        Clients may have different versions of the time zone data.
        """
        return 2 * (NOMINAL_S[self.every] // 4)

    @property
    def longest_s(self) -> int:
        """The longest time between two edges, in seconds."""
        return LONGEST_S[self.every]


def schedule_of(every: object = "month", tz: object = "UTC", starts: object = None) -> CalendarSchedule:
    """Return the schedule of a quota.

    Args:
        every: ``"month"``, ``"week"``, ``"day"`` or ``"hour"``.
        tz: A name from the IANA time zone database, such as ``"Europe/Berlin"``.
        starts: When a period begins, in local time. For a month it is ``(15, "06:00")``, and for a week
            ``("mon", "06:00")`` or ``(1, "06:00")``. For a day it is ``"06:00"``, and for an hour a minute such as
            ``30``. If None, it is midnight of the first day or Monday, or the full hour.

    Raises:
        ValidationError: An argument is invalid, or the time zone is not on this machine.
    """
    if type(every) is not str or every not in NOMINAL_S:
        raise ValidationError("every", every, 'must be "month", "week", "day" or "hour"')
    day, minute = _STARTS[every](starts)
    if every == "hour" and tz != "UTC":
        # Shifts of half an hour exist, so a local hour could last 30 minutes or 90.
        raise ValidationError("tz", tz, 'must be "UTC" for hourly quotas: an hour is the same everywhere')
    _check_zone(tz)
    return CalendarSchedule(every, day, minute, str(tz))


def parse_schedule(text: str) -> CalendarSchedule:
    """Return the schedule of a stored text.

    Raises:
        ValidationError: The text is no schedule, or the time zone is not on this machine.
    """
    start, _, rest = text.partition(" ")
    at, _, tz = rest.partition(" ")
    every = _KINDS.get(start[:1], "")
    day = int(start[1:]) if start[1:].isdecimal() else 0
    if not every or len(at) != 4 or not at.isdecimal():
        raise ValidationError("schedule", text, "must be a text such as m1 0000 Europe/Berlin")
    clock = f"{at[:2]}:{at[2:]}"
    starts = {"month": (day, clock), "week": (day, clock), "day": clock, "hour": int(at)}[every]
    schedule = schedule_of(every, tz, starts)
    if schedule.text != text:
        raise ValidationError("schedule", text, f"must be written {schedule.text}")
    return schedule


def period_at(schedule: CalendarSchedule, now_s: int) -> Period:
    """Return the period of a schedule that a time is in.

    Raises:
        ValidationError: The time zone is not on this machine.
    """
    cached = _latest.get(schedule)
    if cached is not None and cached[0] <= now_s < cached[1]:
        return cached
    if schedule.every == "hour":
        begin_s = (now_s - schedule.minute * 60) // 3_600 * 3_600 + schedule.minute * 60
        found = begin_s, begin_s + 3_600
    else:
        found = _local_period(schedule, now_s)
    if len(_latest) >= _MOST_CACHED:
        _latest.clear()
    _latest[schedule] = found
    return found


_latest: dict[CalendarSchedule, Period] = {}
"""The last period of each schedule that was asked for: almost every call is in the same one as the call before."""


def _local_period(schedule: CalendarSchedule, now_s: int) -> Period:
    offset_s, local_s = _zone(schedule.tz), _LOCAL_S[schedule.every]
    # No local clock is this far ahead, so this period begins later.
    number = _NUMBER[schedule.every](now_s // _DAY_S + _EPOCH_DAY + 2) + 1
    end_s = _edge(local_s(schedule, number), offset_s)
    # Two edges are the same if a shift of the clock skips a whole day. Then the period between them is left out.
    while True:
        number -= 1
        begin_s = _edge(local_s(schedule, number), offset_s)
        if begin_s <= now_s:
            return begin_s, end_s
        end_s = begin_s


def _edge(local_s: int, offset_s: Callable[[int], int]) -> int:
    """Return the first second at which the local clock shows ``local_s`` or later."""
    # There is one, because a local clock differs from UTC by less than a day.
    stretches = _stretches(local_s - _REACH_S, local_s + _REACH_S, offset_s)
    return next(max(begin_s, local_s - offset) for begin_s, end_s, offset in stretches if local_s - offset < end_s)


def _stretches(begin_s: int, end_s: int, offset_s: Callable[[int], int]) -> Iterator[tuple[int, int, int]]:
    """Yield the times between shifts of the clock: the first second, the first second after it, and the offset."""
    offset = offset_s(begin_s)
    for at_s in range(begin_s, end_s, _STEP_S):
        late_s = min(at_s + _STEP_S, end_s)
        following = offset_s(late_s)
        if following != offset:
            early_s = at_s
            while late_s - early_s > 1:
                middle_s = (early_s + late_s) // 2
                early_s, late_s = (middle_s, late_s) if offset_s(middle_s) == offset else (early_s, middle_s)
            yield begin_s, late_s, offset
            begin_s, offset = late_s, following
    yield begin_s, end_s + 1, offset


def _month_number(ordinal: int) -> int:
    day = date.fromordinal(ordinal)
    return day.year * 12 + day.month - 1


def _month_local_s(schedule: CalendarSchedule, number: int) -> int:
    first = date(number // 12, number % 12 + 1, 1)
    following = date((number + 1) // 12, (number + 1) % 12 + 1, 1)
    day = min(schedule.day, (following - first).days)
    return (first.toordinal() + day - 1 - _EPOCH_DAY) * _DAY_S + schedule.minute * 60


def _week_local_s(schedule: CalendarSchedule, number: int) -> int:
    return (_A_MONDAY + 7 * number + schedule.day - 1 - _EPOCH_DAY) * _DAY_S + schedule.minute * 60


def _day_local_s(schedule: CalendarSchedule, number: int) -> int:
    return (number - _EPOCH_DAY) * _DAY_S + schedule.minute * 60


_NUMBER: dict[str, Callable[[int], int]] = {
    "month": _month_number,
    "week": lambda ordinal: (ordinal - _A_MONDAY) // 7,
    "day": lambda ordinal: ordinal,
}
"""Returns the number of the period that a day belongs to. Numbers count up by 1, from any number."""

_LOCAL_S: dict[str, Callable[[CalendarSchedule, int], int]] = {
    "month": _month_local_s,
    "week": _week_local_s,
    "day": _day_local_s,
}
"""Returns the local time at which a period begins, in seconds, as if the local clock showed UTC."""


def _month_start(starts: object) -> tuple[int, int]:
    day, clock = _pair(starts, '(day, "HH:MM") with a day from 1 to 31')
    if type(day) is not int or not 1 <= day <= 31:
        raise ValidationError("starts", starts, "must have a day from 1 to 31; a shorter month uses its last day")
    return day, _minute(clock, starts)


def _week_start(starts: object) -> tuple[int, int]:
    day, clock = _pair(starts, '(weekday, "HH:MM") with a weekday such as "mon", or 1 for Monday')
    if type(day) is str:
        named = [number for number, name in enumerate(_WEEKDAYS, start=1) if day.lower() in (name, name[:3])]
        day = named[0] if named else None
    if type(day) is not int or not 1 <= day <= 7:
        raise ValidationError("starts", starts, 'must have a weekday such as "mon", or 1 for Monday to 7 for Sunday')
    return day, _minute(clock, starts)


def _day_start(starts: object) -> tuple[int, int]:
    return 0, _minute("00:00" if starts is None else starts, starts)


def _hour_start(starts: object) -> tuple[int, int]:
    minute = 0 if starts is None else starts
    if type(minute) is not int or not 0 <= minute <= 59:
        raise ValidationError("starts", starts, "must be a minute from 0 to 59")
    return 0, minute


_STARTS: dict[str, Callable[[object], tuple[int, int]]] = {
    "month": _month_start,
    "week": _week_start,
    "day": _day_start,
    "hour": _hour_start,
}


def _pair(starts: object, form: str) -> tuple[object, object]:
    if starts is None:
        return 1, "00:00"
    if not isinstance(starts, tuple | list) or len(starts) != 2:
        raise ValidationError("starts", starts, f"must be {form}")
    return starts[0], starts[1]


def _minute(clock: object, starts: object) -> int:
    """Return the minute of the day of a text such as ``06:00``."""
    hour, _, minute = clock.partition(":") if type(clock) is str else ("", "", "")
    two_digits = len(hour) == len(minute) == 2 and hour.isascii() and minute.isascii()
    if not two_digits or not (hour + minute).isdecimal() or int(hour) > 23 or int(minute) > 59:
        raise ValidationError("starts", starts, 'must have a local time from "00:00" to "23:59"')
    return int(hour) * 60 + int(minute)


def _check_zone(tz: object) -> None:
    if type(tz) is not str or not 0 < len(tz) <= 64:
        raise ValidationError("tz", tz, 'must be the name of a time zone, such as "Europe/Berlin"')
    # These differ from machine to machine, or count leap seconds.
    if tz in ("localtime", "posixrules", "Factory") or tz.startswith(("posix/", "right/")):
        raise ValidationError("tz", tz, 'does not mean the same on every machine; use a name such as "Europe/Berlin"')
    _zone(tz)


@lru_cache(_MOST_CACHED)
def _zone(tz: str) -> Callable[[int], int]:
    """Return a function from a time to the difference of local time from UTC, both in seconds.

    Raises:
        ValidationError: The time zone is not on this machine.
    """
    if tz == "UTC":
        return lambda at_s: 0
    # Imported here: only quotas with a time zone need it.
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(tz)
    except (OSError, ValueError, LookupError) as error:
        reason = (
            "is not in the time zone data of this machine. Check the name, or update the data: pip install -U tzdata"
        )
        raise ValidationError("tz", tz, reason) from error
    second = timedelta(seconds=1)

    def offset_s(at_s: int) -> int:
        difference = datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()
        assert difference is not None, "a zone has an offset at every time"
        return difference // second

    return offset_s
