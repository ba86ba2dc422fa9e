"""Compare the edges of schedules with a slow reference, for every time zone over 30 years.

    python -m tests.calendar_edges                     every zone, about 12 minutes of CPU
    python -m tests.calendar_edges Europe/Berlin ...   these zones
    python -m tests.calendar_edges --years 1990 2040

For each kind of schedule, the starts are the default, day 29, 30 and 31, and 20 random ones. Both sides of the minute
of every shift of the clock are starts too. Edges of every month are compared, and of the weeks and days around each
shift. Of the other weeks and days, it is every eighth and every fortieth.

The reference shares no code with ``zae_limiter.core.calendar``. It reads the local clock at every hour, and at every
minute of the hours with a shift. An edge is the first minute at which the clock shows the time of the schedule or a
later one. Zones with equal data are compared once.
"""

import argparse
import sys
import time
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo, available_timezones

from zae_limiter.core.calendar import _latest, period_at, schedule_of

YEARS = (2000, 2030)
RANDOM_STARTS = 20
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone here
_NEAR = 26 * 60
"""Minutes before and after a shift in which edges are looked for minute by minute: no clock differs more from UTC."""

Start = str | tuple[int, str]
Starts = dict[str, list[Start]]


class LocalClock:
    """What a clock in a time zone shows, in minutes since 1970; read hour by hour, or by minutes around shifts."""

    def __init__(self, name: str, years: tuple[int, int]) -> None:
        self._zone = ZoneInfo(name)
        self.first, self.last = (
            int((datetime(year, 1, 1, tzinfo=UTC)).timestamp()) // 60 + extra
            for year, extra in zip(years, (-40 * 1_440, 40 * 1_440), strict=True)
        )
        self.shifts: list[int] = []
        self.offsets = [self._offset(self.first)]
        for hour in range(self.first, self.last, 60):
            if self._offset(hour + 60) != self.offsets[-1]:
                for minute in range(hour + 1, hour + 61):
                    if self._offset(minute) != self.offsets[-1]:
                        self.shifts.append(minute)
                        self.offsets.append(self._offset(minute))
        self.near = {
            days: {one // 1_440 + more for one in self.shifts for more in range(-days, days + 1)} for days in (3, 8)
        }

    def _offset(self, minute: int) -> int:
        difference = datetime.fromtimestamp(minute * 60, self._zone).utcoffset()
        assert difference is not None, self._zone
        assert difference.total_seconds() % 60 == 0, (self._zone, minute)
        return int(difference.total_seconds()) // 60

    def shown(self, minute: int) -> int:
        """Return what the clock shows at a minute."""
        return minute + self.offsets[sum(1 for shift in self.shifts if shift <= minute)]

    def first_shown(self, local: int) -> int:
        """Return the first minute at which the clock shows this time or a later one."""
        position = bisect_left(self.shifts, local)
        near = [one for one in self.shifts[max(0, position - 3) : position + 3] if abs(one - local) <= _NEAR]
        if not near:
            return local - self.offsets[position]
        offset, position = 0, self.shifts.index(near[0])
        for minute in range(local - _NEAR, local + _NEAR):
            while position < len(self.shifts) and self.shifts[position] <= minute:
                position += 1
            offset = self.offsets[position]
            if minute + offset >= local:
                return minute
        raise AssertionError(local)


@lru_cache
def days_between(first: int, last: int) -> list[tuple[int, int, int, int]]:
    """Return the days between two minutes: number, day of the month, day of the week, and length of the month."""
    found = []
    for number in range(first // 1_440 + 2, last // 1_440 - 2):
        at = _EPOCH + timedelta(days=number)
        found.append((number, at.day, at.isoweekday(), monthrange(at.year, at.month)[1]))
    return found


def local_begins(every: str, starts: Start, clock: LocalClock) -> list[int]:
    """Return the local times at which periods begin, in minutes since 1970."""
    day, text = (0, starts) if isinstance(starts, str) else starts
    hour, minute = map(int, str(text).split(":"))
    days = days_between(clock.first, clock.last)
    if every == "month":
        due = [number for number, at, _, longest in days if at == min(day, longest)]
    elif every == "week":
        due = [number for number, _, at, _ in days if at == day and (number in clock.near[8] or number % 56 < 14)]
    else:
        due = [number for number, *_ in days if number in clock.near[3] or number % 40 < 2]
    return [(number * 24 + hour) * 60 + minute for number in due]


def starts_of(clock: LocalClock, random: Random) -> Starts:
    """Return the starts that are compared in a zone, by kind of schedule."""
    sides = set()
    for shift in clock.shifts:
        for minute in (shift - 1, shift):
            for offset in (clock.offsets[clock.shifts.index(shift)], clock.offsets[clock.shifts.index(shift) + 1]):
                sides.add(_EPOCH + timedelta(minutes=minute + offset))
    months = {(one.day, f"{one:%H:%M}") for one in sides} | {(day, "00:00") for day in (1, 29, 30, 31)}
    weeks = {(one.isoweekday(), f"{one:%H:%M}") for one in sides} | {(1, "00:00")}
    days = {f"{one:%H:%M}" for one in sides} | {"00:00"}
    for _ in range(RANDOM_STARTS):
        text = f"{random.randrange(24):02}:{random.randrange(60):02}"
        months.add((random.randint(1, 31), text))
        weeks.add((random.randint(1, 7), text))
        days.add(text)
    return {"month": [*sorted(months)], "week": [*sorted(weeks)], "day": [*sorted(days)]}


def compare(name: str, years: tuple[int, int] = YEARS, most_starts: int | None = None) -> tuple[int, list[str]]:
    """Return how many edges of a zone were compared, and what differs."""
    random = Random(name)
    clock = LocalClock(name, years)
    compared, differences = 0, []
    for every, starts in starts_of(clock, random).items():
        for start in starts if most_starts is None else random.sample(starts, min(most_starts, len(starts))):
            schedule = schedule_of(every, name, start)
            begins = local_begins(every, start, clock)
            length = {"month": 32, "week": 7, "day": 1}[every] * 1_440
            for local, following in pairwise(begins):
                if following - local > length:
                    continue
                begin, end = clock.first_shown(local) * 60, clock.first_shown(following) * 60
                if begin == end:
                    continue
                compared += 1
                for at_s in (begin, end - 1):
                    _latest.clear()
                    found = period_at(schedule, at_s)
                    if found != (begin, end):
                        differences.append(f"{schedule.text} at {at_s}: {found}, but reference {(begin, end)}")
    return compared, differences


def distinct_zones() -> list[str]:
    """Return one name for each different time zone."""
    from importlib.resources import files

    found: dict[bytes, str] = {}
    for name in sorted(available_timezones()):
        data = files("tzdata").joinpath("zoneinfo", *name.split("/"))
        found.setdefault(data.read_bytes() if data.is_file() else name.encode(), name)
    return sorted(found.values())


def main(arguments: Sequence[str]) -> int:
    """Compare zones and return 1 if an edge differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.calendar_edges")
    parser.add_argument("zones", nargs="*")
    parser.add_argument("--years", nargs=2, type=int, default=YEARS)
    asked = parser.parse_args(arguments)
    zones = asked.zones or distinct_zones()
    skipped = {"localtime", "Factory", "posixrules"}
    total, bad, began = 0, 0, time.process_time()
    for name in zones:
        if name not in skipped:
            compared, differences = compare(name, tuple(asked.years))
            total, bad = total + compared, bad + len(differences)
            for difference in differences[:5]:
                sys.stdout.write(f"{difference}\n")
    cpu_s = time.process_time() - began
    sys.stdout.write(f"{total:,} edges of {len(zones)} zones compared, {bad} different, {cpu_s:.0f} s of CPU\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
