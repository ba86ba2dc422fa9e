"""The most that was taken in any window beyond its earnings, given the times between which each write acted.

A charge counts in a window that contains all of it, a credit in a window that it may have touched. So doubt is always
resolved in favour of the limiter.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.stress.fleet import Windows


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of one limit of one bucket that acted between two times.

    ``passing``: taken and credited again, at most; a window that starts in between may contain only the credit.
    """

    kind: Literal["take", "debit", "credit", "passing"]
    tokens: float
    before_ns: int
    after_ns: int


def delays(entries: Sequence[Entry], rate_per_s: float, calm_s: float) -> list[Entry]:
    """Return what late writes may have admitted, as credits.

    A late write assumes that the bucket has earned less than it has, and leaves what it should have cut off. Writes
    that overlap leave together what the slowest of them leaves.
    """
    slow = sorted((one.before_ns, one.after_ns) for one in entries if one.after_ns - one.before_ns > calm_s * 1e9)
    spells: list[tuple[int, int, int]] = []
    for before_ns, after_ns in slow:
        if spells and before_ns <= spells[-1][1]:
            begun_ns, ended_ns, longest_ns = spells[-1]
            spells[-1] = begun_ns, max(ended_ns, after_ns), max(longest_ns, after_ns - before_ns)
        else:
            spells.append((before_ns, after_ns, after_ns - before_ns))
    return [Entry("credit", rate_per_s * took_ns / 1e9, begun_ns, ended_ns) for begun_ns, ended_ns, took_ns in spells]


def most_in_any_window(entries: Sequence[Entry], rate_per_s: float) -> float:
    """Return the most that takes and debits, less credits and earnings, reached in any window that ends in a take."""
    charges = [entry for entry in entries if entry.kind in ("take", "debit")]
    starts = sorted({entry.before_ns for entry in charges})
    if not starts:
        return 0.0
    first_ns, rate = starts[0], rate_per_s / 1e9
    passing = _passing(starts, [entry for entry in entries if entry.kind == "passing"])
    windows = Windows([rate * (at_ns - first_ns) - passing[at] for at, at_ns in enumerate(starts)])
    late_ns = max(entry.after_ns - entry.before_ns for entry in charges)
    most = 0.0
    for at_ns, entry in _in_order(entries, late_ns):
        if entry.kind == "credit":
            position = bisect_right(starts, entry.after_ns) - 1
            if position >= 0:
                windows.count(position, -entry.tokens, begins=False)
            continue
        windows.count(bisect_right(starts, entry.before_ns) - 1, entry.tokens, begins=entry.kind == "take")
        if entry.kind == "take":
            most = max(most, windows.largest() - rate * (at_ns - first_ns))
    return most


def _in_order(entries: Sequence[Entry], late_ns: int) -> list[tuple[int, Entry]]:
    """Return when each entry begins to count: a credit as soon as it may have acted, a take once it has.

    A debit counts once every take that may have acted before it has ended: what follows it may be a debt.
    """
    ordered = []
    for entry in entries:
        if entry.kind == "credit":
            ordered.append((entry.before_ns, entry))
        elif entry.kind != "passing":
            ordered.append((entry.after_ns + (late_ns if entry.kind == "debit" else 0), entry))
    return sorted(ordered, key=lambda one: (one[0], one[1].kind != "credit"))


def _passing(starts: Sequence[int], entries: Sequence[Entry]) -> list[float]:
    """Return, for every start of a window, what may have been taken just before it and credited in it."""
    changes = [0.0] * (len(starts) + 1)
    for entry in entries:
        # A window that starts with the same call as this one may be just after its take.
        begin = bisect_right(starts, entry.before_ns - 1)
        changes[begin] += entry.tokens
        changes[bisect_right(starts, entry.after_ns)] -= entry.tokens
    found, sum_tokens = [], 0.0
    for change in changes[:-1]:
        sum_tokens += change
        found.append(sum_tokens)
    return found
