"""Measure how long it takes to find the period of a quota.

    python bench/calendar_periods.py

Prints microseconds of CPU per call. Goal: at most 0.3 if the period is cached, which it is in almost every acquire. A
new period is computed once per schedule and process, when the previous one ends.
"""

import time
from collections.abc import Callable
from functools import partial

from zae_limiter.core.calendar import CalendarSchedule, period_at, schedule_of

CALLS, ROUNDS = 100_000, 7
NOW_S = 1_711_846_800


def cpu_us(run: Callable[[], None], calls: int) -> float:
    """Return the CPU time per call of the fastest round, in microseconds."""
    fastest = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        fastest = min(fastest, time.process_time() - began)
    return fastest / calls * 1e6


def cached(schedule: CalendarSchedule) -> None:
    """Ask for the same period again and again."""
    for _ in range(CALLS):
        period_at(schedule, NOW_S)


def new(schedule: CalendarSchedule) -> None:
    """Ask for a new period each time."""
    for number in range(500):
        period_at(schedule, NOW_S + number * 40 * 86_400)


def main() -> None:
    """Print both figures for each kind of schedule."""
    for every, tz in (("month", "Europe/Berlin"), ("week", "America/New_York"), ("day", "Asia/Tokyo"), ("hour", "UTC")):
        schedule = schedule_of(every, tz)
        figures = cpu_us(partial(cached, schedule), CALLS), cpu_us(partial(new, schedule), 500)
        print(f"{every:<6} {tz:<17} cached {figures[0]:5.2f} us   new {figures[1]:6.1f} us")


if __name__ == "__main__":
    main()
