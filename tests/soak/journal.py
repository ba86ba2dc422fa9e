"""The journal of a process: one line before and one after each step, so that it survives a kill.

A line is written by one call to a file opened for appending. A step that began and did not end is in doubt. Amounts of
steps are in tokens, amounts of writes in millitokens, as in tables.
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
"""The current step: what is logged meanwhile belongs to it."""


class Journal:
    """The journal of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count(1)

    def begin(self, kind: Kind, entity_id: str, amounts: Amounts) -> int:
        """Record what is about to be taken, or charged (above zero) and credited (below)."""
        number = next(self._numbers)
        self._write("begin", number, kind, entity_id, amounts)
        return number

    def end(self, step: int, outcome: Outcome) -> None:
        """Record the outcome of a step."""
        self._write("end", step, outcome)

    def lose(self, step: int | None) -> None:
        """Record that a part of a step was not settled; its caller gets no error."""
        self._write("lose", step)

    def doubt(self, entity_id: str, totals: Amounts) -> None:
        """Record a write without an answer; it may be sent again, and a credit in it may be lost."""
        self._write("doubt", entity_id, totals)

    def begin_transaction(self, parts: Sequence[tuple[str, Amounts]]) -> int:
        """Record the changes of totals of a transaction; it may be sent again with its token."""
        number = next(self._numbers)
        self._write("transaction", number, parts)
        return number

    def end_transaction(self, number: int) -> None:
        """Record that a transaction is not sent again."""
        self._write("transacted", number)

    def begin_merge(self, entity_id: str, totals: Amounts, overflows: Amounts, seen_ns: int) -> int:
        """Record the totals, and the overflow, of a shard that is about to be deleted."""
        number = next(self._numbers)
        self._write("merge", number, entity_id, totals, overflows, seen_ns)
        return number

    def end_merge(self, number: int, merged: bool | None) -> None:
        """Record whether the shard was deleted, None if that is unknown."""
        self._write("merged", number, merged)

    def _write(self, what: str, *details: Any) -> None:
        os.write(self._file, json.dumps([what, time.time_ns(), *details]).encode() + b"\n")


@dataclass(slots=True)
class Step:
    """A take or a settlement, between two times; its outcome is None if the process ended first."""

    kind: Kind
    entity_id: str
    amounts: Amounts
    before_ns: int
    after_ns: int
    outcome: Outcome | None = None


@dataclass(slots=True)
class Doubt:
    """A write without an answer, and when that happened."""

    at_ns: int
    entity_id: str
    totals: Amounts


@dataclass(slots=True)
class Transaction:
    """The totals that a transaction was to change, and the times between which it was sent."""

    parts: Sequence[tuple[str, Amounts]]
    before_ns: int
    after_ns: int


@dataclass(slots=True)
class Merge:
    """A shard that was deleted, or may have been."""

    entity_id: str
    totals: Amounts
    overflows: Amounts
    seen_ns: int
    after_ns: int
    merged: bool | None = None


@dataclass(slots=True)
class Record:
    """The journal of one process, or of all."""

    steps: list[Step] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)

    def add(self, other: "Record") -> None:
        """Add the journal of another process."""
        for name in ("steps", "doubts", "transactions", "merges"):
            getattr(self, name).extend(getattr(other, name))


def read(path: Path, ended_ns: int) -> Record:
    """Return the journal of a process that ended at a time; unfinished steps may have lasted until then."""
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
    """Return the complete lines."""
    data = path.read_bytes() if path.exists() else b""
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
