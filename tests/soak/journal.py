"""What a process writes down before and after everything it does, so that it is there though the process is killed.

A line is written by one call to a file opened for appending. A step that begun and did not end is in doubt. Amounts of
steps are tokens; those of writes, as tables have them, millitokens.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["take", "settle"]
Outcome = Literal["ok", "rejected", "unavailable", "degraded", "lost"]
Amounts = Mapping[str, int]

current_step: ContextVar[int | None] = ContextVar("current_step", default=None)
"""The step that the code at hand is part of: what is logged meanwhile is about it."""


class Journal:
    """Where one process writes down what it does."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count(1)

    def begin(self, kind: Kind, entity_id: str, amounts: Amounts) -> int:
        """Say what is about to be taken, or charged (above zero) and given back (below)."""
        number = next(self._numbers)
        self._write("begin", number, kind, entity_id, amounts)
        return number

    def end(self, step: int, outcome: Outcome) -> None:
        """Say what came of a step."""
        self._write("end", step, outcome)

    def lose(self, step: int | None) -> None:
        """Say that something of a step was not settled, as its caller is not told."""
        self._write("lose", step)

    def doubt(self, entity_id: str, totals: Amounts) -> None:
        """Say that nobody knows what became of a write; it may be sent again, and a credit of it is lost or not."""
        self._write("doubt", entity_id, totals)

    def begin_transaction(self, parts: Sequence[tuple[str, Amounts]]) -> int:
        """Say by what a transaction is about to change totals; it may be sent again by its token."""
        number = next(self._numbers)
        self._write("transaction", number, parts)
        return number

    def end_transaction(self, number: int) -> None:
        """Say that a transaction is not sent again."""
        self._write("transacted", number)

    def begin_merge(self, entity_id: str, totals: Amounts, overflows: Amounts, seen_ns: int) -> int:
        """Say what totals a shard was seen to have that is about to go, and what it held beyond its capacity."""
        number = next(self._numbers)
        self._write("merge", number, entity_id, totals, overflows, seen_ns)
        return number

    def end_merge(self, number: int, merged: bool | None) -> None:
        """Say whether the shard is gone, None where nobody knows."""
        self._write("merged", number, merged)

    def _write(self, what: str, *details: Any) -> None:
        os.write(self._file, json.dumps([what, time.time_ns(), *details]).encode() + b"\n")


@dataclass(slots=True)
class Step:
    """Something that was taken or settled, between two times; without an outcome the process ended before it did."""

    kind: Kind
    entity_id: str
    amounts: Amounts
    before_ns: int
    after_ns: int
    outcome: Outcome | None = None


@dataclass(slots=True)
class Doubt:
    """A write that nobody knew the fate of at a time."""

    at_ns: int
    entity_id: str
    totals: Amounts


@dataclass(slots=True)
class Transaction:
    """What totals a transaction was to change, and between which times it was sent."""

    parts: Sequence[tuple[str, Amounts]]
    before_ns: int
    after_ns: int


@dataclass(slots=True)
class Merge:
    """A shard that went, or may have gone where it is not known."""

    entity_id: str
    totals: Amounts
    overflows: Amounts
    seen_ns: int
    after_ns: int
    merged: bool | None = None


@dataclass(slots=True)
class Record:
    """All that one process, or all of them, have written down."""

    steps: list[Step] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)

    def add(self, other: "Record") -> None:
        """Add what another process has written down."""
        for name in ("steps", "doubts", "transactions", "merges"):
            getattr(self, name).extend(getattr(other, name))


def read(path: Path, ended_ns: int) -> Record:
    """What a process has written down that ended at a time; what it had not ended may have lasted until then."""
    record = Record()
    begun: dict[int, Any] = {}
    for what, at_ns, *details in _lines(path):
        match what:
            case "begin":
                begun[details[0]] = step = Step(*details[1:], at_ns, ended_ns)
                record.steps.append(step)
            case "end":
                _end(begun[details[0]], at_ns, details[1])
            case "lose" if details[0] is not None:
                begun[details[0]].outcome = "lost"
            case "doubt":
                record.doubts.append(Doubt(at_ns, *details))
            case "transaction":
                begun[details[0]] = transaction = Transaction(details[1], at_ns, ended_ns)
                record.transactions.append(transaction)
            case "transacted":
                begun[details[0]].after_ns = at_ns
            case "merge":
                begun[details[0]] = merge = Merge(*details[1:], ended_ns)
                record.merges.append(merge)
            case "merged":
                begun[details[0]].after_ns, begun[details[0]].merged = at_ns, details[1]
            case _:
                raise AssertionError(f"{path} has a line of an unknown kind: {what} {details}")
    return record


def _end(step: Step, at_ns: int, outcome: Outcome) -> None:
    step.after_ns = at_ns
    step.outcome = step.outcome or outcome


def _lines(path: Path) -> Iterator[list[Any]]:
    """The lines that were written to their end."""
    data = path.read_bytes() if path.exists() else b""
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
