"""What the journals of a soak of slots say: when each slot was relied on, and how many were at a time.

A holder relies on its slots from the answer of the take until it begins to return them. It never relies on them beyond
the last end that was confirmed. All times are nanoseconds of the machine's clock, which is also the clock of the table.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MS = 1_000_000


@dataclass(slots=True)
class Interval:
    """The time in which a holder relied on some slots."""

    slots: int
    from_ns: int
    until_ns: int
    holder: str


@dataclass(slots=True)
class SlotJournal:
    """What one process has recorded."""

    intervals: list[Interval] = field(default_factory=list)
    last_ns: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read(path: Path, ended_ns: int) -> SlotJournal:
    """Return a journal; ``ended_ns`` is when its process was dead."""
    found = SlotJournal()
    open_takes: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            # The process was killed while it wrote its last line.
            continue
        found.counts[event["event"]] = found.counts.get(event["event"], 0) + 1
        _enter(found, open_takes, event, path.stem)
    for number, take in open_takes.items():
        _close(found, take, ended_ns, f"{path.stem}-{number}")
    return found


def _enter(found: SlotJournal, open_takes: dict[int, dict[str, Any]], event: dict[str, Any], name: str) -> None:
    number = event.get("number")
    match event["event"]:
        case "take":
            open_takes[number] = event
            # A take is sent before its answer; its hold is counted from the time it was sent.
            found.last_ns = max(found.last_ns, event["at_ns"])
        case "renewed" if number in open_takes:
            open_takes[number]["end_ms"] = event["end_ms"]
            found.last_ns = max(found.last_ns, event["at_ns"])
        case "more" | "less":
            # The slots that the lease has from now on are another interval.
            take = open_takes[number]
            _close(found, take, event["at_ns"], f"{name}-{number}")
            open_takes[number] = {**take, "at_ns": event["at_ns"], "slots": event["slots"], "end_ms": event["end_ms"]}
            found.last_ns = max(found.last_ns, event["at_ns"])
        case "exit":
            take = open_takes.pop(number)
            take["end_ms"] = event["end_ms"]
            _close(found, take, event["at_ns"], f"{name}-{number}")
            late_ns = event["at_ns"] - event["end_ms"] * MS
            if late_ns > 0 and not event["lost"]:
                found.problems.append(f"{name}-{number}: not lost, {late_ns / 1e9:.3f} s after its end")
        case _:
            pass


def _close(found: SlotJournal, take: dict[str, Any], at_ns: int, holder: str) -> None:
    until_ns = min(at_ns, take["end_ms"] * MS)
    if until_ns > take["at_ns"]:
        found.intervals.append(Interval(take["slots"], take["at_ns"], until_ns, holder))


def most_at_a_time(intervals: Iterable[Interval]) -> tuple[int, int]:
    """Return the largest number of slots that were relied on at one time, and that time."""
    changes: list[tuple[int, int]] = []
    for one in intervals:
        changes += [(one.from_ns, one.slots), (one.until_ns, -one.slots)]
    most, at_ns, now = 0, 0, 0
    # Of changes at the same time, those that return slots come first.
    for time_ns, change in sorted(changes):
        now += change
        if now > most:
            most, at_ns = now, time_ns
    return most, at_ns


def violations(journals: Sequence[SlotJournal], capacity: int) -> list[str]:
    """Return what breaks the promise."""
    found = [problem for one in journals for problem in one.problems]
    intervals = [interval for one in journals for interval in one.intervals]
    most, at_ns = most_at_a_time(intervals)
    if most > capacity:
        holders = [one.holder for one in intervals if one.from_ns <= at_ns < one.until_ns]
        found.append(f"{most} of {capacity} slots were in use at {at_ns / 1e9:.3f} by {holders}")
    return found
