"""The observer of a soak of slots counts what is relied on at a time; `make soak ARGS="--slots 6"` runs it."""

import json
from pathlib import Path
from typing import Any

from tests.soak import slot_checks

S = 1_000_000_000
END_S = 100
"""When the slots of these tests end, if they are not renewed."""


def journal(path: Path, *events: dict[str, Any], ended_s: float = 1_000) -> slot_checks.SlotJournal:
    """Return what is read from a journal; the process was dead at ``ended_s``."""
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return slot_checks.read(path, int(ended_s * S))


def event(kind: str, at_s: float, number: int = 0, **values: Any) -> dict[str, Any]:
    return {"event": kind, "at_ns": int(at_s * S), "number": number, "end_ms": END_S * 1000, **values}


def intervals(found: slot_checks.SlotJournal) -> list[tuple[int, float, float]]:
    return [(one.slots, one.from_ns / S, one.until_ns / S) for one in found.intervals]


def test_slots_are_relied_on_until_they_are_returned(tmp_path: Path) -> None:
    """The interval ends when the holder begins to return them."""
    found = journal(tmp_path / "0", event("take", 10, slots=2), event("exit", 20, lost=False))

    assert [(2, 10, 20)] == intervals(found)


def test_slots_of_a_stopped_process_are_relied_on_until_their_confirmed_end(tmp_path: Path) -> None:
    """It cannot know more when it continues, and it has to say that it has lost them."""
    lost = journal(tmp_path / "0", event("take", 10, slots=1), event("exit", 150, lost=True))
    silent = journal(tmp_path / "1", event("take", 10, slots=1), event("exit", 150, lost=False))

    assert [(1, 10, END_S)] == intervals(lost) == intervals(silent)
    assert [] == slot_checks.violations([lost], 1)
    assert ["1-0: not lost, 50.000 s after its end"] == slot_checks.violations([silent], 1)


def test_renewed_slots_of_a_killed_process_are_relied_on_until_its_death(tmp_path: Path) -> None:
    """A line that was cut by the kill says nothing."""
    renewed = event("renewed", 60, end_ms=200_000)
    found = journal(tmp_path / "0", event("take", 10, slots=1), renewed, ended_s=170)
    with (tmp_path / "0").open("a") as file:
        file.write('{"event": "exi')

    assert [(1, 10, 170)] == intervals(found) == intervals(slot_checks.read(tmp_path / "0", 170 * S))


def test_more_and_fewer_slots_of_a_lease_are_intervals_of_their_own(tmp_path: Path) -> None:
    """A lease may change what it holds."""
    changes = [event("take", 10, slots=1), event("more", 20, slots=2), event("less", 30, slots=1)]
    found = journal(tmp_path / "0", *changes, event("exit", 40, lost=False))

    assert [(1, 10, 20), (2, 20, 30), (1, 30, 40)] == intervals(found)


def test_more_holders_than_the_capacity_at_one_time_are_a_violation(tmp_path: Path) -> None:
    """A slot that is returned and taken at the same time is one slot."""
    first = journal(tmp_path / "0", event("take", 10, slots=2), event("exit", 20, lost=False))
    after = journal(tmp_path / "1", event("take", 20, slots=2), event("exit", 30, lost=False))
    during = journal(tmp_path / "2", event("take", 29, slots=1), event("exit", 40, lost=False))

    assert [] == slot_checks.violations([first, after], 2)
    assert ["3 of 2 slots were in use at 29.000 by ['1-0', '2-0']"] == slot_checks.violations([first, after, during], 2)
